//! Counters over the points of all agents.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fleet_agent_core::batch::{Batch, VerdictBatch};
use fleet_agent_export::{Ack, Export, ExportError};
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use tokio::time::Instant;

use crate::simulate::clock::now;
use crate::simulate::summary::{AckTimes, Summary};

/// Number of failures counted separately; further ones are counted together.
const MAX_FAILURES: usize = 16;
/// Upper limit of the histogram of acknowledgement times, microseconds.
const LONGEST_US: u64 = 3_600_000_000;

/// Counters shared by all agents.
#[derive(Debug, Default)]
pub(super) struct Counters {
    made: AtomicU64,
    reached_ns: AtomicU64,
    received: Mutex<AckCounts>,
}

#[derive(Debug)]
struct AckCounts {
    points: u64,
    /// Microseconds; none if the histogram cannot be created.
    times: Option<Histogram<u64>>,
    failures: BTreeMap<String, u64>,
}

impl Default for AckCounts {
    fn default() -> Self {
        Self {
            points: 0,
            times: Histogram::new_with_max(LONGEST_US, 3).ok(),
            failures: BTreeMap::new(),
        }
    }
}

impl Counters {
    /// Counts the points of a closed batch.
    pub(super) fn record_points(&self, points: u64) {
        self.made.fetch_add(points, Ordering::Relaxed);
    }

    /// Records that the job has reached `job_ns`, nanoseconds since its start.
    pub(super) fn advance(&self, job_ns: u64) {
        self.reached_ns.fetch_max(job_ns, Ordering::Relaxed);
    }

    /// Shows the progress of the job and of its points.
    pub(super) fn show(&self, progress: &ProgressBar) {
        let made = self.made.load(Ordering::Relaxed);
        let (points, failures) = {
            let received = self.received();
            (received.points, received.failures.values().sum::<u64>())
        };
        progress.set_position(self.reached_ns.load(Ordering::Relaxed));
        progress.set_message(format!(
            "{points} of {made} points acknowledged, {failures} attempts failed"
        ));
    }

    /// Writes the counters to the summary.
    pub(super) fn fill(&self, summary: &mut Summary) {
        let received = self.received();
        summary.points_created = self.made.load(Ordering::Relaxed);
        summary.failures = received.failures.clone();
        summary.acks = received.times.as_ref().and_then(AckTimes::from_histogram);
    }

    fn record_ack(&self, points: u64, took: Option<Duration>) {
        let mut received = self.received();
        received.points += points;
        if let (Some(took), Some(times)) = (took, &mut received.times) {
            times.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        }
    }

    /// Counts a failed attempt by the first word of its reason, which is the status code.
    fn record_failure(&self, reason: &str) {
        let mut received = self.received();
        let code = reason.split(':').next().unwrap_or(reason);
        let is_known = received.failures.contains_key(code);
        let has_capacity = received.failures.len() < MAX_FAILURES;
        let code = if is_known || has_capacity {
            code
        } else {
            "other"
        };
        *received.failures.entry(code.to_owned()).or_default() += 1;
    }

    // Counts before a panic in another thread are still valid.
    fn received(&self) -> MutexGuard<'_, AckCounts> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Batches of one agent that are not acknowledged, by number, with the time at which each was
/// closed.
#[derive(Debug, Default)]
pub(super) struct UnackedBatches(Mutex<BTreeMap<u64, Instant>>);

impl UnackedBatches {
    /// Adds a batch that was closed.
    pub(super) fn insert(&self, number: u64) {
        self.batches().insert(number, now());
    }

    /// Removes a batch that was acknowledged or dropped; returns its age.
    pub(super) fn remove(&self, number: u64) -> Option<Duration> {
        let closed_at = self.batches().remove(&number)?;
        Some(now().saturating_duration_since(closed_at))
    }

    fn batches(&self) -> MutexGuard<'_, BTreeMap<u64, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Exporter that counts the results of another one.
#[derive(Debug)]
pub(super) struct CountingExporter<E> {
    pub(super) inner: E,
    pub(super) counters: Arc<Counters>,
    pub(super) unacked: Arc<UnackedBatches>,
}

impl<E: Export> Export for CountingExporter<E> {
    async fn export(&self, batch: &Batch) -> Result<Ack, ExportError> {
        let sent = self.inner.export(batch).await;
        match &sent {
            Ok(_) => {
                let took = self.unacked.remove(batch.number);
                self.counters.record_ack(batch.n_points() as u64, took);
            }
            Err(ExportError::Later { reason, .. }) => self.counters.record_failure(reason),
            Err(ExportError::Refused { reason }) => {
                let _took = self.unacked.remove(batch.number);
                self.counters.record_failure(reason);
            }
        }
        sent
    }

    async fn export_verdicts(&self, batch: &VerdictBatch) -> Result<Ack, ExportError> {
        self.inner.export_verdicts(batch).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_timed_from_its_closing_over_all_attempts() {
        let (counters, unacked) = (Counters::default(), UnackedBatches::default());
        unacked.insert(1);
        tokio::time::advance(Duration::from_millis(30)).await;
        counters.record_failure("Unavailable: not yet");
        tokio::time::advance(Duration::from_millis(70)).await;
        counters.record_ack(9, unacked.remove(1));
        let mut summary = Summary::default();
        counters.fill(&mut summary);
        let acks = summary.acks.unwrap();
        assert!((99.0..101.0).contains(&acks.p50_ms), "{acks:?}");
        assert_eq!(summary.failures["Unavailable"], 1);
        assert_eq!(unacked.remove(1), None);
    }
}
