//! The lane of the verdicts, beside that of the points: it may wait, retry and fail without holding them up.

use std::sync::Arc;
use std::time::Duration;

use fleet_agent_core::batch::VerdictBatch;
use tokio::sync::mpsc;

use crate::delivery::attempts::attempts;
use crate::vitals::Vitals;
use crate::{Export, ExportError};

/// What became of the verdicts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerdictReport {
    /// Verdicts that were acknowledged.
    pub sent: u64,
    /// Verdicts of them that the receiver refused.
    pub rejected: u64,
    /// Verdicts that were given up.
    pub dropped: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// Why one was refused or given up, for the first of them.
    pub refusal: Option<String>,
}

impl VerdictReport {
    /// Adds another instance's report.
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

/// Takes batches of verdicts from their queue and brings them to the exporter.
#[derive(Debug)]
pub(crate) struct VerdictLane {
    queue: mpsc::Receiver<VerdictBatch>,
    give_up_after: Duration,
    patience: Duration,
    has_complained: bool,
    under_way: u64,
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
            patience: give_up_after,
            has_complained: false,
            under_way: 0,
            report: VerdictReport::default(),
            vitals: Arc::clone(vitals),
        }
    }

    /// Delivers until the outbox is gone and the queue is empty. Dropping the future gives up what is under way.
    pub(crate) async fn run<E: Export>(&mut self, exporter: &E) {
        while let Some(batch) = self.queue.recv().await {
            self.under_way = batch.n_verdicts() as u64;
            self.deliver(exporter, &batch).await;
            self.under_way = 0;
        }
    }

    /// What became of the verdicts; those that still wait count as given up.
    pub(crate) fn conclude(mut self) -> VerdictReport {
        self.lost(self.under_way);
        // What comes from here on is counted where it is dropped.
        self.queue.close();
        while let Ok(batch) = self.queue.try_recv() {
            self.lost(batch.n_verdicts() as u64);
        }
        self.report
    }

    fn lost(&mut self, n_verdicts: u64) {
        self.vitals.not_told(n_verdicts);
        self.report.dropped += n_verdicts;
    }

    async fn deliver<E: Export>(&mut self, exporter: &E, batch: &VerdictBatch) {
        let n_verdicts = batch.n_verdicts() as u64;
        let (delivered, retries) =
            attempts(self.patience, batch.number, || exporter.tell(batch)).await;
        self.report.retries += retries;
        match delivered {
            Ok(ack) => {
                self.patience = self.give_up_after;
                self.vitals.told(n_verdicts, ack.rejected);
                self.report.sent += n_verdicts;
                self.report.rejected += ack.rejected;
                if ack.rejected > 0 {
                    self.report.refusal.get_or_insert(ack.reason);
                }
            }
            // The log of this agent still has the verdicts, and so has the collector those that it came to itself.
            Err(ExportError::Refused { reason }) => {
                self.lost(n_verdicts);
                if !std::mem::replace(&mut self.has_complained, true) {
                    tracing::warn!(
                        "the collector does not take this agent's own verdicts: {reason}"
                    );
                }
                self.report.refusal.get_or_insert(reason);
            }
            // One attempt for each of the next ones, until the collector is back.
            Err(ExportError::Later { reason, .. }) => {
                self.patience = Duration::ZERO;
                self.lost(n_verdicts);
                tracing::warn!(
                    batch.number,
                    n_verdicts,
                    "own verdicts were given up: {reason}"
                );
                self.report.refusal.get_or_insert(reason);
            }
        }
    }
}
