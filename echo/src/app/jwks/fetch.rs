//! Fetch of a key set: bounded in time and size, over TLS, without redirects.

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

/// Limits of one fetch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Maximum total time.
    pub(super) time: Duration,
    /// Maximum response size.
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

/// Reason why no keys were fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file does not contain what it should.
    #[error("{} contains no {what}", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// Expected content.
        what: &'static str,
    },
    /// The issuer cannot be reached, or its response is too large or too slow.
    #[error(transparent)]
    Request(#[from] ureq::Error),
    /// The response has an unexpected status.
    #[error("unexpected status {0}; expected 200")]
    Status(u16),
    /// The response is not a usable key set.
    #[error("the response {0}")]
    Keys(String),
    /// The fetch panicked.
    #[error("the fetch panicked")]
    Defect(#[from] JoinError),
}

/// Fetches the keys. The CA and token files are read each time, because they may change.
pub(super) fn fetch(
    source: &KeySource,
    base_dir: &Path,
    limits: Limits,
) -> Result<KeySet, FetchError> {
    let roots = match &source.ca {
        Some(path) => authorities(&base_dir.join(path))?,
        None if source.url.as_str().starts_with("https://") => {
            rustls_native_certs::load_native_certs().certs
        }
        None => Vec::new(),
    };
    let mut request = agent(&roots, limits)
        .get(source.url.as_str())
        .header("accept", "application/jwk-set+json, application/json");
    if let Some(path) = &source.token {
        let token = token(&base_dir.join(path))?;
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
        // A redirect would let another host supply the keys.
        .max_redirects(0)
        // The access file gives the address; proxy variables must not change the host.
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
