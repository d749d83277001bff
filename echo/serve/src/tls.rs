//! Encryption of what is listened on: the certificate, its key, and whose certificates agents have to show.
//!
//! What is in force is replaced as a whole. A handshake takes what is in force when it begins, so no connection is dropped
//! when a certificate changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use crate::listener::Connection;
use crate::tls::certificate::Certificate;

#[cfg(any(test, feature = "testing"))]
#[expect(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    reason = "only tests of this package and others see it"
)]
pub mod authority;
pub mod certificate;

/// Longest time for a handshake: it is a few packets.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// What clients may speak inside, the better first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The files, all in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate of this Echo, followed by those that lead to its authority.
    pub cert: PathBuf,
    /// Private key of the certificate.
    pub key: PathBuf,
    /// Authorities of the certificates that agents have to show; they need none when absent.
    pub client_ca: Option<PathBuf>,
}

/// What is made of the files.
#[derive(Debug)]
pub struct Identity {
    agents: Arc<ServerConfig>,
    questions: Arc<ServerConfig>,
    certificate: Certificate,
}

/// Why files make no identity.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file does not hold what it should.
    #[error("{} holds no {what} in PEM ({reason})", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Certificate and key are not of each other, or of a kind that is not served.
    #[error("{} cannot be used with {}", cert.display(), key.display())]
    Mismatch {
        /// The certificate.
        cert: PathBuf,
        /// The key.
        key: PathBuf,
        /// What is wrong.
        source: rustls::Error,
    },
    /// The authorities of agents cannot be used.
    #[error("{} cannot be used to check certificates: {reason}", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl TlsFiles {
    /// The files, to be watched.
    pub fn paths(&self) -> Vec<PathBuf> {
        let own = [&self.cert, &self.key].into_iter();
        own.chain(&self.client_ca).cloned().collect()
    }

    /// Reads the files.
    pub fn load(&self) -> Result<Identity, TlsError> {
        let chain = certificates(&self.cert)?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?).map_err(|error| {
            let (path, reason) = (self.key.clone(), error.to_string());
            TlsError::Empty {
                path,
                what: "private key",
                reason,
            }
        })?;
        let certificate = chain.first().and_then(Certificate::read);
        let certificate = certificate.ok_or_else(|| TlsError::Empty {
            path: self.cert.clone(),
            what: "certificate",
            reason: "the first one cannot be read".to_owned(),
        })?;
        let roots = self.client_ca.as_deref().map(authorities).transpose()?;
        let questions = self.config((chain.clone(), key.clone_key()), None)?;
        Ok(Identity {
            agents: self.config((chain, key), roots)?,
            questions,
            certificate,
        })
    }

    fn config(
        &self,
        (chain, key): (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>),
        roots: Option<RootCertStore>,
    ) -> Result<Arc<ServerConfig>, TlsError> {
        let mismatch = |source| TlsError::Mismatch {
            cert: self.cert.clone(),
            key: self.key.clone(),
            source,
        };
        let builder = ServerConfig::builder_with_provider(provider());
        let builder = builder
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(mismatch)?;
        let asks = roots.is_some();
        let builder = match roots {
            None => builder.with_no_client_auth(),
            Some(roots) => {
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
                let verifier = verifier.build().map_err(|error| TlsError::Authority {
                    path: self.client_ca.clone().unwrap_or_default(),
                    reason: error.to_string(),
                })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(mismatch)?;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
        if asks {
            // A session that goes on would not be checked against authorities that have changed since.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Arc::new(config))
    }
}

impl Identity {
    /// The certificate that it shows.
    pub const fn certificate(&self) -> &Certificate {
        &self.certificate
    }
}

/// How connections of a listener are encrypted. Clones are the same.
#[derive(Debug, Clone)]
pub enum Encryption {
    /// Not at all.
    None,
    /// As for agents, who may have to show a certificate.
    Agents(watch::Receiver<Arc<Identity>>),
    /// As for whoever asks.
    Questions(watch::Receiver<Arc<Identity>>),
}

impl Encryption {
    /// The certificate in force.
    pub fn identity(&self) -> Option<Arc<Identity>> {
        match self {
            Self::None => None,
            Self::Agents(identity) | Self::Questions(identity) => {
                Some(Arc::clone(&identity.borrow()))
            }
        }
    }

    fn config(&self) -> Option<Arc<ServerConfig>> {
        let identity = self.identity()?;
        match self {
            Self::None => None,
            Self::Agents(_) => Some(Arc::clone(&identity.agents)),
            Self::Questions(_) => Some(Arc::clone(&identity.questions)),
        }
    }
}

/// A connection after its handshake, if there has to be one.
#[derive(Debug)]
pub(super) struct Secured(Either<Connection, TlsStream<Connection>>);

impl Secured {
    /// Shakes hands. Nothing when the other end does not, or takes too long.
    pub(super) async fn after_handshake(
        connection: Connection,
        encryption: &Encryption,
    ) -> Option<Self> {
        let Some(config) = encryption.config() else {
            return Some(Self(Either::Left(connection)));
        };
        let (peer, connections) = (connection.peer(), connection.connections().clone());
        let handshake = timeout(HANDSHAKE, TlsAcceptor::from(config).accept(connection));
        let reason = match handshake.await {
            Ok(Ok(stream)) => return Some(Self(Either::Right(stream))),
            Ok(Err(error)) => error.to_string(),
            Err(_late) => format!("not done within {} s", HANDSHAKE.as_secs()),
        };
        connections.saw_failed_handshake();
        tracing::debug!(peer = %peer.0, reason, "a TLS handshake failed");
        None
    }

    /// Whether HTTP/2 was agreed on; nothing when nothing was agreed on.
    pub(super) fn speaks_http2(&self) -> Option<bool> {
        let session = self.session()?;
        Some(session.alpn_protocol() == Some(b"h2"))
    }

    /// The certificate that the other end showed.
    pub(super) fn certificate(&self) -> Option<Certificate> {
        let shown = self.session()?.peer_certificates()?;
        Certificate::read(shown.first()?)
    }

    /// The bytes inside.
    pub(super) fn into_stream(self) -> impl AsyncRead + AsyncWrite + Unpin {
        self.0
    }

    fn session(&self) -> Option<&ServerConnection> {
        match &self.0 {
            Either::Left(_) => None,
            Either::Right(stream) => Some(stream.get_ref().1),
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Unreadable {
        path: path.to_owned(),
        source,
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let reason = match found {
        Ok(found) if !found.is_empty() => return Ok(found),
        Ok(_none) => "there is no CERTIFICATE block".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(TlsError::Empty {
        path: path.to_owned(),
        what: "certificate",
        reason,
    })
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| TlsError::Authority {
                path: path.to_owned(),
                reason: error.to_string(),
            })?;
    }
    Ok(roots)
}

#[cfg(test)]
mod tests;
