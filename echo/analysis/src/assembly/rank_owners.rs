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
    heard: Nanos,
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
    heard: Nanos,
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
    pub holder: NodeId,
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
            heard: received,
            rival: None,
        };
        let holder = self.0.entry(rank).or_insert_with(new);
        if holder.node == *node {
            holder.heard = holder.heard.max(received);
            if let Some(rival) = &mut holder.rival {
                // Points that a node buffered while Echo was down, from before the other node
                // reported, are no conflict.
                rival.is_contested |= event.timestamp >= rival.first && rival.last >= holder.since;
            }
            return true;
        }
        if is_past(holder.heard, received) {
            *holder = new();
            return true;
        }
        match &mut holder.rival {
            Some(rival) if rival.node == *node && !is_past(rival.heard, received) => {
                rival.points += 1;
                rival.last = rival.last.max(event.timestamp);
                rival.heard = rival.heard.max(received);
            }
            Some(rival) if !is_past(rival.heard, received) => {}
            rival => {
                *rival = Some(RivalNode {
                    node: node.clone(),
                    first: event.timestamp,
                    last: event.timestamp,
                    heard: received,
                    points: 1,
                    is_contested: false,
                });
            }
        }
        false
    }

    /// The ranks that two nodes report at an instant of arrival time.
    pub(super) fn conflicts(&self, now: Nanos) -> impl Iterator<Item = Conflict> {
        self.0.iter().filter_map(move |(rank, holder)| {
            let rival = holder.rival.as_ref()?;
            let goes_on = rival.is_contested && !is_past(rival.heard, now);
            goes_on.then(|| Conflict {
                rank: *rank,
                holder: holder.node.clone(),
                rival: rival.node.clone(),
                points: rival.points,
                seen: (rival.first, rival.last),
            })
        })
    }
}

fn is_past(heard: Nanos, now: Nanos) -> bool {
    now.millis_since(heard) > LEASE_MS
}
