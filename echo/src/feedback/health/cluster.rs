//! Health scores of one cluster. Invariants: a score is compared with what its peers had reported
//! before it arrived, so scores that arrive together can be processed in any order and in any
//! batches. Only [`Cluster::observe`] moves the average, so queries change nothing, and a replay
//! gives the same result.

use std::collections::{BTreeMap, BTreeSet};

use echo_core::ids::{ClusterId, NodeId};
use echo_core::model::detector_output::{Incident, IncidentState};
use echo_core::model::event::StoredEvent;
use echo_core::policy_table::HealthThreshold;
use echo_core::units::Nanos;

use super::HealthConfig;
use super::sender::Sender;
use super::sender_state::{SenderState, Thresholds, identity};
use super::threshold::{fresh, smoothed};

/// Arrival time after which a score expires, milliseconds.
const VALID_MS: f64 = 60_000.0;

/// Arrival time without a comparable score after which the incident of a sender is cleared,
/// milliseconds. Five times the validity of a score, so that a restart of agents or of a part of
/// the network does not clear it.
const UNJUDGED_MS: f64 = 300_000.0;

/// Arrival time after which a silent node is dropped, milliseconds.
const EXPIRE_MS: f64 = 600_000.0;

/// Minimum arrival time between two computations, milliseconds: thousands of nodes report
/// independently, and each computation reads all of them.
const COMPUTE_EVERY_MS: f64 = 250.0;

/// Latest score and state of a sender.
#[derive(Debug)]
struct Latest {
    score: f64,
    received: Nanos,
    /// Arrival time of the last score that was compared with the peers.
    judged: Option<Nanos>,
    state: SenderState,
}

impl Latest {
    /// Clears the incident if no score has been comparable for too long at `now`.
    fn end_unjudged(&mut self, now: Nanos, quorum: usize) -> Option<Incident> {
        let is_old = |judged: &mut Nanos| now.millis_since(*judged) > UNJUDGED_MS;
        let judged = self.judged.take_if(is_old)?;
        let reason = if self.received > judged {
            format!("fewer than {quorum} nodes have reported since, so there is no threshold")
        } else {
            "the node has not reported since".to_owned()
        };
        self.state.end(&reason)
    }
}

/// Health scores of one cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    name: ClusterId,
    senders: BTreeMap<Sender, Latest>,
    /// Arrival time of the latest score.
    at: Nanos,
    /// Moving average of the threshold, computed at arrival time `computed`.
    average: Option<f64>,
    computed: Nanos,
    /// Thresholds for scores that arrive now; `None` without quorum.
    thresholds: Option<Thresholds>,
}

impl Cluster {
    pub(super) const fn new(name: ClusterId, at: Nanos) -> Self {
        Self {
            name,
            senders: BTreeMap::new(),
            at,
            average: None,
            computed: at,
            thresholds: None,
        }
    }

    /// Processes a score and appends changed incidents to `changed`.
    pub(super) fn observe(
        &mut self,
        stored: &StoredEvent,
        score: f64,
        config: &HealthConfig,
        changed: &mut Vec<Incident>,
    ) {
        let received = stored.received.max(self.at);
        if received > self.at {
            self.advance(received, config, changed);
        }
        let sender = Sender::from_origin(&stored.event.origin);
        let entry = self.senders.entry(sender.clone());
        let latest = entry.or_insert_with(|| Latest {
            score,
            received,
            judged: None,
            state: SenderState::default(),
        });
        (latest.score, latest.received) = (score, received);
        if let Some(thresholds) = &self.thresholds {
            latest.judged = Some(received);
            let sample = (&self.name, &sender, stored.event.timestamp);
            changed.extend(latest.state.observe(sample, score, thresholds));
        }
    }

    /// Restores the incidents of its senders and removes them from `known`. Silence counts from
    /// `since`.
    pub(super) fn restore(&mut self, known: &mut Vec<Incident>, since: Nanos) {
        for (sender, latest) in &mut self.senders {
            let is_its = |incident: &mut Incident| {
                incident.id == identity(&self.name, sender, incident.first_seen)
            };
            // The latest, if several are known.
            let its = known
                .extract_if(.., is_its)
                .max_by_key(|incident| (incident.state == IncidentState::Open, incident.last_seen));
            if its.is_some() {
                latest.judged = latest.judged.max(Some(since.max(latest.received)));
            }
            latest.state.restore(its);
        }
    }

    /// Computes the thresholds for scores that arrive at `now`, from those that arrived before.
    fn advance(&mut self, now: Nanos, config: &HealthConfig, changed: &mut Vec<Incident>) {
        self.at = now;
        let elapsed_ms = now.millis_since(self.computed);
        if self.average.is_some() && elapsed_ms < COMPUTE_EVERY_MS {
            return;
        }
        self.drop_silent(now, config, changed);
        self.thresholds = self.fresh(now, config).map(|fresh| {
            let average = smoothed(self.average, fresh, config.ema_alpha, elapsed_ms);
            self.average = Some(average);
            Thresholds { average, fresh }
        });
        self.computed = now;
    }

    /// Returns the threshold of the scores that are valid at `now`; `None` without quorum.
    fn fresh(&self, now: Nanos, config: &HealthConfig) -> Option<f64> {
        let has_quorum = self.n_nodes(now) >= config.quorum;
        let valid = self.valid(now).map(|(_, latest)| latest.score);
        let scores: Vec<f64> = valid.collect();
        let fresh = fresh(&scores, self.average, config.k);
        fresh.filter(|_| has_quorum)
    }

    fn valid(&self, now: Nanos) -> impl Iterator<Item = (&Sender, &Latest)> {
        let senders = self.senders.iter();
        senders.filter(move |(_, latest)| now.millis_since(latest.received) <= VALID_MS)
    }

    fn n_nodes(&self, now: Nanos) -> usize {
        let nodes: BTreeSet<&NodeId> = self.valid(now).map(|(sender, _)| &sender.node).collect();
        nodes.len()
    }

    /// Returns the threshold at `now`, including the scores of the current arrival time.
    pub(super) fn threshold(&self, now: Nanos, config: &HealthConfig) -> HealthThreshold {
        let now = now.max(self.at);
        let elapsed_ms = self.at.millis_since(self.computed);
        let threshold = self
            .fresh(now, config)
            .map(|fresh| smoothed(self.average, fresh, config.ema_alpha, elapsed_ms).max(0.0));
        HealthThreshold {
            threshold,
            quorum_met: threshold.is_some(),
            nodes_reporting: self.n_nodes(now),
            nodes_needed: config.quorum,
            k: config.k,
            ema_alpha: config.ema_alpha,
            computed_at: self.at,
        }
    }

    /// Returns whether no sender is left.
    pub(super) fn is_empty(&self) -> bool {
        self.senders.is_empty()
    }

    /// Clears open incidents of senders without a comparable score for too long at `now`, and drops
    /// silent senders. Without senders, the average is reset.
    pub(super) fn drop_silent(
        &mut self,
        now: Nanos,
        config: &HealthConfig,
        changed: &mut Vec<Incident>,
    ) {
        self.senders.retain(|_, latest| {
            changed.extend(latest.end_unjudged(now, config.quorum));
            let last_active = latest
                .received
                .max(latest.judged.unwrap_or(latest.received));
            now.millis_since(last_active) <= EXPIRE_MS
        });
        if self.senders.is_empty() {
            (self.average, self.thresholds) = (None, None);
        }
    }
}
