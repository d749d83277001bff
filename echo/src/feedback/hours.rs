//! Closing of cost hours: the costs of an hour are stored once it is over, and again if late data
//! changes them. One hour at a time, with a pause several times as long as the work, so that
//! closing years of an old database does not slow down other work. The store persists which hours
//! are due.

use std::sync::Arc;
use std::time::Duration;

use echo_analysis::hours::{kept, node_hours};
use echo_core::clock::Clock;
use echo_core::error::chain;
use echo_core::model::cost::{NodeHour, ReportSpan};
use echo_core::units::{Hour, Nanos};
use echo_store::hours::{Closed, ClosingHour, DueHour};
use echo_store::timings::Stopwatch;
use echo_store::{EventStore, StoreError};
use tokio::sync::watch;
use tracing::{debug, warn};

/// Pause after a check that found nothing to close.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum pause between two closed hours.
const MIN_PAUSE: Duration = Duration::from_millis(100);

/// Pause as a multiple of the work before it.
const PAUSE_FACTOR: u32 = 4;

/// Number of grace periods after which an hour is closed even while late data keeps arriving.
const MAX_GRACES: i64 = 4;

/// Maximum time by which the events of an hour may have been received before it, since clocks
/// differ; nanoseconds.
const MAX_CLOCK_ERROR: i64 = 24 * Hour::NANOS;

/// Background task that closes cost hours.
#[derive(Debug)]
pub struct HourCloser {
    store: Arc<dyn EventStore>,
    clock: Arc<dyn Clock>,
    grace: Duration,
    judged: watch::Receiver<u64>,
}

impl HourCloser {
    /// Closes hours of `store` that ended at least `grace` ago, received no data for `grace`, and
    /// whose events the detector has processed (`judged`).
    pub fn new(
        store: Arc<dyn EventStore>,
        clock: Arc<dyn Clock>,
        grace: Duration,
        judged: watch::Receiver<u64>,
    ) -> Self {
        Self {
            store,
            clock,
            grace,
            judged,
        }
    }

    /// Runs until `stop` turns true.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        loop {
            let work = Stopwatch::start();
            let pause = match self.close_next().await {
                Ok(Some(_)) => MIN_PAUSE.max(work.elapsed().saturating_mul(PAUSE_FACTOR)),
                Ok(None) => POLL_INTERVAL,
                Err(error) => {
                    let error = chain(&error);
                    warn!(error, "cannot close a cost hour; retrying");
                    POLL_INTERVAL
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _stop = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// Closes the oldest hour that is ready; returns `None` if there is none.
    pub async fn close_next(&self) -> Result<Option<(Hour, Closed)>, StoreError> {
        let (now, judged) = (self.clock.now(), *self.judged.borrow());
        let due = self.store.due_hours();
        let Some(due) = due.into_iter().find(|due| self.is_ready(due, now, judged)) else {
            return Ok(None);
        };
        let rows = self.rows(due.hour).await?;
        let (hour, n_rows) = (due.hour, rows.len());
        let closed = self.store.close_hour(ClosingHour { due, rows }).await?;
        debug!(hour = %hour.begin(), rows = n_rows, ?closed, "closed a cost hour");
        Ok(Some((hour, closed)))
    }

    fn is_ready(&self, due: &DueHour, now: Nanos, judged: u64) -> bool {
        let grace = i64::try_from(self.grace.as_nanos()).unwrap_or(i64::MAX);
        let is_past =
            |instant: Nanos, graces: i64| now >= instant.offset(grace.saturating_mul(graces));
        is_past(due.hour.end(), 1)
            && (is_past(due.until, 1) || is_past(due.since, MAX_GRACES))
            && judged >= due.last_event
    }

    /// Computes the cost rows of the hour from the stored data.
    async fn rows(&self, hour: Hour) -> Result<Vec<NodeHour>, StoreError> {
        let window = hour.window();
        let seen = self.store.coverage(None, window).await?;
        let seen: Vec<ReportSpan> = seen.iter().map(ReportSpan::from).collect();
        let lost = self.store.lost_time(None, window).await?;
        let rows = node_hours(hour, &seen, &lost);
        let dropped = self.store.dropped_until().await?;
        if dropped.is_none_or(|until| until <= hour.begin().offset(-MAX_CLOCK_ERROR)) {
            return Ok(rows);
        }
        let before = self.store.cost_hours(None, window, usize::MAX).await?;
        let before = before.into_iter().map(|stored| stored.row);
        Ok(kept(before.collect(), rows))
    }
}

#[cfg(test)]
mod tests;
