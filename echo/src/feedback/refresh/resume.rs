//! Going on after a restart.
//!
//! What was judged stays judged. Only the last stretch of it is read again, so that the detector knows what is usual and
//! which blocks are still incomplete; what it finds in that stretch is forgotten in favour of what was concluded when it was
//! new. So the time that it takes does not grow with what is stored, and an incident keeps its identity, its beginning and
//! its cost.

use std::time::Duration;

use echo_core::model::detector_output::{Incident, IncidentState};
use echo_core::units::{Nanos, Window};
use echo_store::StoreError;
use echo_store::resume::WarmUp;
use tokio::sync::watch;
use tracing::info;

use super::{CHUNK, COME_BACK_MS, Refresh};
use crate::feedback::health::Health;

/// What is read again: an hour, which holds what the detector remembers of a healthy job with blocks of some seconds, and no
/// more events than it takes in about ten seconds. Of a job that has been ill for longer, the healthy period comes from its incident.
pub(super) const WARM_UP: WarmUp = WarmUp {
    span: Duration::from_hours(1),
    events: 5_000_000,
};

/// Incidents that ended so long before may come back, which makes them the same.
const MAY_COME_BACK: Duration = Duration::from_mins(10);

impl Refresh {
    /// Gets the detector to where it was when Echo stopped. Returns the number of the last event judged, nothing when Echo is
    /// to stop before.
    pub(super) async fn resume(
        &mut self,
        stop: &watch::Receiver<bool>,
    ) -> Result<Option<u64>, StoreError> {
        // It may have failed half way before.
        self.forget();
        let resume = self.store.resume(WARM_UP).await?;
        self.unpublished
            .extend(self.policies.resume(&resume.policies));
        self.publish();
        let open = self.incidents_since(Nanos::LATEST.offset(-1)).await?;
        self.detector.prepare_restore(&open);
        let (mut taken, mut latest) = (resume.after, None);
        while taken < resume.judged {
            if *stop.borrow() {
                return Ok(None);
            }
            let mut tail = self.store.tail(taken, &self.metrics, CHUNK).await?;
            if tail.until <= taken {
                break;
            }
            tail.events.retain(|stored| stored.id <= resume.judged);
            let times = tail.events.iter().map(|stored| stored.event.timestamp);
            latest = latest.max(times.max());
            self.observe(tail.events);
            taken = tail.until.min(resume.judged);
        }
        let known = match latest {
            Some(latest) => self.incidents_since(latest.before(MAY_COME_BACK)).await?,
            None => open,
        };
        if resume.judged > 0 {
            self.come_back_ms = COME_BACK_MS;
        }
        self.adopt(known);
        if resume.judged > 0 {
            info!(
                events = resume.judged - resume.after,
                incidents = self.open.len(),
                "the detector goes on behind event {}",
                resume.judged
            );
        }
        self.noted = resume.judged;
        Ok(Some(resume.judged))
    }

    /// Incidents that are open, and those that ended later than that.
    async fn incidents_since(&self, since: Nanos) -> Result<Vec<Incident>, StoreError> {
        match Window::new(since, Nanos::LATEST) {
            Some(window) => self.store.incidents(None, window).await,
            None => Ok(Vec::new()),
        }
    }

    fn adopt(&mut self, known: Vec<Incident>) {
        let open = known.iter();
        let open = open.filter(|incident| incident.state == IncidentState::Open);
        self.open = open.cloned().collect();
        let (scores, signals): (Vec<_>, Vec<_>) = known.into_iter().partition(Health::is_about);
        let mut ended = self
            .detector
            .restore(signals, (self.listening_since, self.come_back_ms));
        ended.append(self.health.adopt(scores, self.listening_since));
        self.announce(&ended);
        self.pending.append(ended);
    }
}
