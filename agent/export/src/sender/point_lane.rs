//! Delivery of points: sends the oldest batch until it is answered; the spool comes next, then the
//! queue in memory.

use std::pin::{Pin, pin};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, sleep_until};

use crate::delivery::acknowledgement::AckTracker;
use crate::delivery::outbox::QueuedBatch;
use crate::encoded::EncodedBatch;
use crate::sender::retries::{PROTECTED_FOR, Retries};
use crate::sender::spool_worker::SpoolWorker;
use crate::vitals::{Amount, Loss};
use crate::{Ack, Forward, now};

/// State of the delivery of points.
#[derive(Debug)]
pub(super) struct PointLane {
    pub(super) queue: mpsc::Receiver<QueuedBatch>,
    pub(super) acks: AckTracker,
    pub(super) spool: SpoolWorker,
    pub(super) retries: Retries,
    pub(super) spool_after: Duration,
}

/// Batch that is being sent.
#[derive(Debug)]
struct Head {
    batch: EncodedBatch,
    /// Its sequence number in the spool, if it is spooled.
    sequence: Option<u64>,
    /// Time at which it is spooled.
    spool_at: Instant,
    /// Time until which a full spool does not evict it.
    protected_until: Instant,
    /// Its permit in the queue, released when it is answered.
    _permit: Option<OwnedSemaphorePermit>,
}

/// Outcome of sending a batch.
enum Outcome {
    /// It was accepted or refused.
    Answered(Result<Ack, String>),
    /// It was evicted from the spool for newer batches.
    Evicted,
    /// The deadline has passed.
    DeadlinePassed,
}

impl PointLane {
    /// Sends until the queue is closed and everything is sent, or until the deadline; what
    /// is left is then spooled.
    pub(super) async fn run<E: Forward>(
        &mut self,
        exporter: &E,
        deadline: impl Future<Output = ()>,
    ) {
        let mut deadline = pin!(deadline);
        while let Some(head) = self.next(exporter, deadline.as_mut()).await {
            match self.send_head(exporter, &head, deadline.as_mut()).await {
                (Outcome::Answered(answer), sequence) => {
                    self.record_answer(&head.batch, sequence, answer).await;
                }
                (Outcome::Evicted, _) => {}
                (Outcome::DeadlinePassed, sequence) => {
                    if sequence.is_none() {
                        self.spool_or_drop(head.batch).await;
                    }
                    break;
                }
            }
        }
        self.queue.close();
        while let Some(queued) = self.queue.recv().await {
            self.spool_or_drop(exporter.encode(&queued.batch)).await;
        }
    }

    /// Returns the oldest batch; none when there are no more, or after the deadline.
    async fn next<E: Forward>(
        &mut self,
        exporter: &E,
        deadline: Pin<&mut impl Future<Output = ()>>,
    ) -> Option<Head> {
        let now = now();
        if let Some((sequence, batch)) = self.spool.front(&mut self.acks).await {
            return Some(Head {
                batch,
                sequence: Some(sequence),
                spool_at: now,
                protected_until: later(now, PROTECTED_FOR),
                _permit: None,
            });
        }
        tokio::select! {
            biased;
            () = deadline => None,
            next = self.queue.recv() => {
                let queued = next?;
                Some(Head {
                    batch: exporter.encode(&queued.batch),
                    sequence: None,
                    spool_at: later(queued.queued_at, self.spool_after),
                    protected_until: later(now, PROTECTED_FOR),
                    _permit: Some(queued.permit),
                })
            }
        }
    }

    /// Sends the batch, and meanwhile spools those that follow once it has waited too long. Returns
    /// the outcome and the batch's sequence number in the spool.
    async fn send_head<E: Forward>(
        &mut self,
        exporter: &E,
        head: &Head,
        mut deadline: Pin<&mut impl Future<Output = ()>>,
    ) -> (Outcome, Option<u64>) {
        let Self {
            queue,
            acks,
            spool,
            retries,
            ..
        } = self;
        let mut sequence = head.sequence;
        let (mut is_spooling, mut has_ended) = (sequence.is_some(), false);
        let mut sending = pin!(retries.deliver(exporter, &head.batch));
        let mut spool_time = pin!(sleep_until(head.spool_at));
        let outcome = loop {
            tokio::select! {
                biased;
                answer = &mut sending => break Outcome::Answered(answer),
                () = &mut deadline => break Outcome::DeadlinePassed,
                () = &mut spool_time, if !is_spooling && spool.is_enabled() => {
                    is_spooling = true;
                    sequence = spool.push(acks, head.batch.clone(), None).await.ok();
                }
                next = queue.recv(), if is_spooling && !has_ended => match next {
                    Some(queued) => {
                        if sequence.is_none() {
                            sequence = spool.push(acks, head.batch.clone(), None).await.ok();
                        }
                        let protected = sequence.filter(|_| now() < head.protected_until);
                        let batch = exporter.encode(&queued.batch);
                        let points = batch.points;
                        if let Err(loss) = spool.push(acks, batch, protected).await {
                            acks.record_loss(loss, Amount::batch(points));
                        }
                    }
                    None => has_ended = true,
                },
            }
            if sequence.is_some_and(|sequence| !spool.contains(sequence)) {
                break Outcome::Evicted;
            }
        };
        (outcome, sequence)
    }

    /// Records the response to a batch and removes it from the spool.
    async fn record_answer(
        &mut self,
        batch: &EncodedBatch,
        sequence: Option<u64>,
        answer: Result<Ack, String>,
    ) {
        match answer {
            Ok(ack) => {
                let is_new = !self.acks.report.reasons.contains_key(&ack.reason);
                if ack.rejected > 0 && is_new {
                    let points = ack.rejected;
                    let reason = &ack.reason;
                    tracing::warn!(points, "collector rejects points: {reason}");
                }
                self.acks.record_ack(batch.points, ack);
            }
            Err(reason) => self.acks.record_refusal(batch.number, batch.points, reason),
        }
        if let Some(sequence) = sequence {
            self.spool.remove(&mut self.acks, sequence).await;
        }
    }

    /// Spools a batch that is not sent any more, or counts it as lost.
    async fn spool_or_drop(&mut self, batch: EncodedBatch) {
        let points = batch.points;
        let kept = if self.spool.is_enabled() {
            self.spool.push(&mut self.acks, batch, None).await
        } else {
            Err(Loss::Unsent)
        };
        if let Err(loss) = kept {
            self.acks.record_loss(loss, Amount::batch(points));
        }
    }
}

fn later(than: Instant, by: Duration) -> Instant {
    than.checked_add(by).unwrap_or(than)
}
