//! Health scores of Ingero agents: the threshold that they are compared with, and the nodes below it. Pure: a function of
//! the stored events and of the time at which one asks.
//!
//! An Ingero agent rates its own node from 0 to 1 ([`fleet_proto::metric::INGERO_HEALTH_SCORE`]) and asks what is too
//! little. The answer comes from its healthy peers (`threshold`): the median of the latest scores less k robust
//! deviations. Ingero's own k of 2 flags somebody in three windows of four in a healthy cluster of 64 nodes; the default
//! here is the usual cut of the modified z-score, 3.5, and deviations are never taken for less than a hundredth of the
//! scale, so that nodes that all report the same number are not told apart by their rounding.
//!
//! A node that is below the threshold twice in a row, with quorum, is reported until three scores in a row are good
//! (`case`). An incident that nothing speaks for any more, because the node or too many of its peers have fallen silent for
//! five minutes, is cleared and says so. How late it is and what it costs, a score does not say.

use std::collections::BTreeMap;

use echo_analysis::incident::abandoned;
use echo_core::ids::ClusterId;
use echo_core::model::detector_output::{DetectorOutput, Incident, IncidentState};
use echo_core::model::event::{Reading, StoredEvent};
use echo_core::policy_table::HealthThreshold;
use echo_core::units::Nanos;
use fleet_proto::metric;

use self::case::cohort;
use self::cluster::Cluster;

mod case;
mod cluster;
mod sender;
#[cfg(test)]
mod tests;
mod threshold;

/// What the operator can tune.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HealthConfig {
    /// Robust deviations below the median at which the threshold lies.
    pub k: f64,
    /// Weight of a threshold computed five seconds after the one before, above 0 and up to 1.
    pub ema_alpha: f64,
    /// Nodes that have to report for a threshold.
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

/// The health scores of all clusters.
#[derive(Debug)]
pub struct Health {
    config: HealthConfig,
    clusters: BTreeMap<ClusterId, Cluster>,
    ignored: u64,
}

impl Health {
    /// No scores yet.
    pub const fn new(config: HealthConfig) -> Self {
        Self {
            config,
            clusters: BTreeMap::new(),
            ignored: 0,
        }
    }

    /// What the operator has tuned.
    pub const fn config(&self) -> HealthConfig {
        self.config
    }

    /// Takes health scores in the order of their numbers and says what follows from them. Other events, and scores that
    /// are none, are left out; the latter are counted, although ingest already rejects them.
    pub fn observe(&mut self, events: &[StoredEvent]) -> DetectorOutput {
        let mut conclusions = DetectorOutput::default();
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
                cluster.observe(stored, score, &self.config, &mut conclusions.incidents);
            }
        }
        conclusions
    }

    /// Goes on with incidents as they were concluded before, after their scores have been taken again; those whose sender
    /// has gone are ended. Silence counts from `since` on, arrival time: before, nobody could report.
    pub fn adopt(&mut self, mut known: Vec<Incident>, since: Nanos) -> DetectorOutput {
        for (name, cluster) in &mut self.clusters {
            let is_its = |incident: &mut Incident| incident.cluster == *name;
            let mut its = known.extract_if(.., is_its).collect();
            cluster.adopt(&mut its, since);
            known.append(&mut its);
        }
        known.retain(|incident| incident.state == IncidentState::Open);
        DetectorOutput {
            incidents: known.into_iter().map(abandoned).collect(),
            ..DetectorOutput::default()
        }
    }

    /// Whether an incident is about health scores.
    pub fn is_about(incident: &Incident) -> bool {
        incident.cohort == cohort(&incident.cluster)
    }

    /// Clears what is open on nodes that could not be judged for five minutes at `now` (arrival time), and forgets those
    /// that have been silent for ten.
    pub fn end_silent_nodes(&mut self, now: Nanos) -> DetectorOutput {
        let mut conclusions = DetectorOutput::default();
        self.clusters.retain(|_, cluster| {
            cluster.forget_silent(now, &self.config, &mut conclusions.incidents);
            !cluster.is_empty()
        });
        conclusions
    }

    /// What the clusters' scores are compared with at `now` (arrival time).
    pub fn thresholds(&self, now: Nanos) -> impl Iterator<Item = (&ClusterId, HealthThreshold)> {
        let thresholds = self.clusters.iter();
        thresholds.map(move |(name, cluster)| (name, cluster.threshold(now, &self.config)))
    }

    /// Scores that were none: not between 0 and 1.
    pub const fn ignored(&self) -> u64 {
        self.ignored
    }
}

/// Whether the event is a health score.
pub fn is_score(stored: &StoredEvent) -> bool {
    stored.event.metric.as_str() == metric::INGERO_HEALTH_SCORE
}

/// The score, if it is one.
fn score(reading: Reading) -> Option<f64> {
    let score = match reading {
        Reading::Double(value) => value,
        Reading::Int(0) => 0.0,
        Reading::Int(1) => 1.0,
        Reading::Int(_) | Reading::Histogram(_) => return None,
    };
    (0.0..=1.0).contains(&score).then_some(score)
}
