//! Delivery of self-verdicts, separate from points: it can wait, retry and fail without delaying
//! them.

use std::sync::Arc;
use std::time::Duration;

use fleet_agent_core::batch::VerdictBatch;
use tokio::sync::mpsc;

use crate::delivery::attempts::deliver_with_retries;
use crate::vitals::Vitals;
use crate::{Export, ExportError};

/// Report of the verdicts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerdictReport {
    /// Verdicts acknowledged.
    pub sent: u64,
    /// Verdicts among them that the receiver rejected.
    pub rejected: u64,
    /// Verdicts dropped or refused.
    pub dropped: u64,
    /// Retries of verdict batches.
    pub retries: u64,
    /// Reason of the first refusal or drop.
    pub refusal: Option<String>,
}

impl VerdictReport {
    /// Adds the report of another instance.
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.rejected += other.rejected;
        self.dropped += other.dropped;
        self.retries += other.retries;
        if self.refusal.is_none() {
            self.refusal.clone_from(&other.refusal);
        }
    }
}

/// Takes verdict batches from their queue and sends them with the exporter.
#[derive(Debug)]
pub(crate) struct VerdictLane {
    queue: mpsc::Receiver<VerdictBatch>,
    give_up_after: Duration,
    retry_for: Duration,
    is_refusal_logged: bool,
    in_flight: u64,
    report: VerdictReport,
    vitals: Arc<Vitals>,
}

impl VerdictLane {
    pub(crate) fn new(
        queue: mpsc::Receiver<VerdictBatch>,
        give_up_after: Duration,
        vitals: &Arc<Vitals>,
    ) -> Self {
        Self {
            queue,
            give_up_after,
            retry_for: give_up_after,
            is_refusal_logged: false,
            in_flight: 0,
            report: VerdictReport::default(),
            vitals: Arc::clone(vitals),
        }
    }

    /// Delivers until the outbox is dropped and the queue is empty. Dropping the future drops the
    /// batch in flight.
    pub(crate) async fn run<E: Export>(&mut self, exporter: &E) {
        while let Some(batch) = self.queue.recv().await {
            self.in_flight = batch.n_verdicts() as u64;
            self.deliver(exporter, &batch).await;
            self.in_flight = 0;
        }
    }

    /// Returns the report; verdicts that are still queued count as dropped.
    pub(crate) fn into_report(mut self) -> VerdictReport {
        self.record_loss(self.in_flight);
        // Later verdicts are counted by the outbox, which drops them.
        self.queue.close();
        while let Ok(batch) = self.queue.try_recv() {
            self.record_loss(batch.n_verdicts() as u64);
        }
        self.report
    }

    fn record_loss(&mut self, n_verdicts: u64) {
        self.vitals.record_lost_verdicts(n_verdicts);
        self.report.dropped += n_verdicts;
    }

    async fn deliver<E: Export>(&mut self, exporter: &E, batch: &VerdictBatch) {
        let n_verdicts = batch.n_verdicts() as u64;
        let (delivered, retries) = deliver_with_retries(self.retry_for, batch.number, || {
            exporter.export_verdicts(batch)
        })
        .await;
        self.report.retries += retries;
        match delivered {
            Ok(ack) => {
                self.retry_for = self.give_up_after;
                self.vitals.record_verdicts(n_verdicts, ack.rejected);
                self.report.sent += n_verdicts;
                self.report.rejected += ack.rejected;
                if ack.rejected > 0 {
                    self.report.refusal.get_or_insert(ack.reason);
                }
            }
            // The agent's log still has the verdicts, and the collector computes its own.
            Err(ExportError::Refused { reason }) => {
                self.record_loss(n_verdicts);
                if !std::mem::replace(&mut self.is_refusal_logged, true) {
                    tracing::warn!("collector refuses this agent's self-verdicts: {reason}");
                }
                self.report.refusal.get_or_insert(reason);
            }
            // The next batches get one attempt each, until the collector is back.
            Err(ExportError::Later { reason, .. }) => {
                self.retry_for = Duration::ZERO;
                self.record_loss(n_verdicts);
                tracing::warn!(batch.number, n_verdicts, "self-verdicts dropped: {reason}");
                self.report.refusal.get_or_insert(reason);
            }
        }
    }
}
