//! Spool access of the sender: runs on blocking threads, counts losses and logs each problem once.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::spawn_blocking;

use crate::delivery::acknowledgement::AckTracker;
use crate::encoded::EncodedBatch;
use crate::spool::{Losses, PushError, Spool};
use crate::vitals::{Loss, Vitals};

/// Spool, or none.
#[derive(Debug)]
pub(super) struct SpoolWorker {
    spool: Option<Arc<Mutex<Spool>>>,
    n_batches: u64,
    vitals: Arc<Vitals>,
    is_broken: bool,
    is_full: bool,
}

impl SpoolWorker {
    pub(super) fn new(spool: Option<Spool>, vitals: &Arc<Vitals>) -> Self {
        let n_batches = spool.as_ref().map_or(0, Spool::n_batches);
        if let Some(spool) = &spool {
            vitals.set_spooled(n_batches, spool.bytes());
        }
        if n_batches > 0 {
            tracing::info!(
                batches = n_batches,
                "the spool holds {n_batches} batches of an earlier agent, which are sent first"
            );
        }
        Self {
            spool: spool.map(|spool| Arc::new(Mutex::new(spool))),
            n_batches,
            vitals: Arc::clone(vitals),
            is_broken: false,
            is_full: false,
        }
    }

    /// Returns whether there is a spool.
    pub(super) fn is_enabled(&self) -> bool {
        self.spool.is_some()
    }

    /// Returns the oldest spooled batch with its sequence number.
    pub(super) async fn front(&mut self, acks: &mut AckTracker) -> Option<(u64, EncodedBatch)> {
        if self.n_batches == 0 {
            return None;
        }
        self.run_blocking(acks, Spool::front).await.flatten()
    }

    /// Appends a batch, evicting the oldest ones except `protected` when the spool is full; returns
    /// its sequence number, or why it was not spooled.
    pub(super) async fn push(
        &mut self,
        acks: &mut AckTracker,
        batch: EncodedBatch,
        protected: Option<u64>,
    ) -> Result<u64, Loss> {
        let pushed = self.run_blocking(acks, move |spool| spool.push(&batch, protected));
        match pushed.await {
            Some(Ok(sequence)) => {
                if std::mem::take(&mut self.is_broken) {
                    tracing::info!("spool is writable again");
                }
                Ok(sequence)
            }
            Some(Err(PushError::TooLarge { .. })) => Err(Loss::SpoolFull),
            Some(Err(PushError::Disk(error))) => {
                self.log_failure(&error.to_string());
                Err(Loss::SpoolBroken)
            }
            None => {
                self.log_failure("internal error");
                Err(Loss::SpoolBroken)
            }
        }
    }

    /// Removes a batch.
    pub(super) async fn remove(&mut self, acks: &mut AckTracker, sequence: u64) {
        self.run_blocking(acks, move |spool| spool.remove(sequence))
            .await;
    }

    /// Returns whether a batch is still spooled.
    pub(super) fn contains(&self, sequence: u64) -> bool {
        self.spool.as_ref().is_some_and(|spool| {
            let spool = spool.lock().unwrap_or_else(PoisonError::into_inner);
            spool.contains(sequence)
        })
    }

    /// Runs `work` on the spool; none without a spool, and if it panicked.
    async fn run_blocking<T: Send + 'static>(
        &mut self,
        acks: &mut AckTracker,
        work: impl FnOnce(&mut Spool) -> T + Send + 'static,
    ) -> Option<T> {
        let spool = Arc::clone(self.spool.as_ref()?);
        let done = spawn_blocking(move || {
            let mut spool = spool.lock().unwrap_or_else(PoisonError::into_inner);
            let answer = work(&mut spool);
            (
                answer,
                spool.take_losses(),
                spool.n_batches(),
                spool.bytes(),
            )
        });
        let (answer, losses, n_batches, bytes) = done.await.ok()?;
        self.n_batches = n_batches;
        self.vitals.set_spooled(n_batches, bytes);
        self.record_losses(acks, losses);
        Some(answer)
    }

    fn record_losses(&mut self, acks: &mut AckTracker, losses: Losses) {
        self.vitals.record_damaged_files(losses.damaged_files);
        if losses.evicted.batches > 0 {
            acks.record_loss(Loss::SpoolFull, losses.evicted);
            if !std::mem::replace(&mut self.is_full, true) {
                tracing::warn!("spool is full: the oldest batches are dropped");
            }
        } else if self.n_batches == 0 && std::mem::take(&mut self.is_full) {
            tracing::info!("spool is empty again");
        }
    }

    fn log_failure(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.is_broken, true) {
            tracing::error!(
                "spool cannot be written: {reason}; points that cannot be sent meanwhile are lost"
            );
        }
    }
}
