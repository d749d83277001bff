//! The health scores of one cluster.
//!
//! Invariants: a score is judged by what its peers had reported before it arrived, so scores that arrive together may be
//! taken in any order and in any pieces. Only [`Cluster::observe`] moves the average, so that asking changes nothing and
//! history judged again gives the same.

use std::collections::{BTreeMap, BTreeSet};

use super::HealthConfig;
use super::case::{Case, Line};
use super::threshold::{fresh, smoothed};
use crate::feedback::table::HealthThreshold;
use crate::ids::{ClusterId, JobId, NodeId, Rank, RankOf};
use crate::model::conclusion::Incident;
use crate::model::event::{Origin, StoredEvent};
use crate::units::Nanos;

/// Arrival time after which a score no longer counts, milliseconds.
const VALID_MS: f64 = 60_000.0;

/// Arrival time after which a node that is silent is forgotten, milliseconds.
const FORGET_MS: f64 = 600_000.0;

/// Least arrival time between two computations, milliseconds: thousands of nodes report on their own, and each
/// computation looks at all of them.
const COMPUTE_EVERY_MS: f64 = 250.0;

/// Who sends scores: a node, or one of its ranks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sender {
    pub(super) node: NodeId,
    pub(super) job: Option<JobId>,
    pub(super) rank: Option<Rank>,
}

impl Sender {
    fn of(origin: &Origin) -> Self {
        Self {
            node: origin.node.clone(),
            job: origin.job.clone(),
            rank: origin.rank.map(RankOf::rank),
        }
    }
}

/// The latest of a sender.
#[derive(Debug)]
struct Latest {
    score: f64,
    received: Nanos,
    case: Case,
}

/// The scores of one cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    name: ClusterId,
    senders: BTreeMap<Sender, Latest>,
    /// Arrival time of the latest score.
    at: Nanos,
    /// The average, and the arrival time that it was computed for.
    average: Option<f64>,
    computed: Nanos,
    /// What the scores that arrive now are judged by; nothing without quorum.
    line: Option<Line>,
}

impl Cluster {
    pub(super) const fn new(name: ClusterId, at: Nanos) -> Self {
        Self {
            name,
            senders: BTreeMap::new(),
            at,
            average: None,
            computed: at,
            line: None,
        }
    }

    /// Takes a score and adds the incidents that it changes to `changed`.
    pub(super) fn observe(
        &mut self,
        stored: &StoredEvent,
        score: f64,
        config: &HealthConfig,
        changed: &mut Vec<Incident>,
    ) {
        let received = stored.received.max(self.at);
        if received > self.at {
            self.arrive(received, config, changed);
        }
        let sender = Sender::of(&stored.event.origin);
        let entry = self.senders.entry(sender.clone());
        let latest = entry.or_insert_with(|| Latest {
            score,
            received,
            case: Case::default(),
        });
        (latest.score, latest.received) = (score, received);
        if let Some(line) = &self.line {
            let told = (&self.name, &sender, stored.event.timestamp);
            changed.extend(latest.case.judge(told, score, line));
        }
    }

    /// Computes what the scores that arrive at `now` are judged by, from those that arrived before.
    fn arrive(&mut self, now: Nanos, config: &HealthConfig, changed: &mut Vec<Incident>) {
        self.at = now;
        let elapsed_ms = now.millis_since(self.computed);
        if self.average.is_some() && elapsed_ms < COMPUTE_EVERY_MS {
            return;
        }
        self.forget_silent(now, changed);
        self.line = self.fresh(now, config).map(|fresh| {
            let average = smoothed(self.average, fresh, config.ema_alpha, elapsed_ms);
            self.average = Some(average);
            Line { average, fresh }
        });
        self.computed = now;
    }

    /// The threshold of the scores that are valid at `now`; nothing without quorum.
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

    /// What scores are compared with at `now`, the scores of the present arrival included.
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

    /// Whether all senders are forgotten.
    pub(super) fn is_empty(&self) -> bool {
        self.senders.is_empty()
    }

    /// Forgets the senders that are silent at `now` and clears what is open on them. When nobody is left, nothing is.
    pub(super) fn forget_silent(&mut self, now: Nanos, changed: &mut Vec<Incident>) {
        self.senders.retain(|_, latest| {
            let is_silent = now.millis_since(latest.received) > FORGET_MS;
            if is_silent {
                changed.extend(latest.case.end());
            }
            !is_silent
        });
        if self.senders.is_empty() {
            (self.average, self.line) = (None, None);
        }
    }
}
