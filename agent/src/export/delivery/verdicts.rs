//! The lane of the verdicts, beside that of the points: it may wait, retry and fail without holding them up.

use std::time::Duration;

use tokio::sync::mpsc;

use crate::export::delivery::attempts;
use crate::export::{Export, ExportError, VerdictBatch};

/// Batches that may wait. A process changes its verdict every few blocks at most.
pub(super) const MAX_WAITING: usize = 64;

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
pub(super) struct VerdictLane {
    queue: mpsc::Receiver<VerdictBatch>,
    give_up_after: Duration,
    patience: Duration,
    has_complained: bool,
    under_way: u64,
    report: VerdictReport,
}

impl VerdictLane {
    pub(super) fn new(give_up_after: Duration) -> (mpsc::Sender<VerdictBatch>, Self) {
        let (sender, queue) = mpsc::channel(MAX_WAITING);
        let lane = Self {
            queue,
            give_up_after,
            patience: give_up_after,
            has_complained: false,
            under_way: 0,
            report: VerdictReport::default(),
        };
        (sender, lane)
    }

    /// Delivers until the outbox is gone and the queue is empty. Dropping the future gives up what is under way.
    pub(super) async fn run<E: Export>(&mut self, exporter: &E) {
        while let Some(batch) = self.queue.recv().await {
            self.under_way = batch.n_verdicts() as u64;
            self.deliver(exporter, &batch).await;
            self.under_way = 0;
        }
    }

    /// What became of the verdicts; those that still wait count as given up.
    pub(super) fn conclude(mut self) -> VerdictReport {
        self.report.dropped += self.under_way;
        while let Ok(batch) = self.queue.try_recv() {
            self.report.dropped += batch.n_verdicts() as u64;
        }
        self.report
    }

    async fn deliver<E: Export>(&mut self, exporter: &E, batch: &VerdictBatch) {
        let n_verdicts = batch.n_verdicts() as u64;
        let (delivered, retries) =
            attempts(self.patience, batch.number, || exporter.tell(batch)).await;
        self.report.retries += retries;
        match delivered {
            Ok(ack) => {
                self.patience = self.give_up_after;
                self.report.sent += n_verdicts;
                self.report.rejected += ack.rejected;
                if ack.rejected > 0 {
                    self.report.refusal.get_or_insert(ack.reason);
                }
            }
            // The log of this agent still has the verdicts, and so has the collector those that it came to itself.
            Err(ExportError::Refused { reason }) => {
                self.report.dropped += n_verdicts;
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
                self.report.dropped += n_verdicts;
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
