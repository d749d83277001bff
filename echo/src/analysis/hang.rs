//! Operations that some ranks entered and that never end: who is missing.

use std::collections::BTreeMap;

use crate::analysis::assembly::progress::{Position, Progress};
use crate::ids::{CommId, Rank};
use crate::units::Nanos;

/// An operation that does not end because ranks are missing from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hang {
    /// Communicator.
    pub comm: CommId,
    /// Sequence number of the operation.
    pub seq: u64,
    /// Ranks that entered it.
    pub entered: Vec<Rank>,
    /// Ranks that did not.
    pub missing: Vec<Rank>,
    /// When the first rank entered it, by that rank's clock.
    pub since: Nanos,
    /// When a waiting rank was last heard of, by its clock.
    pub last_heard: Nanos,
}

/// Hangs of a job at `now` (arrival time): on some communicator at least half of the ranks have issued an operation that
/// others have not, one of those is alive, and nobody has moved for longer than `patience_ms`.
pub fn hangs(progress: &Progress, now: Nanos, patience_ms: f64) -> Vec<Hang> {
    progress
        .comms()
        .filter_map(|(comm, ranks)| hang(comm, ranks, now, patience_ms))
        .collect()
}

fn hang(
    comm: CommId,
    ranks: &BTreeMap<Rank, Position>,
    now: Nanos,
    patience_ms: f64,
) -> Option<Hang> {
    let front = ranks.values().map(|position| position.issued).max()?;
    let stands_still = |position: &Position| now.millis_since(position.advanced) > patience_ms;
    if !ranks.values().all(stands_still) {
        return None;
    }
    let at_front = |position: &Position| position.issued == front;
    let (entered, missing): (Vec<_>, Vec<_>) =
        ranks.iter().partition(|(_, position)| at_front(position));
    // A job whose every rank is silent has ended; it does not hang.
    let is_alive =
        |(_, position): &(&Rank, &Position)| now.millis_since(position.heard) <= patience_ms;
    if missing.is_empty() || entered.len() < missing.len() || !entered.iter().any(is_alive) {
        return None;
    }
    Some(Hang {
        comm,
        seq: front.checked_sub(1)?,
        since: entered
            .iter()
            .map(|(_, position)| position.advanced_at)
            .min()?,
        last_heard: entered
            .iter()
            .map(|(_, position)| position.heard_at)
            .max()?,
        entered: entered.into_iter().map(|(rank, _)| *rank).collect(),
        missing: missing.into_iter().map(|(rank, _)| *rank).collect(),
    })
}
