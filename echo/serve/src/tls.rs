//! TLS of the listeners: certificate, key, and CA for client certificates of agents.
//!
//! The configuration is replaced as a whole. A handshake uses the configuration current at its
//! start, so a certificate change drops no connection.

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

/// Longest time for a handshake, which is a few packets.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// ALPN protocols, preferred first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// TLS files, all in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain of this instance.
    pub cert: PathBuf,
    /// Private key of the certificate.
    pub key: PathBuf,
    /// CA for client certificates, which agents must present; `None` if they need none.
    pub client_ca: Option<PathBuf>,
}

/// TLS configuration built from the files.
#[derive(Debug)]
pub struct Identity {
    otlp: Arc<ServerConfig>,
    api: Arc<ServerConfig>,
    certificate: Certificate,
}

/// Error of TLS files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// A file does not contain what is expected.
    #[error("{} contains no {what} in PEM ({reason})", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// Expected content.
        what: &'static str,
        /// Cause.
        reason: String,
    },
    /// Certificate and key do not match, or their type is not supported.
    #[error("{} cannot be used with {}", cert.display(), key.display())]
    Mismatch {
        /// The certificate.
        cert: PathBuf,
        /// The key.
        key: PathBuf,
        /// Cause.
        source: rustls::Error,
    },
    /// The client CA cannot be used.
    #[error("{} cannot be used to check certificates: {reason}", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// Cause.
        reason: String,
    },
}

impl TlsFiles {
    /// Returns the files to watch.
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
            reason: "the first one cannot be parsed".to_owned(),
        })?;
        let roots = self.client_ca.as_deref().map(authorities).transpose()?;
        let api = self.config(chain.clone(), key.clone_key(), None)?;
        Ok(Identity {
            otlp: self.config(chain, key, roots)?,
            api,
            certificate,
        })
    }

    fn config(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
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
        let verifies_clients = roots.is_some();
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
        if verifies_clients {
            // A resumed session would not be checked against a changed CA.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Arc::new(config))
    }
}

impl Identity {
    /// Returns the server certificate.
    pub const fn certificate(&self) -> &Certificate {
        &self.certificate
    }
}

/// TLS of a listener. Clones share it.
#[derive(Debug, Clone)]
pub enum Encryption {
    /// Plain TCP.
    None,
    /// TLS for agents, with client certificates if required.
    Otlp(watch::Receiver<Arc<Identity>>),
    /// TLS for API clients.
    Api(watch::Receiver<Arc<Identity>>),
}

impl Encryption {
    /// Returns the current configuration.
    pub fn identity(&self) -> Option<Arc<Identity>> {
        match self {
            Self::None => None,
            Self::Otlp(identity) | Self::Api(identity) => Some(Arc::clone(&identity.borrow())),
        }
    }

    fn config(&self) -> Option<Arc<ServerConfig>> {
        let identity = self.identity()?;
        match self {
            Self::None => None,
            Self::Otlp(_) => Some(Arc::clone(&identity.otlp)),
            Self::Api(_) => Some(Arc::clone(&identity.api)),
        }
    }
}

/// A plain connection, or a TLS connection after its handshake.
#[derive(Debug)]
pub(super) struct AcceptedStream(Either<Connection, TlsStream<Connection>>);

impl AcceptedStream {
    /// Performs the handshake, if TLS is used. Returns `None` if it fails or times out.
    pub(super) async fn accept(connection: Connection, encryption: &Encryption) -> Option<Self> {
        let Some(config) = encryption.config() else {
            return Some(Self(Either::Left(connection)));
        };
        let (peer, connections) = (connection.peer(), connection.connections().clone());
        let handshake = timeout(HANDSHAKE, TlsAcceptor::from(config).accept(connection));
        let reason = match handshake.await {
            Ok(Ok(stream)) => return Some(Self(Either::Right(stream))),
            Ok(Err(error)) => error.to_string(),
            Err(_late) => format!("no handshake within {} s", HANDSHAKE.as_secs()),
        };
        connections.count_failed_handshake();
        tracing::debug!(peer = %peer.0, reason, "TLS handshake failed");
        None
    }

    /// Returns whether HTTP/2 was negotiated; `None` without ALPN.
    pub(super) fn negotiated_http2(&self) -> Option<bool> {
        let session = self.session()?;
        Some(session.alpn_protocol() == Some(b"h2"))
    }

    /// Returns the client certificate.
    pub(super) fn certificate(&self) -> Option<Certificate> {
        let certificates = self.session()?.peer_certificates()?;
        Certificate::read(certificates.first()?)
    }

    /// Returns the decrypted stream.
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
