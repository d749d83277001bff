//! Counters of the ingest path.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use echo_core::error::Code;
use echo_core::model::event::Event;
use echo_core::units::Nanos;
use echo_store::timings::seconds;
use prometheus_client::metrics::histogram::Histogram;

use super::decode::reject::{RejectReason, Rejections};

/// Counters of the ingest path since the start. All only grow, except the event age.
#[derive(Debug)]
pub struct IngestStats {
    requests: AtomicU64,
    bytes: AtomicU64,
    accepted: AtomicU64,
    duplicates: AtomicU64,
    rejected: [AtomicU64; RejectReason::ALL.len()],
    failed: [AtomicU64; Code::ALL.len()],
    acknowledgements: Histogram,
    event_age: AtomicI64,
}

impl Default for IngestStats {
    fn default() -> Self {
        Self {
            requests: AtomicU64::default(),
            bytes: AtomicU64::default(),
            accepted: AtomicU64::default(),
            duplicates: AtomicU64::default(),
            rejected: Default::default(),
            failed: Default::default(),
            acknowledgements: seconds(),
            event_age: AtomicI64::default(),
        }
    }
}

impl IngestStats {
    /// Returns the number of received requests.
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// Returns the size of request bodies after decompression, bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Returns the number of stored points.
    pub fn points_accepted(&self) -> u64 {
        self.accepted.load(Relaxed)
    }

    /// Returns the number of duplicate batches.
    pub fn duplicates(&self) -> u64 {
        self.duplicates.load(Relaxed)
    }

    /// Returns the number of points rejected for this reason.
    pub fn rejected(&self, reason: RejectReason) -> u64 {
        let place = reason as usize;
        self.rejected.get(place).map_or(0, |n| n.load(Relaxed))
    }

    /// Returns the number of requests that failed with this code.
    pub fn failed(&self, code: Code) -> u64 {
        let place = code as usize;
        self.failed.get(place).map_or(0, |n| n.load(Relaxed))
    }

    /// Returns the histogram of seconds from the complete arrival of a request to its
    /// acknowledgement.
    pub const fn acknowledgements(&self) -> &Histogram {
        &self.acknowledgements
    }

    /// Returns the age of the newest event of the last batch on arrival, by the clocks of sender
    /// and collector, nanoseconds.
    pub fn event_age_nanos(&self) -> i64 {
        self.event_age.load(Relaxed)
    }

    pub(super) fn count_events(&self, events: &[Event], received: Nanos) {
        let newest = events.iter().map(|event| event.timestamp).max();
        if let Some(newest) = newest {
            let age = received.value().saturating_sub(newest.value());
            self.event_age.store(age, Relaxed);
        }
    }

    /// Counts a request and returns its number since the start.
    pub(super) fn count_request(&self) -> u64 {
        self.requests.fetch_add(1, Relaxed) + 1
    }

    pub(super) fn count_bytes(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    pub(super) fn count_stored(&self, points: usize) {
        let points = u64::try_from(points).unwrap_or(u64::MAX);
        self.accepted.fetch_add(points, Relaxed);
    }

    pub(super) fn count_duplicate(&self) {
        self.duplicates.fetch_add(1, Relaxed);
    }

    pub(super) fn count_rejections(&self, rejections: &Rejections) {
        for (reason, count) in rejections.iter() {
            if let Some(counter) = self.rejected.get(reason as usize) {
                counter.fetch_add(count, Relaxed);
            }
        }
    }

    pub(super) fn count_failure(&self, code: Code) {
        if let Some(counter) = self.failed.get(code as usize) {
            counter.fetch_add(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use echo_core::error::Code;

    use super::IngestStats;

    #[test]
    fn failures_are_counted_by_kind() {
        let stats = IngestStats::default();
        for code in Code::ALL {
            stats.count_failure(code);
        }
        stats.count_failure(Code::Busy);
        assert_eq!(stats.failed(Code::Busy), 2);
        assert_eq!(stats.failed(Code::Internal), 1);
    }
}
