//! Detector loop: reads new events from the store, stores the detector output, and publishes
//! policies. It reads committed events only, so its output can be reproduced from the database.
//! After a restart it continues where it stopped ([`resume`]), in time that does not depend on the
//! size of the database.

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

/// Maximum number of events read from the store at a time.
const CHUNK: usize = 20_000;

/// Pause after a read, so that many small batches are processed together.
const PAUSE: Duration = Duration::from_millis(100);

/// Maximum time between two checks for jobs that have crashed or stopped reporting.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Number of events without detector output after which the position is stored.
const RECORD_AFTER: u64 = 100_000;

/// Time for agents to reconnect after a downtime, milliseconds.
const RECONNECT_MS: f64 = 120_000.0;

/// Minimum time between two checks for jobs that stopped reporting, milliseconds.
const MIN_CHECK_INTERVAL_MS: f64 = 1_000.0;

/// Pause before retrying after a store error.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Detector loop over the store.
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
    /// ID of the last event passed to the detector; `None` before it has resumed.
    position: Option<u64>,
    /// ID of the last event that the store has recorded as processed.
    recorded: u64,
    /// Time of the start, from which agents could report.
    listening_since: Nanos,
    /// Time for agents to reconnect from then on, milliseconds; zero for a new database.
    reconnect_ms: f64,
    /// Time of the last check for silent jobs.
    checked_at: Nanos,
    /// Output that is not stored yet.
    pending: DetectorOutput,
    /// Latest policy of each cluster that the table does not contain yet.
    unpublished: BTreeMap<ClusterId, ClusterPolicy>,
}

impl Refresh {
    /// Creates a loop over `store` that publishes policies through `table` and the ID of the last
    /// processed event through `progress`.
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
            metric::ISSUED,
            metric::DURATION,
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
            position: None,
            recorded: 0,
            reconnect_ms: 0.0,
            checked_at: Nanos::EARLIEST,
            pending: DetectorOutput::default(),
            unpublished: BTreeMap::new(),
        })
    }

    /// Runs until `stop` turns true, then processes what is committed and returns.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut committed = self.store.committed();
        loop {
            // Read before catching up, so that events committed before the stop are processed.
            let stopping = *stop.borrow_and_update();
            let caught_up = self.catch_up(&stop).await;
            if stopping {
                return;
            }
            if let Err(error) = caught_up {
                let error = chain(&error);
                warn!(
                    error,
                    "the detector cannot read from or write to the store; retrying"
                );
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
                () = tokio::time::sleep(IDLE_CHECK_INTERVAL) => {}
            }
        }
    }

    /// Processes all committed events. Resuming is abandoned when `stop` is set.
    async fn catch_up(&mut self, stop: &watch::Receiver<bool>) -> Result<(), StoreError> {
        let mut position = match self.position {
            Some(position) => position,
            None => match self.resume(stop).await? {
                Some(judged) => judged,
                None => return Ok(()),
            },
        };
        loop {
            let tail = self.store.tail(position, &self.metrics, CHUNK).await?;
            let is_last = tail.events.len() < CHUNK;
            let mut output = self.observe(tail.events);
            position = tail.until.max(position);
            self.position = Some(position);
            if is_last {
                output.append(self.end_silent());
            }
            let changed = self
                .policies
                .update(self.detector.policy_inputs(), self.detector.settings());
            self.log_changes(&output);
            self.pending.append(output);
            let records = changed.iter().map(|(record, _)| record.clone());
            self.pending.policies.extend(records);
            self.unpublished.extend(
                changed
                    .into_iter()
                    .map(|(record, policy)| (record.cluster, policy)),
            );
            self.publish();
            self.store_pending(position).await?;
            self.progress.send_replace(position);
            if is_last {
                return Ok(());
            }
        }
    }

    /// Resets the detector, the health scores and the policies.
    fn reset(&mut self) {
        self.detector = Detector::new(self.detector.settings().clone());
        self.health = Health::new(self.health.config());
        self.policies = Policies::default();
    }

    fn observe(&mut self, events: Vec<StoredEvent>) -> DetectorOutput {
        let (scores, signals): (Vec<_>, Vec<_>) = events.into_iter().partition(is_score);
        let events = signals.len();
        let span = tracing::trace_span!(target: spans::TARGET, spans::DETECT, events);
        let mut output = span.in_scope(|| self.detector.observe(&signals));
        output.append(self.health.observe(&scores));
        output
    }

    /// Judges jobs that have ended, and ends incidents of silent jobs and nodes. Agents that could not
    /// report during a downtime are not silent, so nothing ends until they had time to reconnect.
    fn end_silent(&mut self) -> DetectorOutput {
        let now = self.clock.now();
        // A clock that was set back gives no elapsed time.
        let is_recent = |ms: f64, since: Nanos| (0.0..ms).contains(&now.millis_since(since));
        if is_recent(MIN_CHECK_INTERVAL_MS, self.checked_at) {
            return DetectorOutput::default();
        }
        self.checked_at = now;
        let mut output = self.detector.find_ended_jobs(now);
        if is_recent(self.reconnect_ms, self.listening_since) {
            return output;
        }
        output.append(self.detector.end_silent_jobs(now));
        output.append(self.health.end_silent_nodes(now));
        output
    }

    /// Replaces the table once if anything in it has changed.
    fn publish(&mut self) {
        let unpublished = std::mem::take(&mut self.unpublished);
        let table = self.table.borrow().clone();
        let is_changed = |(cluster, health): &(&ClusterId, HealthThreshold)| {
            table.for_cluster(cluster).and_then(|known| known.health) != Some(*health)
        };
        let health: Vec<_> = self
            .health
            .thresholds(self.clock.now())
            .filter(is_changed)
            .collect();
        if unpublished.is_empty() && health.is_empty() {
            return;
        }
        let replace = |table: &mut PolicyTable| {
            for (cluster, policy) in unpublished {
                table.set_policy(cluster, policy);
            }
            for (cluster, health) in health {
                table.set_health(cluster.clone(), health);
            }
        };
        // Actions change the table as well.
        self.table
            .send_modify(|table| replace(Arc::make_mut(table)));
    }

    /// Stores the pending output, which covers the events up to `position`. It is kept until it is
    /// stored, because the detector will not produce it again.
    async fn store_pending(&mut self, position: u64) -> Result<(), StoreError> {
        if self.pending.is_empty() && position.saturating_sub(self.recorded) < RECORD_AFTER {
            return Ok(());
        }
        self.pending.judged = Some(position);
        match self.store.store_verdicts(self.pending.clone()).await {
            // A retry would fail again; dropping the output is better than stopping the detector.
            Err(error) if error.code() == Code::Invalid => {
                tracing::error!(
                    error = chain(&error),
                    "the store rejected detector output, which is dropped"
                );
            }
            stored => stored?,
        }
        self.recorded = position;
        self.pending = DetectorOutput::default();
        Ok(())
    }

    /// Logs each incident that is raised or cleared.
    fn log_changes(&mut self, output: &DetectorOutput) {
        for incident in &output.incidents {
            let known = self.open.iter().position(|open| open.id == incident.id);
            match (incident.state, known) {
                (IncidentState::Open, None) => {
                    log_incident(incident, "raised");
                    self.open.push(incident.clone());
                }
                (IncidentState::Cleared, Some(index)) => {
                    log_incident(incident, "cleared");
                    self.open.swap_remove(index);
                }
                (IncidentState::Open, Some(_)) | (IncidentState::Cleared, None) => {}
            }
        }
    }
}

fn log_incident(incident: &Incident, what: &str) {
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
