//! Spool access of the sender: runs on blocking threads, counts losses and logs each problem once.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::spawn_blocking;

use crate::delivery::acknowledgement::Ledger;
use crate::encoded::Encoded;
use crate::spool::{Losses, NotKept, Spool};
use crate::vitals::{Loss, Vitals};

/// Spool, or none.
#[derive(Debug)]
pub(super) struct Keeper {
    spool: Option<Arc<Mutex<Spool>>>,
    n_batches: u64,
    vitals: Arc<Vitals>,
    is_broken: bool,
    is_full: bool,
}

impl Keeper {
    pub(super) fn new(spool: Option<Spool>, vitals: &Arc<Vitals>) -> Self {
        let n_batches = spool.as_ref().map_or(0, Spool::n_batches);
        if let Some(spool) = &spool {
            vitals.spool_holds(n_batches, spool.bytes());
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
    pub(super) fn is_there(&self) -> bool {
        self.spool.is_some()
    }

    /// Returns the oldest spooled batch with its sequence number.
    pub(super) async fn front(&mut self, ledger: &mut Ledger) -> Option<(u64, Encoded)> {
        if self.n_batches == 0 {
            return None;
        }
        self.ask(ledger, Spool::front).await.flatten()
    }

    /// Appends a batch, evicting the oldest ones except `spared` when the spool is full; returns
    /// its sequence number, or why it was not spooled.
    pub(super) async fn keep(
        &mut self,
        ledger: &mut Ledger,
        batch: Encoded,
        spared: Option<u64>,
    ) -> Result<u64, Loss> {
        let pushed = self.ask(ledger, move |spool| spool.push(&batch, spared));
        match pushed.await {
            Some(Ok(sequence)) => {
                if std::mem::take(&mut self.is_broken) {
                    tracing::info!("spool is writable again");
                }
                Ok(sequence)
            }
            Some(Err(NotKept::TooLarge { .. })) => Err(Loss::SpoolFull),
            Some(Err(NotKept::Disk(error))) => {
                self.complain(&error.to_string());
                Err(Loss::SpoolBroken)
            }
            None => {
                self.complain("internal error");
                Err(Loss::SpoolBroken)
            }
        }
    }

    /// Removes a batch.
    pub(super) async fn remove(&mut self, ledger: &mut Ledger, sequence: u64) {
        self.ask(ledger, move |spool| spool.remove(sequence)).await;
    }

    /// Returns whether a batch is still spooled.
    pub(super) fn holds(&self, sequence: u64) -> bool {
        self.spool.as_ref().is_some_and(|spool| {
            let spool = spool.lock().unwrap_or_else(PoisonError::into_inner);
            spool.holds(sequence)
        })
    }

    /// Runs `work` on the spool; none without a spool, and if it panicked.
    async fn ask<T: Send + 'static>(
        &mut self,
        ledger: &mut Ledger,
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
        self.vitals.spool_holds(n_batches, bytes);
        self.count(ledger, losses);
        Some(answer)
    }

    fn count(&mut self, ledger: &mut Ledger, losses: Losses) {
        self.vitals.damaged(losses.damaged_files);
        if losses.evicted.batches > 0 {
            ledger.lost(Loss::SpoolFull, losses.evicted);
            if !std::mem::replace(&mut self.is_full, true) {
                tracing::warn!("spool is full: the oldest batches are dropped");
            }
        } else if self.n_batches == 0 && std::mem::take(&mut self.is_full) {
            tracing::info!("spool is empty again");
        }
    }

    fn complain(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.is_broken, true) {
            tracing::error!(
                "spool cannot be written: {reason}; points that cannot be sent meanwhile are lost"
            );
        }
    }
}
