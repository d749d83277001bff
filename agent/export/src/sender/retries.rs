//! Unlimited retries with exponential backoff.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff};
use tokio::time::{Instant, sleep_until};

use crate::delivery::attempts::{backoff, log_retry, requested_delay};
use crate::encoded::EncodedBatch;
use crate::vitals::Vitals;
use crate::{Ack, ExportError, Forward, now};

/// State of the retries; it spans batches, since it is about the receiver.
#[derive(Debug)]
pub(super) struct Retries {
    delays: ExponentialBackoff,
    not_before: Option<Instant>,
    failures: u64,
    vitals: Arc<Vitals>,
}

impl Retries {
    pub(super) fn new(vitals: &Arc<Vitals>) -> Self {
        Self {
            delays: backoff().build(),
            not_before: None,
            failures: 0,
            vitals: Arc::clone(vitals),
        }
    }

    /// Sends a batch until it is accepted, or refused for the returned reason. Dropping the future
    /// cancels the attempt in flight.
    pub(super) async fn deliver<E: Forward>(
        &mut self,
        exporter: &E,
        batch: &EncodedBatch,
    ) -> Result<Ack, String> {
        loop {
            if let Some(at) = self.not_before {
                sleep_until(at).await;
                self.vitals.record_retry();
            }
            let answer = exporter.forward(batch).await;
            match answer {
                Ok(ack) => {
                    self.reset();
                    return Ok(ack);
                }
                Err(ExportError::Refused { reason }) => {
                    self.reset();
                    return Err(reason);
                }
                Err(error) => self.record_failure(batch.number, &error),
            }
        }
    }

    fn record_failure(&mut self, number: u64, error: &ExportError) {
        self.vitals.set_disconnected();
        self.failures += 1;
        let delay = self.delays.next().unwrap_or_default();
        let delay = delay.max(requested_delay(error));
        log_retry(number, self.failures, error, delay);
        self.not_before = now().checked_add(delay);
    }

    fn reset(&mut self) {
        self.vitals.set_connected();
        if self.failures > 0 {
            let failures = self.failures;
            tracing::info!(
                failures,
                "batches are accepted again after {failures} failures"
            );
        }
        self.failures = 0;
        self.not_before = None;
        self.delays = backoff().build();
    }
}

/// Time for which a full spool does not evict the batch that is being sent: long enough for an
/// acknowledgement, and short enough that a batch which is never answered does not block all
/// others.
pub(super) const PROTECTED_FOR: Duration = Duration::from_mins(1);
