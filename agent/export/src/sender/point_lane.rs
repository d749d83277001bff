//! Delivery of points: sends the oldest batch until it is answered; the spool comes next, then the
//! queue in memory.

use std::pin::{Pin, pin};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, sleep_until};

use crate::delivery::acknowledgement::Ledger;
use crate::delivery::outbox::Waiting;
use crate::encoded::Encoded;
use crate::sender::retries::{Retries, SPARED_FOR};
use crate::sender::spool_worker::Keeper;
use crate::vitals::{Amount, Loss};
use crate::{Ack, Forward, now};

/// State of the delivery of points.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) queue: mpsc::Receiver<(Waiting, OwnedSemaphorePermit)>,
    pub(super) ledger: Ledger,
    pub(super) keeper: Keeper,
    pub(super) retries: Retries,
    pub(super) patience: Duration,
}

/// Batch that is being sent.
#[derive(Debug)]
struct Head {
    batch: Encoded,
    /// Its sequence number in the spool, if it is spooled.
    sequence: Option<u64>,
    /// Time at which it is spooled.
    patient_until: Instant,
    /// Time until which a full spool does not evict it.
    spared_until: Instant,
    /// Its permit in the queue, released when it is answered.
    _room: Option<OwnedSemaphorePermit>,
}

/// Outcome of sending a batch.
enum Outcome {
    /// It was accepted or refused.
    Answered(Result<Ack, String>),
    /// It was evicted from the spool for newer batches.
    Evicted,
    /// The deadline has passed.
    Over,
}

impl Lane {
    /// Sends until the queue is closed and everything is sent, or until the deadline `over`; what
    /// is left is then spooled.
    pub(super) async fn run<E: Forward>(&mut self, exporter: &E, over: impl Future<Output = ()>) {
        let mut over = pin!(over);
        while let Some(head) = self.next(exporter, over.as_mut()).await {
            match self.bring(exporter, &head, over.as_mut()).await {
                (Outcome::Answered(answer), sequence) => {
                    self.settle(&head.batch, sequence, answer).await;
                }
                (Outcome::Evicted, _) => {}
                (Outcome::Over, sequence) => {
                    if sequence.is_none() {
                        self.put_by(head.batch).await;
                    }
                    break;
                }
            }
        }
        self.queue.close();
        while let Some((waiting, _room)) = self.queue.recv().await {
            self.put_by(exporter.encode(&waiting.batch)).await;
        }
    }

    /// Returns the oldest batch; none when there are no more, or after the deadline.
    async fn next<E: Forward>(
        &mut self,
        exporter: &E,
        over: Pin<&mut impl Future<Output = ()>>,
    ) -> Option<Head> {
        let now = now();
        if let Some((sequence, batch)) = self.keeper.front(&mut self.ledger).await {
            return Some(Head {
                batch,
                sequence: Some(sequence),
                patient_until: now,
                spared_until: later(now, SPARED_FOR),
                _room: None,
            });
        }
        tokio::select! {
            biased;
            () = over => None,
            next = self.queue.recv() => {
                let (waiting, room) = next?;
                Some(Head {
                    batch: exporter.encode(&waiting.batch),
                    sequence: None,
                    patient_until: later(waiting.since, self.patience),
                    spared_until: later(now, SPARED_FOR),
                    _room: Some(room),
                })
            }
        }
    }

    /// Sends the batch, and meanwhile spools those that follow once it has waited too long. Returns
    /// the outcome and the batch's sequence number in the spool.
    async fn bring<E: Forward>(
        &mut self,
        exporter: &E,
        head: &Head,
        mut over: Pin<&mut impl Future<Output = ()>>,
    ) -> (Outcome, Option<u64>) {
        let Self {
            queue,
            ledger,
            keeper,
            retries,
            ..
        } = self;
        let mut sequence = head.sequence;
        let (mut is_late, mut has_ended) = (sequence.is_some(), false);
        let mut delivering = pin!(retries.deliver(exporter, &head.batch));
        let mut late = pin!(sleep_until(head.patient_until));
        let outcome = loop {
            tokio::select! {
                biased;
                answer = &mut delivering => break Outcome::Answered(answer),
                () = &mut over => break Outcome::Over,
                () = &mut late, if !is_late && keeper.is_there() => {
                    is_late = true;
                    sequence = keeper.keep(ledger, head.batch.clone(), None).await.ok();
                }
                next = queue.recv(), if is_late && !has_ended => match next {
                    Some((waiting, _room)) => {
                        if sequence.is_none() {
                            sequence = keeper.keep(ledger, head.batch.clone(), None).await.ok();
                        }
                        let spared = sequence.filter(|_| now() < head.spared_until);
                        let batch = exporter.encode(&waiting.batch);
                        let points = batch.points;
                        if let Err(loss) = keeper.keep(ledger, batch, spared).await {
                            ledger.lost(loss, Amount::batch(points));
                        }
                    }
                    None => has_ended = true,
                },
            }
            if sequence.is_some_and(|sequence| !keeper.holds(sequence)) {
                break Outcome::Evicted;
            }
        };
        (outcome, sequence)
    }

    /// Records the response to a batch and removes it from the spool.
    async fn settle(
        &mut self,
        batch: &Encoded,
        sequence: Option<u64>,
        answer: Result<Ack, String>,
    ) {
        match answer {
            Ok(ack) => {
                let is_new = !self.ledger.report.reasons.contains_key(&ack.reason);
                if ack.rejected > 0 && is_new {
                    let points = ack.rejected;
                    let reason = &ack.reason;
                    tracing::warn!(points, "collector rejects points: {reason}");
                }
                self.ledger.acknowledged(batch.points, ack);
            }
            Err(reason) => self.ledger.refused(batch.number, batch.points, reason),
        }
        if let Some(sequence) = sequence {
            self.keeper.remove(&mut self.ledger, sequence).await;
        }
    }

    /// Spools a batch that is not sent any more, or counts it as lost.
    async fn put_by(&mut self, batch: Encoded) {
        let points = batch.points;
        let kept = if self.keeper.is_there() {
            self.keeper.keep(&mut self.ledger, batch, None).await
        } else {
            Err(Loss::Unsent)
        };
        if let Err(loss) = kept {
            self.ledger.lost(loss, Amount::batch(points));
        }
    }
}

fn later(than: Instant, by: Duration) -> Instant {
    than.checked_add(by).unwrap_or(than)
}
