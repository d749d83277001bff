//! Delivery of one agent instance: a bounded queue, one batch in flight, retries in order; and beside it a lane
//! for the verdicts of the processes, which holds nothing up.

pub mod report;
pub mod verdicts;

use std::sync::Arc;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use fleet_proto::policy::PolicySet;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::Instant;

use crate::export::delivery::report::Report;
use crate::export::delivery::verdicts::VerdictLane;
use crate::export::{Ack, Batch, Export, ExportError, VerdictBatch};
use crate::policy::PolicyNews;

const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(5);
/// Longest delay that a receiver may ask for.
const LONGEST_ASKED: Duration = Duration::from_mins(1);

/// The receiver was not reached for as long as it was worth trying.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("gave up after {retries} retries: {reason}")]
pub struct Unreachable {
    /// Attempts after the first, of the batch that was given up.
    pub retries: u64,
    /// What the last attempt said.
    pub reason: String,
}

/// What to do with a batch when the queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// Let the source wait, as a recording can.
    Wait,
    /// Drop and count it, as a live source must.
    Drop,
}

/// The sending side of a delivery.
#[derive(Debug)]
pub struct Outbox {
    sender: mpsc::Sender<(Batch, OwnedSemaphorePermit)>,
    verdicts: mpsc::Sender<VerdictBatch>,
    room: Arc<Semaphore>,
    capacity: usize,
    when_full: WhenFull,
    dropped: u64,
    batches_dropped: u64,
    verdicts_dropped: u64,
    policy: watch::Receiver<Option<Arc<PolicySet>>>,
}

impl Outbox {
    /// Queues a batch; false when the delivery has ended.
    pub async fn send(&mut self, batch: Batch) -> bool {
        let points = batch.n_points();
        let permits = u32::try_from(points.clamp(1, self.capacity)).unwrap_or(u32::MAX);
        if let Some(permit) = self.room_for(permits).await
            && self.sender.send((batch, permit)).await.is_ok()
        {
            return true;
        }
        self.dropped += points as u64;
        self.batches_dropped += 1;
        !self.sender.is_closed()
    }

    /// Queues verdicts, or drops and counts them when too many wait: a verdict never holds up points.
    pub fn tell(&mut self, batch: VerdictBatch) {
        if let Err(full) = self.verdicts.try_send(batch) {
            self.verdicts_dropped += full.into_inner().n_verdicts() as u64;
        }
    }

    /// Verdicts dropped because too many waited or the delivery had ended.
    pub fn verdicts_dropped(&self) -> u64 {
        self.verdicts_dropped
    }

    async fn room_for(&self, permits: u32) -> Option<OwnedSemaphorePermit> {
        let room = Arc::clone(&self.room);
        match self.when_full {
            WhenFull::Wait => room.acquire_many_owned(permits).await.ok(),
            WhenFull::Drop => room.try_acquire_many_owned(permits).ok(),
        }
    }

    /// The newest policy set, if it came since the last call.
    pub fn new_policy(&mut self) -> Option<Arc<PolicySet>> {
        if self.policy.has_changed().unwrap_or(false) {
            self.policy.borrow_and_update().clone()
        } else {
            None
        }
    }

    /// Points dropped because the queue was full or the delivery had ended.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The batches that they were in.
    pub fn batches_dropped(&self) -> u64 {
        self.batches_dropped
    }
}

/// The receiving side: takes batches from the queues and brings them to the exporter.
#[derive(Debug)]
pub struct Delivery<E> {
    exporter: E,
    points: PointLane,
    verdicts: VerdictLane,
}

impl<E: Export> Delivery<E> {
    /// A queue of at most `capacity` points in front of `exporter`.
    pub fn new(
        exporter: E,
        capacity: usize,
        when_full: WhenFull,
        give_up_after: Duration,
    ) -> (Outbox, Self) {
        // Every batch holds at least one permit, so the channel never fills before the semaphore.
        let capacity = capacity.clamp(1, Semaphore::MAX_PERMITS);
        let (sender, queue) = mpsc::channel(capacity);
        let (publish, policy) = watch::channel(None);
        let room = Arc::new(Semaphore::new(capacity));
        let (verdict_sender, verdicts) = VerdictLane::new(give_up_after);
        let outbox = Outbox {
            sender,
            verdicts: verdict_sender,
            room,
            capacity,
            when_full,
            dropped: 0,
            batches_dropped: 0,
            verdicts_dropped: 0,
            policy,
        };
        let points = PointLane {
            give_up_after,
            queue,
            policy: publish,
            news: PolicyNews::default(),
            report: Report::default(),
        };
        (
            outbox,
            Self {
                exporter,
                points,
                verdicts,
            },
        )
    }

    /// Delivers until the outbox is gone and the queues are empty, or the receiver is given up.
    pub async fn run(self) -> (Report, Option<Unreachable>) {
        let Self {
            exporter,
            mut points,
            mut verdicts,
        } = self;
        let unreachable = {
            let mut telling = Box::pin(verdicts.run(&exporter));
            let mut sending = Box::pin(points.run(&exporter));
            tokio::select! {
                unreachable = &mut sending => {
                    // A receiver that takes no points is not worth the patience that verdicts have of their own.
                    if unreachable.is_none() {
                        telling.await;
                    }
                    unreachable
                }
                () = &mut telling => sending.await,
            }
        };
        points.report.verdicts = verdicts.conclude();
        points.report.policy_version = points.news.version();
        (points.report, unreachable)
    }
}

/// The lane of the points.
#[derive(Debug)]
struct PointLane {
    give_up_after: Duration,
    queue: mpsc::Receiver<(Batch, OwnedSemaphorePermit)>,
    policy: watch::Sender<Option<Arc<PolicySet>>>,
    news: PolicyNews,
    report: Report,
}

impl PointLane {
    async fn run<E: Export>(&mut self, exporter: &E) -> Option<Unreachable> {
        let mut unreachable = None;
        while let Some((batch, _room)) = self.queue.recv().await {
            if unreachable.is_some() {
                self.report.gave_up(batch.n_points() as u64);
                continue;
            }
            unreachable = self.deliver(exporter, &batch).await;
            if unreachable.is_some() {
                self.queue.close();
            }
        }
        unreachable
    }

    async fn deliver<E: Export>(&mut self, exporter: &E, batch: &Batch) -> Option<Unreachable> {
        let (delivered, retries) =
            attempts(self.give_up_after, batch.number, || exporter.export(batch)).await;
        self.report.retries += retries;
        let points = batch.n_points() as u64;
        match delivered {
            Ok(ack) => {
                self.acknowledged(points, ack);
                None
            }
            Err(ExportError::Refused { reason }) => {
                tracing::error!(batch.number, points, "batch was refused: {reason}");
                self.report.gave_up(points);
                self.report.refuse(&reason, points);
                self.report.refusal.get_or_insert(reason);
                None
            }
            Err(ExportError::Later { reason, .. }) => {
                self.report.gave_up(points);
                Some(Unreachable { retries, reason })
            }
        }
    }

    fn acknowledged(&mut self, points: u64, ack: Ack) {
        self.report.batches_acked += 1;
        self.report.points_sent += points;
        self.report.points_rejected += ack.rejected;
        if ack.rejected > 0 {
            self.report.batches_rejected += 1;
            self.report.refuse(&ack.reason, ack.rejected);
        }
        if let Some(policy) = ack.policy {
            for line in self.news.of(&policy) {
                tracing::info!("{line}");
            }
            self.policy.send_replace(Some(Arc::new(policy)));
        }
    }
}

/// Tries to deliver a batch until it is taken, refused, or not worth trying any more; with the attempts after the first.
async fn attempts<F, T>(
    give_up_after: Duration,
    number: u64,
    attempt: F,
) -> (Result<Ack, ExportError>, u64)
where
    F: FnMut() -> T,
    T: Future<Output = Result<Ack, ExportError>>,
{
    let backoff = ExponentialBuilder::new()
        .with_min_delay(FIRST_DELAY)
        .with_max_delay(LONGEST_DELAY)
        .with_jitter()
        .without_max_times();
    let mut patience = Patience::new(give_up_after);
    let mut retries = 0;
    let delivered = attempt
        .retry(backoff)
        .when(|error| matches!(error, ExportError::Later { .. }))
        .adjust(|error, delay| Some(patience.cut(delay?)?.max(asked_delay(error))))
        .notify(|error, delay| {
            retries += 1;
            log_retry(number, retries, error, delay);
        })
        .await;
    (delivered, retries)
}

/// How long a batch is still worth trying, from its first failure on.
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

    /// The delay before the next attempt, cut so that the last one comes when patience ends; none
    /// after that.
    #[expect(
        clippy::disallowed_methods,
        reason = "the runtime's time, which tests can pause, also passes during an attempt"
    )]
    fn cut(&mut self, delay: Duration) -> Option<Duration> {
        let first_failure = *self.first_failure.get_or_insert_with(Instant::now);
        let left = self.give_up_after.saturating_sub(first_failure.elapsed());
        (!left.is_zero()).then_some(delay.min(left))
    }
}

fn asked_delay(error: &ExportError) -> Duration {
    match error {
        ExportError::Later { after, .. } => after.unwrap_or_default().min(LONGEST_ASKED),
        ExportError::Refused { .. } => Duration::ZERO,
    }
}

// The first failure is news, the following ones are the same news again.
fn log_retry(number: u64, retries: u64, error: &ExportError, delay: Duration) {
    let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
    if retries == 1 {
        tracing::warn!(
            batch.number = number,
            delay_ms,
            "batch was not taken and is sent again: {error}"
        );
    } else {
        tracing::debug!(
            batch.number = number,
            delay_ms,
            retries,
            "batch was not taken: {error}"
        );
    }
}

#[cfg(test)]
mod tests;
