//! Node of each rank of a job.
//!
//! A rank runs on one node at a time. The first node to report it owns it, and only that node's
//! points are analysed: otherwise an agent that claims another rank's number could have an incident
//! attributed to that rank. A node that stops reporting loses the rank to the next one.

use std::collections::BTreeMap;

use echo_core::ids::{NodeId, Rank};
use echo_core::model::event::Event;
use echo_core::units::Nanos;

/// Silence after which a node loses its ranks to others that report them, milliseconds of arrival
/// time.
const LEASE_MS: f64 = 30_000.0;

/// The node of each rank.
#[derive(Debug, Default)]
pub(super) struct RankOwners(BTreeMap<Rank, RankOwner>);

#[derive(Debug)]
struct RankOwner {
    node: NodeId,
    /// Event time of its first point.
    since: Nanos,
    /// Arrival time of its latest point.
    last_received: Nanos,
    rival: Option<RivalNode>,
}

/// A node that reports a rank which another node owns.
#[derive(Debug)]
struct RivalNode {
    node: NodeId,
    /// Event time of its first and of its latest point.
    first: Nanos,
    last: Nanos,
    /// Arrival time of its latest point.
    last_received: Nanos,
    points: u64,
    /// True if the owner has also reported since then.
    is_contested: bool,
}

/// A rank that two nodes report at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Rank within the job.
    pub rank: Rank,
    /// The first node, whose points are analysed.
    pub owner: NodeId,
    /// The node whose points are ignored.
    pub rival: NodeId,
    /// Number of those points.
    pub points: u64,
    /// First and latest point of the second node, by its own clock.
    pub seen: (Nanos, Nanos),
}

impl RankOwners {
    /// Returns true if the point comes from the node that owns the rank.
    pub(super) fn admit(&mut self, rank: Rank, event: &Event, received: Nanos) -> bool {
        let node = &event.origin.node;
        let new = || RankOwner {
            node: node.clone(),
            since: event.timestamp,
            last_received: received,
            rival: None,
        };
        let owner = self.0.entry(rank).or_insert_with(new);
        if owner.node == *node {
            owner.last_received = owner.last_received.max(received);
            if let Some(rival) = &mut owner.rival {
                // Points that a node buffered while Echo was down, from before the other node
                // reported, are no conflict.
                rival.is_contested |= event.timestamp >= rival.first && rival.last >= owner.since;
            }
            return true;
        }
        if is_past(owner.last_received, received) {
            *owner = new();
            return true;
        }
        match &mut owner.rival {
            Some(rival) if rival.node == *node && !is_past(rival.last_received, received) => {
                rival.points += 1;
                rival.last = rival.last.max(event.timestamp);
                rival.last_received = rival.last_received.max(received);
            }
            Some(rival) if !is_past(rival.last_received, received) => {}
            rival => {
                *rival = Some(RivalNode {
                    node: node.clone(),
                    first: event.timestamp,
                    last: event.timestamp,
                    last_received: received,
                    points: 1,
                    is_contested: false,
                });
            }
        }
        false
    }

    /// The ranks that two nodes report at an instant of arrival time.
    pub(super) fn conflicts(&self, now: Nanos) -> impl Iterator<Item = Conflict> {
        self.0.iter().filter_map(move |(rank, owner)| {
            let rival = owner.rival.as_ref()?;
            let is_ongoing = rival.is_contested && !is_past(rival.last_received, now);
            is_ongoing.then(|| Conflict {
                rank: *rank,
                owner: owner.node.clone(),
                rival: rival.node.clone(),
                points: rival.points,
                seen: (rival.first, rival.last),
            })
        })
    }
}

fn is_past(last_received: Nanos, now: Nanos) -> bool {
    now.millis_since(last_received) > LEASE_MS
}
