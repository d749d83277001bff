//! Fetch of a key set: bounded in time and size, over TLS, without redirects.

use std::path::Path;
use std::time::Duration;

use echo_access::published::{KeySet, KeySource};
use echo_http_client::{FileError, authorities, config, secret};
use tokio::task::JoinError;
use ureq::Agent;

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
    /// A file with authorities or a token cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
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
    let url = source.url.as_str();
    let ca = source.ca.as_ref().map(|path| base_dir.join(path));
    let config = config(&authorities(url, ca.as_deref())?, limits.time);
    // A redirect would let another host supply the keys.
    let agent = Agent::new_with_config(config.max_redirects(0).build());
    let mut request = agent
        .get(url)
        .header("accept", "application/jwk-set+json, application/json");
    if let Some(path) = &source.token {
        let token = secret(&base_dir.join(path))?;
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let mut response = request.call()?;
    if response.status() != 200 {
        return Err(FetchError::Status(response.status().as_u16()));
    }
    let body = response.body_mut().with_config().limit(limits.bytes);
    KeySet::parse(&body.read_to_vec()?).map_err(FetchError::Keys)
}
