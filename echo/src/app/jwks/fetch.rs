//! One fetch of a key set: bounded in time and size, encrypted, and never led on to another address.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use echo_access::published::{KeySet, KeySource};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::task::JoinError;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// How far an issuer is listened to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Longest time for all of it.
    pub(super) time: Duration,
    /// Longest answer.
    pub(super) bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(5),
            bytes: 1024 * 1024,
        }
    }
}

/// Why no keys came.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{} holds no {what}", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
    },
    /// The issuer cannot be reached, or its answer is too long or takes too long.
    #[error(transparent)]
    Request(#[from] ureq::Error),
    /// The issuer answers something else.
    #[error("the answer has the status {0}, and only 200 counts")]
    Status(u16),
    /// What it answers are no keys.
    #[error("the answer {0}")]
    Keys(String),
    /// A defect.
    #[error("a defect")]
    Defect(#[from] JoinError),
}

/// Asks for the keys. What is named as a file is read each time, because it changes.
pub(super) fn fetch(
    source: &KeySource,
    beside: &Path,
    limits: Limits,
) -> Result<KeySet, FetchError> {
    let roots = match &source.ca {
        Some(path) => authorities(&beside.join(path))?,
        None if source.url.as_str().starts_with("https://") => {
            rustls_native_certs::load_native_certs().certs
        }
        None => Vec::new(),
    };
    let mut request = agent(&roots, limits)
        .get(source.url.as_str())
        .header("accept", "application/jwk-set+json, application/json");
    if let Some(path) = &source.token {
        let token = token(&beside.join(path))?;
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let mut response = request.call()?;
    if response.status() != 200 {
        return Err(FetchError::Status(response.status().as_u16()));
    }
    let body = response.body_mut().with_config().limit(limits.bytes);
    KeySet::parse(&body.read_to_vec()?).map_err(FetchError::Keys)
}

fn agent(roots: &[CertificateDer<'static>], limits: Limits) -> Agent {
    let roots: Vec<_> = roots
        .iter()
        .map(|root| Certificate::from_der(root).to_owned())
        .collect();
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&roots))
        .unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider()));
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(limits.time))
        // Who leads elsewhere is not the one whose keys count.
        .max_redirects(0)
        // The address is in the access file; nothing in the environment changes who answers.
        .proxy(None)
        .tls_config(tls.build());
    Agent::new_with_config(config.build())
}

fn read(path: &Path) -> Result<Vec<u8>, FetchError> {
    std::fs::read(path).map_err(|source| FetchError::File {
        path: path.to_owned(),
        source,
    })
}

fn authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, FetchError> {
    let text = read(path)?;
    let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let roots = roots.ok().filter(|roots| !roots.is_empty());
    roots.ok_or_else(|| FetchError::Empty {
        path: path.to_owned(),
        what: "certificate in PEM",
    })
}

fn token(path: &Path) -> Result<String, FetchError> {
    let text = String::from_utf8_lossy(&read(path)?).trim().to_owned();
    let is_token = !text.is_empty() && text.chars().all(|c| matches!(c, '!'..='~'));
    is_token.then_some(text).ok_or_else(|| FetchError::Empty {
        path: path.to_owned(),
        what: "token",
    })
}
