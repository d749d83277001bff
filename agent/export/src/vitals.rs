//! Counters of the delivery of an agent's points, readable at any time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::now;

/// Reason that points were lost on this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loss {
    /// The queue in memory was full.
    QueueFull,
    /// The spool was full: the oldest batches were evicted, or a batch was larger than the limit.
    SpoolFull,
    /// The spool could not be written.
    SpoolBroken,
    /// The receiver refused them.
    Refused,
    /// They were in memory when the agent ended.
    Unsent,
}

impl Loss {
    /// All reasons.
    pub const ALL: [Self; 5] = [
        Self::QueueFull,
        Self::SpoolFull,
        Self::SpoolBroken,
        Self::Refused,
        Self::Unsent,
    ];

    /// Returns its name as a metric attribute.
    pub fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::SpoolFull => "spool_full",
            Self::SpoolBroken => "spool_broken",
            Self::Refused => "refused",
            Self::Unsent => "unsent",
        }
    }
}

/// Number of batches and of their points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amount {
    /// Batches.
    pub batches: u64,
    /// Points.
    pub points: u64,
}

impl Amount {
    /// Returns one batch of `points` points.
    pub fn batch(points: u64) -> Self {
        Self { batches: 1, points }
    }

    /// Adds another amount.
    pub fn add(&mut self, other: Self) {
        self.batches += other.batches;
        self.points += other.points;
    }
}

/// Values of the counters at one moment. All but those marked "now" only increase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Batches acknowledged.
    pub sent: Amount,
    /// Points among them that the receiver rejected.
    pub points_rejected: u64,
    /// Losses on this side, for every reason.
    pub lost: BTreeMap<Loss, Amount>,
    /// Failed attempts that were retried.
    pub retries: u64,
    /// Batches in the spool now.
    pub spooled_batches: u64,
    /// Size of the spool now, bytes in whole blocks of 4 KiB.
    pub spooled_bytes: u64,
    /// Spool files that were damaged, or are not this agent's.
    pub damaged_files: u64,
    /// Self-verdicts acknowledged.
    pub verdicts_sent: u64,
    /// Self-verdicts among them that the receiver rejected.
    pub verdicts_rejected: u64,
    /// Self-verdicts refused as a whole or dropped.
    pub verdicts_lost: u64,
    /// Time since the last acknowledgement of points now, if there was one.
    pub since_ack: Option<Duration>,
    /// True now if the receiver responded to the last attempt with anything but a transient error.
    pub is_connected: bool,
}

impl Snapshot {
    /// Returns the sum of all losses on this side.
    pub fn total_lost(&self) -> Amount {
        let mut all = Amount::default();
        for amount in self.lost.values() {
            all.add(*amount);
        }
        all
    }
}

#[derive(Debug, Default)]
struct Counter {
    batches: AtomicU64,
    points: AtomicU64,
}

impl Counter {
    fn add(&self, amount: Amount) {
        self.batches.fetch_add(amount.batches, Ordering::Relaxed);
        self.points.fetch_add(amount.points, Ordering::Relaxed);
    }

    fn read(&self) -> Amount {
        Amount {
            batches: self.batches.load(Ordering::Relaxed),
            points: self.points.load(Ordering::Relaxed),
        }
    }
}

/// Counters of one agent instance.
#[derive(Debug)]
pub struct Vitals {
    started: Instant,
    /// Milliseconds from the start to the last acknowledgement plus one; 0 before the first.
    acked_ms: AtomicU64,
    is_connected: AtomicBool,
    sent: Counter,
    queue_full: Counter,
    spool_full: Counter,
    spool_broken: Counter,
    refused: Counter,
    unsent: Counter,
    points_rejected: AtomicU64,
    retries: AtomicU64,
    spooled_batches: AtomicU64,
    spooled_bytes: AtomicU64,
    damaged_files: AtomicU64,
    verdicts_sent: AtomicU64,
    verdicts_rejected: AtomicU64,
    verdicts_lost: AtomicU64,
}

impl Default for Vitals {
    fn default() -> Self {
        Self {
            started: now(),
            acked_ms: AtomicU64::default(),
            is_connected: AtomicBool::default(),
            sent: Counter::default(),
            queue_full: Counter::default(),
            spool_full: Counter::default(),
            spool_broken: Counter::default(),
            refused: Counter::default(),
            unsent: Counter::default(),
            points_rejected: AtomicU64::default(),
            retries: AtomicU64::default(),
            spooled_batches: AtomicU64::default(),
            spooled_bytes: AtomicU64::default(),
            damaged_files: AtomicU64::default(),
            verdicts_sent: AtomicU64::default(),
            verdicts_rejected: AtomicU64::default(),
            verdicts_lost: AtomicU64::default(),
        }
    }
}

impl Vitals {
    /// Returns all counters now.
    pub fn read(&self) -> Snapshot {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let acked_ms = load(&self.acked_ms).checked_sub(1);
        let since_ack = acked_ms.map(|acked_ms| {
            let acked = Duration::from_millis(acked_ms);
            self.started.elapsed().saturating_sub(acked)
        });
        let lost = Loss::ALL.map(|loss| (loss, self.counter(loss).read()));
        Snapshot {
            sent: self.sent.read(),
            points_rejected: load(&self.points_rejected),
            lost: BTreeMap::from(lost),
            retries: load(&self.retries),
            spooled_batches: load(&self.spooled_batches),
            spooled_bytes: load(&self.spooled_bytes),
            damaged_files: load(&self.damaged_files),
            verdicts_sent: load(&self.verdicts_sent),
            verdicts_rejected: load(&self.verdicts_rejected),
            verdicts_lost: load(&self.verdicts_lost),
            since_ack,
            is_connected: self.is_connected.load(Ordering::Relaxed),
        }
    }

    pub(super) fn record_ack(&self, points: u64, rejected: u64) {
        let elapsed_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let acked_ms = elapsed_ms.saturating_add(1);
        self.acked_ms.store(acked_ms, Ordering::Relaxed);
        self.sent.add(Amount::batch(points));
        self.points_rejected.fetch_add(rejected, Ordering::Relaxed);
        self.set_connected();
    }

    pub(super) fn set_connected(&self) {
        self.is_connected.store(true, Ordering::Relaxed);
    }

    pub(super) fn set_disconnected(&self) {
        self.is_connected.store(false, Ordering::Relaxed);
    }

    pub(super) fn record_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn record_loss(&self, loss: Loss, amount: Amount) {
        self.counter(loss).add(amount);
    }

    pub(super) fn set_spooled(&self, batches: u64, bytes: u64) {
        self.spooled_batches.store(batches, Ordering::Relaxed);
        self.spooled_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn record_damaged_files(&self, files: u64) {
        self.damaged_files.fetch_add(files, Ordering::Relaxed);
    }

    pub(super) fn record_verdicts(&self, verdicts: u64, rejected: u64) {
        self.verdicts_sent.fetch_add(verdicts, Ordering::Relaxed);
        self.verdicts_rejected
            .fetch_add(rejected, Ordering::Relaxed);
    }

    pub(super) fn record_lost_verdicts(&self, verdicts: u64) {
        self.verdicts_lost.fetch_add(verdicts, Ordering::Relaxed);
    }

    fn counter(&self, loss: Loss) -> &Counter {
        match loss {
            Loss::QueueFull => &self.queue_full,
            Loss::SpoolFull => &self.spool_full,
            Loss::SpoolBroken => &self.spool_broken,
            Loss::Refused => &self.refused,
            Loss::Unsent => &self.unsent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_time_since_the_last_acknowledgement_is_known_after_the_first() {
        let vitals = Vitals::default();
        assert_eq!(vitals.read().since_ack, None);
        vitals.record_ack(5, 1);
        tokio::time::advance(Duration::from_secs(7)).await;
        let snapshot = vitals.read();
        assert_eq!(snapshot.since_ack, Some(Duration::from_secs(7)));
        assert_eq!(
            (snapshot.sent, snapshot.points_rejected),
            (Amount::batch(5), 1)
        );
        assert!(snapshot.is_connected);
        vitals.set_disconnected();
        assert!(!vitals.read().is_connected);
    }

    #[tokio::test(start_paused = true)]
    async fn every_loss_reason_has_its_own_count_and_name() {
        let vitals = Vitals::default();
        for (loss, points) in Loss::ALL.into_iter().zip(1..) {
            vitals.record_loss(loss, Amount::batch(points));
        }
        let snapshot = vitals.read();
        let points: Vec<u64> = snapshot.lost.values().map(|amount| amount.points).collect();
        assert_eq!(points, [1, 2, 3, 4, 5]);
        let all = Amount {
            batches: 5,
            points: 15,
        };
        assert_eq!(snapshot.total_lost(), all);
        let mut names = Loss::ALL.map(Loss::name).to_vec();
        names.dedup();
        assert_eq!(names.len(), 5);
    }
}
