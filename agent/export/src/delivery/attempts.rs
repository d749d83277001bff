//! Retries of a batch, with backoff and a limit.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use tokio::time::Instant;

use crate::otlp::status::has_advice;
use crate::{Ack, ExportError, now};

const MIN_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(5);
/// Longest delay that is honored when a receiver requests one.
const MAX_REQUESTED_DELAY: Duration = Duration::from_mins(1);

/// Exponential backoff between attempts, without a limit on their number.
pub(crate) fn backoff() -> ExponentialBuilder {
    ExponentialBuilder::new()
        .with_min_delay(MIN_DELAY)
        .with_max_delay(MAX_DELAY)
        .with_jitter()
        .without_max_times()
}

/// Sends a batch until it is accepted, refused, or the retry limit has passed. The reason of the last
/// failure is the one of an earlier attempt if that tells what to do: a peer with another scheme also
/// closes connections without an answer.
pub(super) async fn deliver_with_retries<F, T>(
    give_up_after: Duration,
    number: u64,
    attempt: F,
) -> (Result<Ack, ExportError>, u64)
where
    F: FnMut() -> T,
    T: Future<Output = Result<Ack, ExportError>>,
{
    let mut limit = RetryLimit::new(give_up_after);
    let mut retries = 0;
    let mut advised = None;
    let mut delivered = attempt
        .retry(backoff())
        .when(|error| matches!(error, ExportError::Later { .. }))
        .adjust(|error, delay| Some(limit.next_delay(delay?)?.max(requested_delay(error))))
        .notify(|error, delay| {
            retries += 1;
            if let ExportError::Later { reason, .. } = error
                && has_advice(reason)
            {
                advised = Some(reason.clone());
            }
            log_retry(number, retries, error, delay);
        })
        .await;
    if let Err(ExportError::Later { reason, .. }) = &mut delivered
        && !has_advice(reason)
        && let Some(advised) = advised
    {
        *reason = advised;
    }
    (delivered, retries)
}

/// Retry limit of a batch, counted from its first failure.
#[derive(Debug)]
struct RetryLimit {
    give_up_after: Duration,
    first_failure: Option<Instant>,
}

impl RetryLimit {
    fn new(give_up_after: Duration) -> Self {
        Self {
            give_up_after,
            first_failure: None,
        }
    }

    /// Returns the delay before the next attempt, shortened so that the last attempt is at the
    /// limit; none after that.
    fn next_delay(&mut self, delay: Duration) -> Option<Duration> {
        let first_failure = *self.first_failure.get_or_insert_with(now);
        let left = self.give_up_after.saturating_sub(first_failure.elapsed());
        (!left.is_zero()).then_some(delay.min(left))
    }
}

/// Delay that the receiver requests, up to a maximum.
pub(crate) fn requested_delay(error: &ExportError) -> Duration {
    match error {
        ExportError::Later { after, .. } => after.unwrap_or_default().min(MAX_REQUESTED_DELAY),
        ExportError::Refused { .. } => Duration::ZERO,
    }
}

/// Logs the first failure as a warning and the following ones for debugging.
pub(crate) fn log_retry(number: u64, retries: u64, error: &ExportError, delay: Duration) {
    let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
    if retries == 1 {
        tracing::warn!(
            batch.number = number,
            delay_ms,
            "batch not accepted, retrying: {error}"
        );
    } else {
        tracing::debug!(
            batch.number = number,
            delay_ms,
            retries,
            "batch not accepted: {error}"
        );
    }
}
