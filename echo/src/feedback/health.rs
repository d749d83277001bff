//! Health scores of Ingero agents: the threshold that they are compared with, and the nodes below
//! it. Pure: a function of the stored events and the current time. An Ingero agent rates its own
//! node from 0 to 1 ([`fleet_proto::metric::INGERO_HEALTH_SCORE`]) and requests the threshold. It
//! is computed from the healthy peers (`threshold`): the median of the latest scores minus k robust
//! standard deviations. Ingero's own k of 2 flags a node in three windows of four in a healthy
//! cluster of 64 nodes; the default here is the usual cutoff of the modified z-score, 3.5, and the
//! deviation is at least a hundredth of the scale, so that rounding does not separate nodes that
//! report the same score. A node that is below the threshold twice in a row, with quorum, is
//! reported until three scores in a row are good (`sender_state`). An incident without new
//! evidence, because the node or too many of its peers have been silent for five minutes, is
//! cleared with that reason. A score gives neither lag nor cost; the severity of an incident follows
//! from the largest distance of a score from the threshold.

use std::collections::BTreeMap;

use echo_analysis::incident::abandoned;
use echo_core::ids::ClusterId;
use echo_core::model::detector_output::{DetectorOutput, Incident, IncidentState};
use echo_core::model::event::{Reading, StoredEvent};
use echo_core::policy_table::HealthThreshold;
use echo_core::units::Nanos;
use fleet_proto::metric;

use self::cluster::Cluster;
use self::sender_state::cohort;

mod cluster;
mod sender;
mod sender_state;
#[cfg(test)]
mod tests;
mod threshold;

/// Tuning of the health threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HealthConfig {
    /// Distance of the threshold below the median, in robust standard deviations.
    pub k: f64,
    /// Weight of a new threshold in the moving average per five seconds, above 0 and at most 1.
    pub ema_alpha: f64,
    /// Minimum number of reporting nodes.
    pub quorum: usize,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            k: 3.5,
            ema_alpha: 0.2,
            quorum: 5,
        }
    }
}

/// Health scores of all clusters.
#[derive(Debug)]
pub struct Health {
    config: HealthConfig,
    clusters: BTreeMap<ClusterId, Cluster>,
    ignored: u64,
}

impl Health {
    /// Returns an empty state.
    pub const fn new(config: HealthConfig) -> Self {
        Self {
            config,
            clusters: BTreeMap::new(),
            ignored: 0,
        }
    }

    /// Returns the tuning.
    pub const fn config(&self) -> HealthConfig {
        self.config
    }

    /// Processes health scores in order of event ID and returns the changed incidents. Other events
    /// are ignored; invalid scores are ignored and counted, although ingest already rejects them.
    pub fn observe(&mut self, events: &[StoredEvent]) -> DetectorOutput {
        let mut output = DetectorOutput::default();
        for stored in events {
            if !is_score(stored) {
                continue;
            }
            let Some(score) = score(stored.event.reading) else {
                self.ignored += 1;
                continue;
            };
            let name = &stored.event.origin.cluster;
            if !self.clusters.contains_key(name) {
                let new = Cluster::new(name.clone(), stored.received);
                self.clusters.insert(name.clone(), new);
            }
            if let Some(cluster) = self.clusters.get_mut(name) {
                cluster.observe(stored, score, &self.config, &mut output.incidents);
            }
        }
        output
    }

    /// Restores known incidents after a restart, once recent scores have been replayed, and ends
    /// those whose sender is gone. Silence counts from `since` (arrival time), because senders
    /// could not report before.
    pub fn restore(&mut self, mut known: Vec<Incident>, since: Nanos) -> DetectorOutput {
        for (name, cluster) in &mut self.clusters {
            let is_its = |incident: &mut Incident| incident.cluster == *name;
            let mut its = known.extract_if(.., is_its).collect();
            cluster.restore(&mut its, since);
            known.append(&mut its);
        }
        known.retain(|incident| incident.state == IncidentState::Open);
        DetectorOutput {
            incidents: known.into_iter().map(abandoned).collect(),
            ..DetectorOutput::default()
        }
    }

    /// Returns whether an incident is about health scores.
    pub fn is_about(incident: &Incident) -> bool {
        incident.cohort == cohort(&incident.cluster)
    }

    /// Clears open incidents of nodes without a comparable score for five minutes at `now` (arrival
    /// time), and drops nodes that have been silent for ten minutes.
    pub fn end_silent_nodes(&mut self, now: Nanos) -> DetectorOutput {
        let mut output = DetectorOutput::default();
        self.clusters.retain(|_, cluster| {
            cluster.drop_silent(now, &self.config, &mut output.incidents);
            !cluster.is_empty()
        });
        output
    }

    /// Returns the thresholds of all clusters at `now` (arrival time).
    pub fn thresholds(&self, now: Nanos) -> impl Iterator<Item = (&ClusterId, HealthThreshold)> {
        let thresholds = self.clusters.iter();
        thresholds.map(move |(name, cluster)| (name, cluster.threshold(now, &self.config)))
    }

    /// Returns the number of invalid scores: not between 0 and 1.
    pub const fn ignored(&self) -> u64 {
        self.ignored
    }
}

/// Returns whether the event is a health score.
pub fn is_score(stored: &StoredEvent) -> bool {
    stored.event.metric.as_str() == metric::INGERO_HEALTH_SCORE
}

/// Returns the score, if it is valid.
fn score(reading: Reading) -> Option<f64> {
    let score = match reading {
        Reading::Double(value) => value,
        Reading::Int(0) => 0.0,
        Reading::Int(1) => 1.0,
        Reading::Int(_) | Reading::Histogram(_) => return None,
    };
    (0.0..=1.0).contains(&score).then_some(score)
}
