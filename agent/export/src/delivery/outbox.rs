//! Sending side of a delivery: a queue limited by the number of points, and a queue of verdicts.

use std::sync::Arc;

use fleet_agent_core::batch::{Batch, VerdictBatch};
use fleet_proto::policy::PolicySet;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::Instant;

use crate::now;
use crate::statement::Statement;
use crate::vitals::{Amount, Loss, Vitals};

/// Maximum number of queued verdict batches. A process changes its verdict every few blocks at
/// most.
const MAX_VERDICTS: usize = 64;

/// Behavior when the queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// Block the source, which a recording can.
    Wait,
    /// Drop and count the batch, as a live source must.
    Drop,
}

/// A batch in the queue.
#[derive(Debug)]
pub(crate) struct QueuedBatch {
    pub(crate) batch: Batch,
    pub(crate) queued_at: Instant,
    /// Share of the queue's capacity, released on drop.
    pub(crate) permit: OwnedSemaphorePermit,
}

/// Channels back to the source: the latest of what responses contained.
#[derive(Debug)]
pub(crate) struct Feedback {
    pub(crate) policy: watch::Sender<Option<Arc<PolicySet>>>,
    pub(crate) statements: watch::Sender<Option<Statement>>,
}

/// Receiving ends of an outbox, and the channels back to it.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// Queued batches, each with its permit.
    pub(crate) points: mpsc::Receiver<QueuedBatch>,
    pub(crate) verdicts: mpsc::Receiver<VerdictBatch>,
    pub(crate) feedback: Feedback,
}

/// Sending side of a delivery.
#[derive(Debug)]
pub struct Outbox {
    sender: mpsc::Sender<QueuedBatch>,
    verdicts: mpsc::Sender<VerdictBatch>,
    permits: Arc<Semaphore>,
    capacity: usize,
    when_full: WhenFull,
    is_full: bool,
    dropped: u64,
    batches_dropped: u64,
    verdicts_dropped: u64,
    policy: watch::Receiver<Option<Arc<PolicySet>>>,
    statements: watch::Receiver<Option<Statement>>,
    vitals: Arc<Vitals>,
}

impl Outbox {
    /// Creates an empty queue of at most `capacity` points.
    pub(crate) fn new(capacity: usize, when_full: WhenFull, vitals: &Arc<Vitals>) -> (Self, Inbox) {
        // Every batch holds at least one permit, so the semaphore is exhausted before the channel
        // is full.
        let capacity = capacity.clamp(1, Semaphore::MAX_PERMITS);
        let (sender, points) = mpsc::channel(capacity);
        let (verdict_sender, verdicts) = mpsc::channel(MAX_VERDICTS);
        let (publish, policy) = watch::channel(None);
        let (state, statements) = watch::channel(None);
        let outbox = Self {
            sender,
            verdicts: verdict_sender,
            permits: Arc::new(Semaphore::new(capacity)),
            capacity,
            when_full,
            is_full: false,
            dropped: 0,
            batches_dropped: 0,
            verdicts_dropped: 0,
            policy,
            statements,
            vitals: Arc::clone(vitals),
        };
        let inbox = Inbox {
            points,
            verdicts,
            feedback: Feedback {
                policy: publish,
                statements: state,
            },
        };
        (outbox, inbox)
    }

    /// Queues a batch; false when the delivery has ended.
    pub async fn send(&mut self, batch: Batch) -> bool {
        let points = batch.n_points();
        let n_permits = u32::try_from(points.clamp(1, self.capacity)).unwrap_or(u32::MAX);
        if let Some(permit) = self.acquire(n_permits).await {
            self.log_if_changed(false);
            let queued = QueuedBatch {
                batch,
                queued_at: now(),
                permit,
            };
            if self.sender.send(queued).await.is_ok() {
                return true;
            }
        }
        let has_ended = self.sender.is_closed();
        if !has_ended {
            self.log_if_changed(true);
        }
        let loss = if has_ended {
            Loss::Unsent
        } else {
            Loss::QueueFull
        };
        self.vitals.record_loss(loss, Amount::batch(points as u64));
        self.dropped += points as u64;
        self.batches_dropped += 1;
        !has_ended
    }

    /// Number of queued batches, without the one that is being sent.
    pub fn n_waiting(&self) -> usize {
        let capacity = self.sender.max_capacity();
        capacity.saturating_sub(self.sender.capacity())
    }

    /// Queues verdicts, or drops and counts them when the queue is full: verdicts never delay
    /// points.
    pub fn send_verdicts(&mut self, batch: VerdictBatch) {
        if let Err(full) = self.verdicts.try_send(batch) {
            let n_verdicts = full.into_inner().n_verdicts() as u64;
            self.vitals.record_lost_verdicts(n_verdicts);
            self.verdicts_dropped += n_verdicts;
        }
    }

    /// Returns the verdicts dropped because the queue was full or the delivery had ended.
    pub fn verdicts_dropped(&self) -> u64 {
        self.verdicts_dropped
    }

    async fn acquire(&self, n_permits: u32) -> Option<OwnedSemaphorePermit> {
        let permits = Arc::clone(&self.permits);
        match self.when_full {
            WhenFull::Wait => permits.acquire_many_owned(n_permits).await.ok(),
            WhenFull::Drop => permits.try_acquire_many_owned(n_permits).ok(),
        }
    }

    // Logs once when points start to be dropped, and once when that ends.
    fn log_if_changed(&mut self, is_full: bool) {
        if !is_full && self.is_full {
            let points = self.dropped;
            tracing::info!(
                points,
                "queue has capacity again; {points} points were dropped"
            );
        } else if is_full && !self.is_full {
            let capacity = self.capacity;
            tracing::warn!(
                capacity,
                "queue is full ({capacity} points): new points are dropped"
            );
        }
        self.is_full = is_full;
    }

    /// Returns the newest policy set, if it arrived since the previous call.
    pub fn new_policy(&mut self) -> Option<Arc<PolicySet>> {
        if self.policy.has_changed().unwrap_or(false) {
            self.policy.borrow_and_update().clone()
        } else {
            None
        }
    }

    /// Returns the statements about the host, one with each response.
    pub fn statements(&self) -> watch::Receiver<Option<Statement>> {
        self.statements.clone()
    }

    /// Returns the points dropped because the queue was full or the delivery had ended.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the batches of those points.
    pub fn batches_dropped(&self) -> u64 {
        self.batches_dropped
    }
}
