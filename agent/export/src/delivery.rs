//! Delivery of one agent instance: a bounded queue, one batch in flight, retries in order;
//! self-verdicts are delivered in parallel and never delay points.

pub(crate) mod acknowledgement;
pub(crate) mod attempts;
pub(crate) mod outbox;
pub mod report;
pub mod verdicts;

use std::sync::Arc;
use std::time::Duration;

use fleet_agent_core::batch::Batch;
use thiserror::Error;
use tokio::sync::mpsc;

use crate::delivery::acknowledgement::AckTracker;
use crate::delivery::attempts::deliver_with_retries;
pub use crate::delivery::outbox::{Outbox, WhenFull};
use crate::delivery::report::Report;
use crate::delivery::verdicts::VerdictLane;
use crate::vitals::{Amount, Loss, Vitals};
use crate::{Export, ExportError};

/// The receiver was not reached within the retry limit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("gave up after {retries} retries: {reason}")]
pub struct Unreachable {
    /// Retries of the batch that was given up.
    pub retries: u64,
    /// Error of the last attempt.
    pub reason: String,
}

/// Receiving side of an outbox: takes batches from the queues and sends them with the exporter.
#[derive(Debug)]
pub struct Delivery<E> {
    exporter: E,
    points: PointLane,
    verdicts: VerdictLane,
}

impl<E: Export> Delivery<E> {
    /// Creates a queue of at most `capacity` points in front of `exporter`.
    pub fn new(
        exporter: E,
        capacity: usize,
        when_full: WhenFull,
        give_up_after: Duration,
    ) -> (Outbox, Self) {
        let vitals = Arc::new(Vitals::default());
        let (outbox, inbox) = Outbox::new(capacity, when_full, &vitals);
        let points = PointLane {
            give_up_after,
            queue: inbox.points,
            acks: AckTracker::new(inbox.feedback, &vitals),
        };
        let delivery = Self {
            exporter,
            points,
            verdicts: VerdictLane::new(inbox.verdicts, give_up_after, &vitals),
        };
        (outbox, delivery)
    }

    /// Delivers until the outbox is dropped and the queues are empty, or the receiver is given up.
    pub async fn run(self) -> (Report, Option<Unreachable>) {
        let Self {
            exporter,
            mut points,
            mut verdicts,
        } = self;
        let unreachable = {
            let mut sending_verdicts = Box::pin(verdicts.run(&exporter));
            let mut sending_points = Box::pin(points.run(&exporter));
            tokio::select! {
                unreachable = &mut sending_points => {
                    // When points are given up, verdicts are not retried any longer either.
                    if unreachable.is_none() {
                        sending_verdicts.await;
                    }
                    unreachable
                }
                () = &mut sending_verdicts => sending_points.await,
            }
        };
        let mut report = points.acks.into_report();
        report.verdicts = verdicts.into_report();
        (report, unreachable)
    }
}

/// Delivery of points.
#[derive(Debug)]
struct PointLane {
    give_up_after: Duration,
    queue: mpsc::Receiver<outbox::QueuedBatch>,
    acks: AckTracker,
}

impl PointLane {
    async fn run<E: Export>(&mut self, exporter: &E) -> Option<Unreachable> {
        let mut unreachable = None;
        while let Some(queued) = self.queue.recv().await {
            if unreachable.is_some() {
                let points = queued.batch.n_points() as u64;
                self.acks.record_loss(Loss::Unsent, Amount::batch(points));
                continue;
            }
            unreachable = self.deliver(exporter, &queued.batch).await;
            if unreachable.is_some() {
                self.queue.close();
            }
        }
        unreachable
    }

    async fn deliver<E: Export>(&mut self, exporter: &E, batch: &Batch) -> Option<Unreachable> {
        let (delivered, retries) =
            deliver_with_retries(self.give_up_after, batch.number, || exporter.export(batch)).await;
        self.acks.report.retries += retries;
        let points = batch.n_points() as u64;
        match delivered {
            Ok(ack) => {
                self.acks.record_ack(points, ack);
                None
            }
            Err(ExportError::Refused { reason }) => {
                self.acks.record_refusal(batch.number, points, reason);
                None
            }
            Err(ExportError::Later { reason, .. }) => {
                self.acks.record_loss(Loss::Unsent, Amount::batch(points));
                Some(Unreachable { retries, reason })
            }
        }
    }
}

#[cfg(test)]
mod tests;
