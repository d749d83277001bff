//! Limit on concurrent queries, which reserves capacity for ingest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ToolError;

/// Maximum wait for a permit. Most queries take milliseconds, so a short burst has passed by then.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Limit on concurrent queries. Clones share it.
#[derive(Debug, Clone)]
pub struct QueryLimit {
    state: Arc<State>,
    max_wait: Duration,
}

#[derive(Debug)]
struct State {
    limit: u32,
    permits: Arc<Semaphore>,
    unlimited: AtomicU32,
    rejected: AtomicU64,
}

/// Guard of a query that runs without a permit; counts it as in flight until dropped.
#[derive(Debug)]
pub(super) struct UnlimitedQuery(Arc<State>);

impl Drop for UnlimitedQuery {
    fn drop(&mut self) {
        self.0.unlimited.fetch_sub(1, Relaxed);
    }
}

impl QueryLimit {
    /// Creates a limit of `limit` concurrent queries.
    pub fn new(limit: u32) -> Self {
        Self::with_max_wait(limit, MAX_WAIT)
    }

    /// Creates a limit with another maximum wait for a permit.
    pub fn with_max_wait(limit: u32, max_wait: Duration) -> Self {
        let limit = limit.max(1);
        let state = Arc::new(State {
            limit,
            permits: Arc::new(Semaphore::new(limit as usize)),
            unlimited: AtomicU32::new(0),
            rejected: AtomicU64::new(0),
        });
        Self { state, max_wait }
    }

    /// Returns this limit for a caller that waits up to `max_wait` for a permit, and not shorter than
    /// others.
    #[must_use]
    pub fn waiting_up_to(&self, max_wait: Duration) -> Self {
        Self {
            state: Arc::clone(&self.state),
            max_wait: max_wait.max(self.max_wait),
        }
    }

    /// Maximum number of concurrent queries.
    pub fn limit(&self) -> u32 {
        self.state.limit
    }

    /// Number of queries in flight, including those without a permit.
    pub fn in_flight(&self) -> u32 {
        let free = u32::try_from(self.state.permits.available_permits()).unwrap_or(u32::MAX);
        let in_flight = self.state.limit.saturating_sub(free);
        in_flight.saturating_add(self.state.unlimited.load(Relaxed))
    }

    /// Counts a query that runs without a permit.
    pub(super) fn count_unlimited(&self) -> UnlimitedQuery {
        self.state.unlimited.fetch_add(1, Relaxed);
        UnlimitedQuery(Arc::clone(&self.state))
    }

    /// Number of queries rejected since the start.
    pub fn rejected(&self) -> u64 {
        self.state.rejected.load(Relaxed)
    }

    /// Acquires a permit, which is held until dropped. Waits for a free one up to the maximum wait,
    /// in order of arrival.
    pub(super) async fn acquire(&self) -> Result<OwnedSemaphorePermit, ToolError> {
        let permit = Arc::clone(&self.state.permits).acquire_owned();
        if let Ok(Ok(permit)) = tokio::time::timeout(self.max_wait, permit).await {
            return Ok(permit);
        }
        self.state.rejected.fetch_add(1, Relaxed);
        Err(ToolError::Overloaded {
            limit: self.state.limit,
        })
    }
}
