//! How many questions are answered at the same time, so that they leave something to ingest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ToolError;

/// Longest wait for a place. Most answers take milliseconds, so a short crowd is over by then.
const WAIT: Duration = Duration::from_secs(1);

/// Places for questions that are being answered. Clones are the same.
#[derive(Debug, Clone)]
pub struct Places(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    most: u32,
    wait: Duration,
    free: Arc<Semaphore>,
    beside: AtomicU32,
    refused: AtomicU64,
}

/// A question that is answered without a place, until this is dropped.
#[derive(Debug)]
pub(super) struct Beside(Arc<Counts>);

impl Drop for Beside {
    fn drop(&mut self) {
        self.0.beside.fetch_sub(1, Relaxed);
    }
}

impl Places {
    /// So many places.
    pub fn new(most: u32) -> Self {
        Self::with_wait(most, WAIT)
    }

    /// The same with another time to wait for one.
    pub fn with_wait(most: u32, wait: Duration) -> Self {
        let most = most.max(1);
        Self(Arc::new(Counts {
            most,
            wait,
            free: Arc::new(Semaphore::new(most as usize)),
            beside: AtomicU32::new(0),
            refused: AtomicU64::new(0),
        }))
    }

    /// How many there are.
    pub fn most(&self) -> u32 {
        self.0.most
    }

    /// Questions that are being answered, those beside the places included.
    pub fn taken(&self) -> u32 {
        let free = u32::try_from(self.0.free.available_permits()).unwrap_or(u32::MAX);
        let taken = self.0.most.saturating_sub(free);
        taken.saturating_add(self.0.beside.load(Relaxed))
    }

    /// Counts a question that takes no place.
    pub(super) fn beside(&self) -> Beside {
        self.0.beside.fetch_add(1, Relaxed);
        Beside(Arc::clone(&self.0))
    }

    /// Questions that were turned away, since the start.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Relaxed)
    }

    /// Takes a place until the permit is dropped; waits for it a moment, first come first served.
    pub(super) async fn take(&self) -> Result<OwnedSemaphorePermit, ToolError> {
        let free = Arc::clone(&self.0.free).acquire_owned();
        if let Ok(Ok(place)) = tokio::time::timeout(self.0.wait, free).await {
            return Ok(place);
        }
        self.0.refused.fetch_add(1, Relaxed);
        Err(ToolError::Crowded { most: self.0.most })
    }
}
