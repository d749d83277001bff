//! The loop that follows the store: new events in, conclusions stored, policies published.
//!
//! It reads what was committed and nothing else, so what it concludes can be reproduced from the database. After a restart
//! it goes on where it was ([`resume`]), however much is stored.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use echo_analysis::detector::Detector;
use echo_analysis::settings::Settings;
use echo_core::clock::Clock;
use echo_core::error::{Code, Coded, chain};
use echo_core::ids::{ClusterId, IdError, MetricName};
use echo_core::model::detector_output::{DetectorOutput, Finding, Incident, IncidentState};
use echo_core::model::event::StoredEvent;
use echo_core::policy_table::{ClusterPolicy, HealthThreshold, PolicyTable};
use echo_core::spans;
use echo_core::units::Nanos;
use echo_store::{EventStore, StoreError};
use fleet_proto::metric;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::feedback::health::{Health, HealthConfig, is_score};
use crate::feedback::policy::Policies;

mod resume;

/// Events taken from the store at a time.
const CHUNK: usize = 20_000;

/// Pause after a look at the store, so that what comes in many small batches is judged together.
const PAUSE: Duration = Duration::from_millis(100);

/// Longest pause between two looks at jobs that may have stopped reporting.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Events without a conclusion after which it is noted that they have been judged.
const NOTE_AFTER: u64 = 100_000;

/// How long agents may take to come back after Echo was away, milliseconds.
const COME_BACK_MS: f64 = 120_000.0;

/// Shortest time between two looks for jobs that stopped reporting, milliseconds.
const LOOK_AGAIN_MS: f64 = 1_000.0;

/// Pause after the store failed, before it is asked again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

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
    /// Number of the last event that the detector has taken; nothing before it knows where to go on.
    taken: Option<u64>,
    /// Number of the last event that is known to the store as judged.
    noted: u64,
    /// When agents could report again, the time of the start.
    listening_since: Nanos,
    /// How long agents may take from then on to come back, milliseconds; nothing to a new database.
    come_back_ms: f64,
    /// When it was last looked who has fallen silent.
    looked_at: Nanos,
    /// Concluded and not yet stored.
    pending: DetectorOutput,
    /// Policies that the table does not hold yet, the latest of each cluster.
    unpublished: BTreeMap<ClusterId, ClusterPolicy>,
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
            metric::ELAPSED,
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
            listening_since: clock.now(),
            store,
            clock,
            metrics,
            detector: Detector::new(settings),
            policies: Policies::default(),
            health: Health::new(health),
            table,
            progress,
            open: Vec::new(),
            taken: None,
            noted: 0,
            come_back_ms: 0.0,
            looked_at: Nanos::EARLIEST,
            pending: DetectorOutput::default(),
            unpublished: BTreeMap::new(),
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
                if stop.has_changed().is_err() {
                    return;
                }
                continue;
            }
            tokio::time::sleep(PAUSE).await;
            tokio::select! {
                changed = committed.changed() => if changed.is_err() { return },
                changed = stop.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Judges everything that is committed by now. Learning again what is usual is given up when Echo is to stop.
    async fn catch_up(&mut self, stop: &watch::Receiver<bool>) -> Result<(), StoreError> {
        let mut taken = match self.taken {
            Some(taken) => taken,
            None => match self.resume(stop).await? {
                Some(judged) => judged,
                None => return Ok(()),
            },
        };
        loop {
            let tail = self.store.tail(taken, &self.metrics, CHUNK).await?;
            let is_last = tail.events.len() < CHUNK;
            let mut conclusions = self.observe(tail.events);
            taken = tail.until.max(taken);
            self.taken = Some(taken);
            if is_last {
                conclusions.append(self.end_silent());
            }
            let changed = self
                .policies
                .update(self.detector.policy_inputs(), self.detector.settings());
            self.announce(&conclusions);
            self.pending.append(conclusions);
            let records = changed.iter().map(|(record, _)| record.clone());
            self.pending.policies.extend(records);
            self.unpublished.extend(
                changed
                    .into_iter()
                    .map(|(record, policy)| (record.cluster, policy)),
            );
            self.publish();
            self.store_pending(taken).await?;
            self.progress.send_replace(taken);
            if is_last {
                return Ok(());
            }
        }
    }

    /// Forgets whatever was taken.
    fn forget(&mut self) {
        self.detector = Detector::new(self.detector.settings().clone());
        self.health = Health::new(self.health.config());
        self.policies = Policies::default();
    }

    fn observe(&mut self, events: Vec<StoredEvent>) -> DetectorOutput {
        let (scores, signals): (Vec<_>, Vec<_>) = events.into_iter().partition(is_score);
        let events = signals.len();
        let span = tracing::trace_span!(target: spans::TARGET, spans::DETECT, events);
        let mut conclusions = span.in_scope(|| self.detector.observe(&signals));
        conclusions.append(self.health.observe(&scores));
        conclusions
    }

    /// Ends what nobody reports of any more. Who could not report because Echo was away has not fallen silent, so nobody is
    /// asked about until agents had the time to come back.
    fn end_silent(&mut self) -> DetectorOutput {
        let now = self.clock.now();
        // A clock that was set back says nothing about how long ago something was.
        let is_within = |ms: f64, since: Nanos| (0.0..ms).contains(&now.millis_since(since));
        if is_within(self.come_back_ms, self.listening_since)
            || is_within(LOOK_AGAIN_MS, self.looked_at)
        {
            return DetectorOutput::default();
        }
        self.looked_at = now;
        let mut conclusions = self.detector.end_silent_jobs(now);
        conclusions.append(self.health.end_silent_nodes(now));
        conclusions
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

    /// Stores what is pending, which rests on the events up to `taken`. It is kept until it is stored, because the detector
    /// will not conclude it again.
    async fn store_pending(&mut self, taken: u64) -> Result<(), StoreError> {
        if self.pending.is_empty() && taken.saturating_sub(self.noted) < NOTE_AFTER {
            return Ok(());
        }
        self.pending.judged = Some(taken);
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
        self.noted = taken;
        self.pending = DetectorOutput::default();
        Ok(())
    }

    /// One log line when an incident is raised and one when it is cleared.
    fn announce(&mut self, conclusions: &DetectorOutput) {
        for incident in &conclusions.incidents {
            let known = self.open.iter().position(|open| open.id == incident.id);
            match (incident.state, known) {
                (IncidentState::Open, None) => {
                    announce(incident, "raised");
                    self.open.push(incident.clone());
                }
                (IncidentState::Cleared, Some(index)) => {
                    announce(incident, "cleared");
                    self.open.swap_remove(index);
                }
                (IncidentState::Open, Some(_)) | (IncidentState::Cleared, None) => {}
            }
        }
    }
}

fn announce(incident: &Incident, what: &str) {
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

#[cfg(test)]
mod tests;
