//! How far each rank has come on each communicator, so that an operation that never ends can be told from a slow one.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{CommId, Rank};
use crate::model::event::{Block, Event, Origin, Reading};
use crate::units::Nanos;

/// Communicators followed per job; ranks of one communicator are bounded by the job.
const MAX_COMMS: usize = 65_536;

/// Progress of a job's ranks.
#[derive(Debug, Default)]
pub struct Progress {
    comms: BTreeMap<CommId, BTreeMap<Rank, Position>>,
    alive: BTreeMap<Rank, (Arc<Origin>, Nanos)>,
}

/// How far one rank has come on one communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Operations issued.
    pub issued: u64,
    /// When the last of them was first reported, arrival time.
    pub advanced: Nanos,
    /// The same by the rank's own clock.
    pub advanced_at: Nanos,
    /// When the rank was last heard of on this communicator, arrival time.
    pub heard: Nanos,
    /// The same by the rank's own clock.
    pub heard_at: Nanos,
}

impl Progress {
    /// Notes a sign of life of a rank, whatever it is about.
    pub(super) fn hear(&mut self, rank: Rank, origin: &Arc<Origin>, received: Nanos) {
        self.alive.insert(rank, (Arc::clone(origin), received));
    }

    /// When the rank was last heard of, by whatever it reported, arrival time.
    pub fn alive(&self, rank: Rank) -> Option<Nanos> {
        self.alive.get(&rank).map(|(_, received)| *received)
    }

    /// Who the rank is.
    pub fn origin(&self, rank: Rank) -> Option<&Arc<Origin>> {
        self.alive.get(&rank).map(|(origin, _)| origin)
    }

    /// Takes a report of operations issued so far.
    pub(super) fn add(&mut self, block: &Block, rank: Rank, event: &Event, received: Nanos) {
        let Some(issued) = issued(event.reading) else {
            return;
        };
        if self.comms.len() >= MAX_COMMS && !self.comms.contains_key(&block.comm) {
            return;
        }
        let position = Position {
            issued,
            advanced: received,
            advanced_at: event.timestamp,
            heard: received,
            heard_at: event.timestamp,
        };
        let ranks = self.comms.entry(block.comm).or_default();
        let known = ranks.entry(rank).or_insert(position);
        if known.issued == issued {
            (known.heard, known.heard_at) = (received, event.timestamp);
        } else {
            *known = position;
        }
    }

    /// The communicators with the positions of their ranks.
    pub fn comms(&self) -> impl Iterator<Item = (CommId, &BTreeMap<Rank, Position>)> {
        self.comms.iter().map(|(comm, ranks)| (*comm, ranks))
    }
}

fn issued(reading: Reading) -> Option<u64> {
    match reading {
        Reading::Int(n) => u64::try_from(n).ok(),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "counts are whole numbers far below 2^53; the cast saturates"
        )]
        Reading::Double(n) => (n >= 0.0).then_some(n as u64),
        Reading::Histogram(_) => None,
    }
}
