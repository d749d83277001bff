//! State of the actions, which survives a restart.

use std::collections::BTreeMap;

use echo_core::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::notice::{Notice, Phase};
use crate::policy::{Destination, Mode};
use crate::refusal::Refusal;

/// Deliveries that wait for one consumer, at most.
pub const MAX_QUEUED: usize = 1_000;

/// Everything that is kept.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct State {
    /// When each open incident was first seen, Unix nanoseconds by the clock of Echo.
    pub seen: BTreeMap<String, i64>,
    /// Actions in force.
    pub open: Vec<OpenAction>,
    /// Deliveries that have not been made, oldest first.
    pub queue: Vec<Delivery>,
    /// Refusals by consumer and target that have been recorded.
    #[serde(skip)]
    pub refused: BTreeMap<(String, String), Refusal>,
}

/// An action in force: the consumer has been notified, or will be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenAction {
    /// Name of the consumer.
    pub consumer: String,
    /// Incident, or cluster and node.
    pub target: String,
    /// Mode in which it was started; it ends in the same one.
    pub mode: Mode,
    /// False if the consumer has rejected it, so that there is nothing to end.
    pub is_applied: bool,
    /// When it was started, Unix nanoseconds.
    pub opened_at: i64,
    /// When it was last reported, Unix nanoseconds.
    pub reported_at: i64,
    /// Number of deliveries so far.
    pub sequence: u32,
    /// Latest facts.
    pub notice: Notice,
}

/// A message for a consumer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Delivery {
    /// Idempotency key: the same for every attempt, and for no other delivery.
    pub key: String,
    /// Name of the consumer.
    pub consumer: String,
    /// Incident, or cluster and node.
    pub target: String,
    /// What happened.
    pub phase: Phase,
    /// Facts.
    pub notice: Notice,
    /// Facts that were sent before; only of a change.
    pub previous: Option<Notice>,
    /// When it was planned, Unix nanoseconds.
    pub planned_at: i64,
    /// When the next attempt is due, Unix nanoseconds.
    pub due_at: i64,
    /// Attempts so far.
    pub attempts: u32,
    /// True while an attempt is in flight.
    #[serde(skip)]
    pub is_in_flight: bool,
}

impl State {
    /// Returns true if no further delivery may be queued for the consumer.
    pub fn is_full(&self, consumer: &str) -> bool {
        self.n_queued(consumer) >= MAX_QUEUED
    }

    /// Number of deliveries that wait for the consumer.
    pub fn n_queued(&self, consumer: &str) -> usize {
        let own = self.queue.iter().filter(|one| one.consumer == consumer);
        own.count()
    }

    /// Action in force for a target.
    pub fn action(&self, consumer: &str, target: &str) -> Option<&OpenAction> {
        self.open
            .iter()
            .find(|action| action.consumer == consumer && action.target == target)
    }
}

impl OpenAction {
    /// Returns the next delivery of this action.
    pub fn next_delivery(&mut self, phase: Phase, now: Nanos) -> Delivery {
        self.sequence += 1;
        self.reported_at = now.value();
        Delivery {
            key: format!(
                "{}-{}-{}-{}",
                self.consumer,
                self.notice.incident_id,
                self.opened_at / 1_000_000,
                self.sequence
            ),
            consumer: self.consumer.clone(),
            target: self.target.clone(),
            phase,
            notice: self.notice.clone(),
            previous: None,
            planned_at: now.value(),
            due_at: now.value(),
            attempts: 0,
            is_in_flight: false,
        }
    }
}

/// Returns what an action of this destination is about: the node, or the incident.
pub fn target(destination: &Destination, notice: &Notice) -> String {
    if destination.is_per_node() {
        format!("{}/{}", notice.cluster, notice.node)
    } else {
        notice.incident_id.clone()
    }
}
