//! Resume after a restart. Processed events stay processed. Only the most recent ones are replayed,
//! so that the detector learns its baselines and the incomplete blocks; the output of the replay is
//! discarded in favour of the stored output. The time to resume does not grow with the database,
//! and an incident keeps its ID, start and cost.

use std::time::Duration;

use echo_core::model::detector_output::{Incident, IncidentState};
use echo_core::units::{Nanos, Window};
use echo_store::StoreError;
use echo_store::resume::WarmUp;
use tokio::sync::watch;
use tracing::info;

use super::{CHUNK, RECONNECT_MS, Refresh};
use crate::feedback::health::Health;

/// Replayed events: one hour, which covers the memory of the detector for a healthy job with blocks
/// of a few seconds, and at most as many events as it processes in about ten seconds. The healthy
/// period of a job that has been slow for longer comes from its incident.
pub(super) const WARM_UP: WarmUp = WarmUp {
    span: Duration::from_hours(1),
    events: 5_000_000,
};

/// Time within which an ended incident may be reopened.
const REOPEN_WINDOW: Duration = Duration::from_mins(10);

impl Refresh {
    /// Restores the detector to its state before the restart. Returns the ID of the last processed
    /// event; `None` if `stop` was set first.
    pub(super) async fn resume(
        &mut self,
        stop: &watch::Receiver<bool>,
    ) -> Result<Option<u64>, StoreError> {
        // An earlier attempt may have failed midway.
        self.reset();
        let resume = self.store.resume(WARM_UP).await?;
        self.unpublished
            .extend(self.policies.resume(&resume.policies));
        self.publish();
        let open = self.incidents_since(Nanos::LATEST.offset(-1)).await?;
        let (mut position, mut latest) = (resume.after, None);
        while position < resume.judged {
            if *stop.borrow() {
                return Ok(None);
            }
            let mut tail = self.store.tail(position, &self.metrics, CHUNK).await?;
            if tail.until <= position {
                break;
            }
            tail.events.retain(|stored| stored.id <= resume.judged);
            let times = tail.events.iter().map(|stored| stored.event.timestamp);
            latest = latest.max(times.max());
            self.observe(tail.events);
            position = tail.until.min(resume.judged);
        }
        let known = match latest {
            Some(latest) => self.incidents_since(latest.before(REOPEN_WINDOW)).await?,
            None => open,
        };
        if resume.judged > 0 {
            self.reconnect_ms = RECONNECT_MS;
        }
        self.restore_incidents(known);
        if resume.judged > 0 {
            info!(
                events = resume.judged - resume.after,
                incidents = self.open.len(),
                "the detector resumes after event {}",
                resume.judged
            );
        }
        self.recorded = resume.judged;
        Ok(Some(resume.judged))
    }

    /// Returns open incidents, and those that ended after `since`.
    async fn incidents_since(&self, since: Nanos) -> Result<Vec<Incident>, StoreError> {
        match Window::new(since, Nanos::LATEST) {
            Some(window) => self.store.incidents(None, window).await,
            None => Ok(Vec::new()),
        }
    }

    fn restore_incidents(&mut self, known: Vec<Incident>) {
        let open = known.iter();
        let open = open.filter(|incident| incident.state == IncidentState::Open);
        self.open = open.cloned().collect();
        let (scores, signals): (Vec<_>, Vec<_>) = known.into_iter().partition(Health::is_about);
        let mut ended = self
            .detector
            .restore(signals, self.listening_since, self.reconnect_ms);
        ended.append(self.health.restore(scores, self.listening_since));
        self.log_changes(&ended);
        self.pending.append(ended);
    }
}
