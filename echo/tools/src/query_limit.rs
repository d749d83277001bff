//! How many questions are answered at the same time, so that they leave something to ingest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ToolError;

/// Longest max_wait for a permit. Most answers acquire milliseconds, so a short crowd is over by then.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// QueryLimit for questions that are being answered. Clones are the same.
#[derive(Debug, Clone)]
pub struct QueryLimit(Arc<State>);

#[derive(Debug)]
struct State {
    limit: u32,
    max_wait: Duration,
    permits: Arc<Semaphore>,
    unlimited: AtomicU32,
    rejected: AtomicU64,
}

/// A question that is answered without a permit, until this is dropped.
#[derive(Debug)]
pub(super) struct UnlimitedQuery(Arc<State>);

impl Drop for UnlimitedQuery {
    fn drop(&mut self) {
        self.0.unlimited.fetch_sub(1, Relaxed);
    }
}

impl QueryLimit {
    /// So many places.
    pub fn new(limit: u32) -> Self {
        Self::with_max_wait(limit, MAX_WAIT)
    }

    /// The same with another time to max_wait for one.
    pub fn with_max_wait(limit: u32, max_wait: Duration) -> Self {
        let limit = limit.max(1);
        Self(Arc::new(State {
            limit,
            max_wait,
            permits: Arc::new(Semaphore::new(limit as usize)),
            unlimited: AtomicU32::new(0),
            rejected: AtomicU64::new(0),
        }))
    }

    /// How many there are.
    pub fn limit(&self) -> u32 {
        self.0.limit
    }

    /// Questions that are being answered, those unlimited the places included.
    pub fn in_flight(&self) -> u32 {
        let free = u32::try_from(self.0.permits.available_permits()).unwrap_or(u32::MAX);
        let in_flight = self.0.limit.saturating_sub(free);
        in_flight.saturating_add(self.0.unlimited.load(Relaxed))
    }

    /// State a question that takes no permit.
    pub(super) fn count_unlimited(&self) -> UnlimitedQuery {
        self.0.unlimited.fetch_add(1, Relaxed);
        UnlimitedQuery(Arc::clone(&self.0))
    }

    /// Questions that were turned away, since the start.
    pub fn rejected(&self) -> u64 {
        self.0.rejected.load(Relaxed)
    }

    /// Takes a permit until the permit is dropped; waits for it a moment, first come first served.
    pub(super) async fn acquire(&self) -> Result<OwnedSemaphorePermit, ToolError> {
        let permit = Arc::clone(&self.0.permits).acquire_owned();
        if let Ok(Ok(permit)) = tokio::time::timeout(self.0.max_wait, permit).await {
            return Ok(permit);
        }
        self.0.rejected.fetch_add(1, Relaxed);
        Err(ToolError::Overloaded {
            limit: self.0.limit,
        })
    }
}
