//! Closes hours of costs: what an hour came to is stored once it is over, and again if late data
//! changes it.
//!
//! One hour at a time, with a rest as long as the work was several times over, so that years of an
//! old database are closed beside everything else. What is due is known to the store, and survives
//! a crash.

use std::sync::Arc;
use std::time::Duration;

use echo_analysis::hours::{kept, node_hours};
use echo_core::clock::Clock;
use echo_core::error::chain;
use echo_core::model::cost::{NodeHour, Seen};
use echo_core::units::{Hour, Nanos};
use echo_store::hours::{Closed, ClosingHour, DueHour};
use echo_store::timings::Stopwatch;
use echo_store::{EventStore, StoreError};
use tokio::sync::watch;
use tracing::{debug, warn};

/// Pause after a look that found nothing to close.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Shortest pause between two hours that are closed.
const MIN_PAUSE: Duration = Duration::from_millis(100);

/// How many times as long as the work the pause is.
const PAUSE_FACTOR: u32 = 4;

/// An hour that never comes to pause is closed after so many graces all the same.
const MAX_GRACES: i64 = 4;

/// How long before an hour its events may have been received by Echo, since clocks differ,
/// nanoseconds.
const MAX_CLOCK_ERROR: i64 = 24 * Hour::NANOS;

/// Closes hours.
#[derive(Debug)]
pub struct HourCloser {
    store: Arc<dyn EventStore>,
    clock: Arc<dyn Clock>,
    grace: Duration,
    judged: watch::Receiver<u64>,
}

impl HourCloser {
    /// Closes hours of `store` when they have been over, and nothing came, for `grace`, and the
    /// detector has judged (`judged`) what is in them.
    pub fn new(
        (store, clock): (Arc<dyn EventStore>, Arc<dyn Clock>),
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
                    warn!(error, "an hour of costs cannot be closed; trying again");
                    POLL_INTERVAL
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _stop = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// Closes the oldest hour that is ready; nothing when there is none.
    pub async fn close_next(&self) -> Result<Option<(Hour, Closed)>, StoreError> {
        let (now, judged) = (self.clock.now(), *self.judged.borrow());
        let due = self.store.due_hours();
        let Some(due) = due
            .into_iter()
            .find(|due| self.is_ready(due, (now, judged)))
        else {
            return Ok(None);
        };
        let rows = self.rows(due.hour).await?;
        let (hour, n_rows) = (due.hour, rows.len());
        let closed = self.store.close_hour(ClosingHour { due, rows }).await?;
        debug!(hour = %hour.begin(), rows = n_rows, ?closed, "closed an hour of costs");
        Ok(Some((hour, closed)))
    }

    fn is_ready(&self, due: &DueHour, (now, judged): (Nanos, u64)) -> bool {
        let grace = i64::try_from(self.grace.as_nanos()).unwrap_or(i64::MAX);
        let is_past =
            |instant: Nanos, graces: i64| now >= instant.offset(grace.saturating_mul(graces));
        is_past(due.hour.end(), 1)
            && (is_past(due.until, 1) || is_past(due.since, MAX_GRACES))
            && judged >= due.last_event
    }

    /// What the hour comes to by what is stored now.
    async fn rows(&self, hour: Hour) -> Result<Vec<NodeHour>, StoreError> {
        let window = hour.window();
        let seen = self.store.coverage(None, window).await?;
        let seen = seen.into_iter().map(|row| Seen {
            origin: row.origin,
            first: row.first,
            last: row.last,
        });
        let seen: Vec<Seen> = seen.collect();
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
