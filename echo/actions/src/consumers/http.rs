//! HTTP client of the senders: bounded in time and size, without redirects and proxies.

use std::path::Path;
use std::time::Duration;

use echo_http_client::{FileError, authorities, config};
use ureq::Agent;
use ureq::http::{Request, Response};

use crate::consumer::DeliveryError;

/// Longest time of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Longest answer that is read.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Longest part of an answer in messages, in characters.
const MAX_SHOWN: usize = 200;

/// Longest wait that a consumer may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(10);

/// Answer of a consumer.
#[derive(Debug)]
pub(super) struct Answer {
    /// Status.
    pub(super) status: u16,
    /// Body.
    pub(super) body: Vec<u8>,
    retry_after: Option<Duration>,
}

/// Sends a request with a body of JSON.
pub(super) fn send(
    request: Request<Vec<u8>>,
    ca_file: Option<&Path>,
) -> Result<Answer, DeliveryError> {
    let roots = authorities(&request.uri().to_string(), ca_file).map_err(unusable)?;
    let config = config(&roots, TIMEOUT);
    let config = config.max_redirects(0).max_redirects_will_error(false);
    let agent = Agent::new_with_config(config.build());
    let unreachable = |error: ureq::Error| DeliveryError::transient(format!("no answer: {error}"));
    let mut response = agent.run(request).map_err(unreachable)?;
    let (status, retry_after) = (response.status().as_u16(), retry_after(&response));
    let body = response.body_mut().with_config().limit(MAX_BYTES);
    Ok(Answer {
        status,
        retry_after,
        body: body.read_to_vec().map_err(unreachable)?,
    })
}

impl Answer {
    /// Checks that the status is a success.
    pub(super) fn check(self) -> Result<Self, DeliveryError> {
        match self.status {
            200..=299 => Ok(self),
            status => Err(self.failure(is_final(status))),
        }
    }

    /// The same where the address or the body has the credentials: they may be replaced, so no status is
    /// final.
    pub(super) fn check_credentials(self) -> Result<Self, DeliveryError> {
        match self.status {
            200..=299 => Ok(self),
            _ => Err(self.failure(false)),
        }
    }

    fn failure(&self, is_permanent: bool) -> DeliveryError {
        DeliveryError {
            is_permanent,
            retry_after: self.retry_after,
            message: format!("status {}: {}", self.status, self.shown()),
        }
    }

    fn shown(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let plain = text.chars().filter(|c| !c.is_control());
        plain.take(MAX_SHOWN).collect()
    }
}

/// Returns true if the same request would fail again. Credentials may be replaced, so their errors
/// are not final.
const fn is_final(status: u16) -> bool {
    !matches!(status, 401 | 403 | 408 | 409 | 425 | 429 | 500..)
}

fn retry_after<T>(response: &Response<T>) -> Option<Duration> {
    let value = response.headers().get("retry-after")?.to_str().ok()?;
    let after = Duration::from_secs(value.parse().ok()?);
    Some(after.min(MAX_RETRY_AFTER))
}

/// Reads a file with a secret or a token.
pub(super) fn secret(path: &Path) -> Result<String, DeliveryError> {
    echo_http_client::secret(path).map_err(unusable)
}

/// The file may be replaced, so the error is transient.
fn unusable(error: FileError) -> DeliveryError {
    DeliveryError::transient(match &error {
        FileError::Unreadable { source, .. } => format!("{error}: {source}"),
        FileError::Empty { .. } => error.to_string(),
    })
}

/// Builds a request with a body of JSON.
pub(super) fn request(
    (method, url): (&str, &str),
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Result<Request<Vec<u8>>, DeliveryError> {
    let mut request = Request::builder()
        .method(method)
        .uri(url)
        .header("accept", "application/json")
        .header("user-agent", "fleet-echo");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request
        .body(body)
        .map_err(|error| DeliveryError::permanent(format!("invalid request: {error}")))
}
