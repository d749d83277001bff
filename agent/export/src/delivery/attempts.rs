//! Retries of a batch, with backoff and a limit.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use tokio::time::Instant;

use crate::{Ack, ExportError, now};

const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(5);
/// Longest delay that is honored when a receiver requests one.
const LONGEST_ASKED: Duration = Duration::from_mins(1);

/// Exponential backoff between attempts, without a limit on their number.
pub(crate) fn backoff() -> ExponentialBuilder {
    ExponentialBuilder::new()
        .with_min_delay(FIRST_DELAY)
        .with_max_delay(LONGEST_DELAY)
        .with_jitter()
        .without_max_times()
}

/// Sends a batch until it is accepted, refused, or the retry limit has passed.
pub(super) async fn attempts<F, T>(
    give_up_after: Duration,
    number: u64,
    attempt: F,
) -> (Result<Ack, ExportError>, u64)
where
    F: FnMut() -> T,
    T: Future<Output = Result<Ack, ExportError>>,
{
    let mut patience = Patience::new(give_up_after);
    let mut retries = 0;
    let delivered = attempt
        .retry(backoff())
        .when(|error| matches!(error, ExportError::Later { .. }))
        .adjust(|error, delay| Some(patience.cut(delay?)?.max(asked_delay(error))))
        .notify(|error, delay| {
            retries += 1;
            log_retry(number, retries, error, delay);
        })
        .await;
    (delivered, retries)
}

/// Retry limit of a batch, counted from its first failure.
#[derive(Debug)]
struct Patience {
    give_up_after: Duration,
    first_failure: Option<Instant>,
}

impl Patience {
    fn new(give_up_after: Duration) -> Self {
        Self {
            give_up_after,
            first_failure: None,
        }
    }

    /// Returns the delay before the next attempt, shortened so that the last attempt is at the
    /// limit; none after that.
    fn cut(&mut self, delay: Duration) -> Option<Duration> {
        let first_failure = *self.first_failure.get_or_insert_with(now);
        let left = self.give_up_after.saturating_sub(first_failure.elapsed());
        (!left.is_zero()).then_some(delay.min(left))
    }
}

/// Delay that the receiver requests, up to a maximum.
pub(crate) fn asked_delay(error: &ExportError) -> Duration {
    match error {
        ExportError::Later { after, .. } => after.unwrap_or_default().min(LONGEST_ASKED),
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
