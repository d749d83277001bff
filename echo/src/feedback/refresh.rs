//! The loop that follows the store: new events in, conclusions stored, policies published.
//!
//! It reads what was committed and nothing else, so what it concludes can be reproduced from the database.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_proto::metric;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::analysis::detector::Detector;
use crate::analysis::settings::Settings;
use crate::clock::Clock;
use crate::error::{Code, Coded, chain};
use crate::feedback::health::{Health, HealthConfig, is_score};
use crate::feedback::policy::Policies;
use crate::feedback::table::{ClusterPolicy, HealthThreshold, PolicyTable};
use crate::ids::{ClusterId, IdError, MetricName};
use crate::model::conclusion::{Conclusions, Finding, Incident, IncidentState};
use crate::spans;
use crate::store::{EventStore, StoreError};

/// Events taken from the store at a time.
const CHUNK: usize = 20_000;

/// Longest pause between two looks at jobs that may have stopped reporting.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_secs(30);

/// Pause after the store failed, before it is asked again.
const RETRY_AFTER: std::time::Duration = std::time::Duration::from_secs(1);

/// Follows the store and feeds conclusions back.
#[derive(Debug)]
pub struct Refresh {
    store: Arc<dyn EventStore>,
    clock: Arc<dyn Clock>,
    metrics: Vec<MetricName>,
    detector: Detector,
    policies: Policies,
    health: Health,
    table: watch::Sender<Arc<PolicyTable>>,
    progress: watch::Sender<u64>,
    open: Vec<Incident>,
    /// Number of the last event that the detector has taken.
    taken: u64,
    /// Concluded and not yet stored.
    pending: Conclusions,
    /// Policies that the table does not hold yet, the latest of each cluster.
    unpublished: BTreeMap<ClusterId, ClusterPolicy>,
    /// Whether what was stored before the start has still to be judged again.
    is_rebuilding: bool,
}

impl Refresh {
    /// A loop over `store` that publishes policies through `table` and the number of the last event it has judged
    /// through `progress`.
    pub fn new(
        (store, clock): (Arc<dyn EventStore>, Arc<dyn Clock>),
        (settings, health): (Settings, HealthConfig),
        table: watch::Sender<Arc<PolicyTable>>,
        progress: watch::Sender<u64>,
    ) -> Result<Self, IdError> {
        let names = [
            metric::HOST_GAP,
            metric::BLOCKED,
            metric::PERIOD,
            metric::ARRIVAL,
            metric::WAIT,
            metric::QUEUE,
            metric::BUSY,
            metric::ISSUED,
            metric::INGERO_HEALTH_SCORE,
        ];
        let metrics = names
            .iter()
            .map(|name| name.parse())
            .collect::<Result<_, _>>()?;
        Ok(Self {
            store,
            clock,
            metrics,
            detector: Detector::new(settings),
            policies: Policies::default(),
            health: Health::new(health),
            table,
            progress,
            open: Vec::new(),
            taken: 0,
            pending: Conclusions::default(),
            unpublished: BTreeMap::new(),
            is_rebuilding: true,
        })
    }

    /// Runs until `stop` turns true, then judges what is committed and returns.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut committed = self.store.committed();
        loop {
            // Asked before catching up: what was committed before the stop is judged.
            let stopping = *stop.borrow_and_update();
            let caught_up = self.catch_up(&stop).await;
            if stopping {
                return;
            }
            if let Err(error) = caught_up {
                let error = chain(&error);
                warn!(error, "the detector cannot follow the store; trying again");
                tokio::time::sleep(RETRY_AFTER).await;
                continue;
            }
            tokio::select! {
                changed = committed.changed() => if changed.is_err() { return },
                changed = stop.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Judges everything that is committed by now. Judging history again is given up when Echo is to stop.
    async fn catch_up(&mut self, stop: &watch::Receiver<bool>) -> Result<(), StoreError> {
        loop {
            if self.is_rebuilding && self.taken > 0 && *stop.borrow() {
                return Ok(());
            }
            let tail = self.store.tail(self.taken, &self.metrics, CHUNK).await?;
            let nothing_new = tail.until <= self.taken;
            let (scores, signals): (Vec<_>, Vec<_>) = tail.events.into_iter().partition(is_score);
            let events = signals.len();
            let span = tracing::trace_span!(target: spans::TARGET, spans::DETECT, events);
            let mut conclusions = span.in_scope(|| self.detector.observe(&signals));
            conclusions.append(self.health.observe(&scores));
            self.taken = tail.until.max(self.taken);
            if nothing_new {
                let now = self.clock.now();
                conclusions.append(self.detector.end_silent_jobs(now));
                conclusions.append(self.health.end_silent_nodes(now));
            }
            let changed = self
                .policies
                .update(self.detector.outlooks(), self.detector.settings());
            self.announce(&conclusions);
            self.pending.append(conclusions);
            let records = changed.iter().map(|(record, _)| record.clone());
            self.pending.policies.extend(records);
            self.unpublished.extend(
                changed
                    .into_iter()
                    .map(|(record, policy)| (record.cluster, policy)),
            );
            // While history is judged again, its intermediate states must neither replace what is stored nor reach
            // the agents.
            if self.is_rebuilding {
                self.pending.keep_latest();
                self.is_rebuilding = !nothing_new;
            }
            if !self.is_rebuilding {
                self.publish();
                self.store_pending().await?;
                self.progress.send_replace(self.taken);
            }
            if nothing_new {
                return Ok(());
            }
        }
    }

    /// Replaces the table, once, if anything in it changes.
    fn publish(&mut self) {
        let unpublished = std::mem::take(&mut self.unpublished);
        let table = self.table.borrow().clone();
        let is_news = |(cluster, health): &(&ClusterId, HealthThreshold)| {
            table.of(cluster).and_then(|known| known.health) != Some(*health)
        };
        let health: Vec<_> = self
            .health
            .thresholds(self.clock.now())
            .filter(is_news)
            .collect();
        if unpublished.is_empty() && health.is_empty() {
            return;
        }
        let mut changed = table.as_ref().clone();
        for (cluster, policy) in unpublished {
            changed.set_policy(cluster, policy);
        }
        for (cluster, health) in health {
            changed.set_health(cluster.clone(), health);
        }
        self.table.send_replace(Arc::new(changed));
    }

    /// Stores what is pending. It is kept until it is stored, because the detector will not conclude it again.
    async fn store_pending(&mut self) -> Result<(), StoreError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        match self.store.conclude(self.pending.clone()).await {
            // It will never be accepted; to go on without it is better than to stop judging.
            Err(error) if error.code() == Code::Invalid => {
                tracing::error!(
                    error = chain(&error),
                    "a conclusion was refused by the store"
                );
            }
            stored => stored?,
        }
        self.pending = Conclusions::default();
        Ok(())
    }

    /// One log line when an incident is raised and one when it is cleared.
    fn announce(&mut self, conclusions: &Conclusions) {
        for incident in &conclusions.incidents {
            let known = self.open.iter().position(|open| open.id == incident.id);
            match (incident.state, known) {
                (IncidentState::Open, None) => {
                    self.announce_one(incident, "raised");
                    self.open.push(incident.clone());
                }
                (IncidentState::Cleared, Some(index)) => {
                    self.announce_one(incident, "cleared");
                    self.open.swap_remove(index);
                }
                (IncidentState::Open, Some(_)) | (IncidentState::Cleared, None) => {}
            }
        }
    }

    fn announce_one(&self, incident: &Incident, what: &str) {
        if self.is_rebuilding {
            return;
        }
        let rank = match &incident.finding {
            Finding::Culprit(culprit) => Some(culprit.rank.value()),
            Finding::Condition(_) => None,
        };
        info!(
            cluster.id = %incident.cluster,
            incident.id = %incident.id,
            rank,
            effect_ratio = incident.effect_ratio,
            "incident {what}: {}",
            incident.reason,
        );
    }
}

#[cfg(test)]
mod tests;
