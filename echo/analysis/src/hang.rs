//! Operations that never end, because ranks are missing or although all reporting ranks have
//! entered them.
//!
//! The progress of a rank is known only while it reports. A rank that fell silent while its peers
//! continued (its agent died, for example) may have continued as well: it is neither missing nor
//! present. A rank that fell silent when all stopped is missing, and its silence is the reason.

use std::collections::BTreeMap;
use std::time::Duration;

use echo_core::ids::{CommId, Rank};
use echo_core::units::Nanos;

use crate::assembly::progress::{Position, Progress};

/// A rank whose last report arrived at most this long before those of its peers has stopped
/// together with them, milliseconds. Agents report every four seconds, and reports may arrive late.
const TOGETHER_MS: f64 = 10_000.0;

/// An operation that does not end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hang {
    /// Communicator.
    pub comm: CommId,
    /// Sequence number of the operation.
    pub seq: u64,
    /// Ranks that entered it; in a standstill, ranks that wait for their GPUs.
    pub entered: Vec<Rank>,
    /// Ranks that did not.
    pub missing: Vec<Rank>,
    /// True if no rank is behind on any communicator: all ranks have stopped, and most wait for
    /// their GPUs.
    pub is_standstill: bool,
    /// Missing ranks whose process is stopped, by a signal or a debugger.
    pub stopped: Vec<Rank>,
    /// Missing ranks that have not reported anything since all ranks stopped.
    pub silent: Vec<Rank>,
    /// Ranks that fell silent while the others continued. It is unknown if they entered it.
    pub unknown: Vec<Rank>,
    /// Start of the wait of the rank that entered it first, by that rank's clock.
    pub since: Nanos,
    /// Latest report of that rank, by its clock.
    pub last_report: Nanos,
    /// True if it may still end, because it has lasted only a short time.
    pub is_stall: bool,
}

/// Limits on the duration of an operation.
#[derive(Debug, Clone, Copy)]
pub struct HangTimeouts {
    /// Limit beyond which it hangs, milliseconds of arrival time.
    pub hang_ms: f64,
    /// Limit beyond which it stalls, milliseconds by the clocks of the waiting ranks; `None` while
    /// the usual duration of operations is unknown.
    pub stall_ms: Option<f64>,
}

/// Hangs of a job at `now` (arrival time).
///
/// A job hangs if, on some communicator, at least half of the reporting ranks have issued an
/// operation that others have not, one of the ranks that issued it is alive, and no rank has
/// progressed within the time limit. If no rank is behind, the job is at a standstill when no rank
/// has issued anything on any communicator, and at least half of the live ranks have been blocked
/// in one synchronisation for longer than the time limit. A stopped process does not count as
/// waiting.
pub fn hangs(progress: &Progress, now: Nanos, timeouts: HangTimeouts) -> Vec<Hang> {
    let search = HangSearch {
        progress,
        now,
        timeouts,
    };
    let comms = progress.comms();
    let mut found: Vec<Hang> = comms
        .filter_map(|(comm, ranks)| search.hang(comm, ranks))
        .collect();
    if found.is_empty() {
        found.extend(search.standstill());
    }
    found
}

/// Start of the synchronisation in which a rank is blocked, by its own clock.
fn began_to_wait(position: &Position) -> Nanos {
    let waited = Duration::try_from_secs_f64(position.waiting_ms / 1e3).unwrap_or_default();
    position.last_timestamp.before(waited)
}

struct HangSearch<'p> {
    progress: &'p Progress,
    now: Nanos,
    timeouts: HangTimeouts,
}

impl HangSearch<'_> {
    fn hang(&self, comm: CommId, ranks: &BTreeMap<Rank, Position>) -> Option<Hang> {
        let front = ranks.values().map(|position| position.issued).max()?;
        let stopped = ranks.values().map(|position| position.advanced).max()?;
        let at_front = |position: &Position| position.issued == front;
        let (entered, behind): (Vec<_>, Vec<_>) =
            ranks.iter().partition(|(_, position)| at_front(position));
        let is_hang = self.is_past(stopped);
        if !is_hang && !entered.iter().all(|(_, position)| self.stalls(position)) {
            return None;
        }
        let behind = behind.into_iter().map(|(rank, _)| *rank);
        let (missing, unknown): (Vec<_>, Vec<_>) =
            behind.partition(|rank| self.has_reported_until(*rank, stopped));
        // A job whose every rank is silent has ended; it does not hang.
        let is_alive = |(_, position): &(&Rank, &Position)| !self.is_past(position.last_received);
        if missing.is_empty() || entered.len() < missing.len() {
            return None;
        }
        // Clocks of ranks are not compared: the duration is that of one rank that entered it.
        let (_, clock) = entered.iter().find(|rank| is_alive(rank))?;
        Some(Hang {
            comm,
            seq: front.checked_sub(1)?,
            since: clock.advanced_at,
            last_report: clock.last_timestamp,
            entered: entered.iter().map(|(rank, _)| **rank).collect(),
            stopped: missing
                .iter()
                .filter(|rank| ranks.get(rank).is_some_and(|at| at.is_stopped))
                .copied()
                .collect(),
            silent: self.silent_of(&missing),
            missing,
            is_standstill: false,
            unknown,
            is_stall: !is_hang,
        })
    }

    /// All ranks that are alive have stopped, and most of them wait for their GPUs.
    fn standstill(&self) -> Option<Hang> {
        let mut latest: BTreeMap<Rank, Position> = BTreeMap::new();
        let mut last: Option<(Nanos, CommId, u64)> = None;
        for (comm, ranks) in self.progress.comms() {
            for (rank, position) in ranks {
                last = last.max(Some((position.advanced, comm, position.issued)));
                let known = latest.entry(*rank).or_insert(*position);
                let advanced = known.advanced.max(position.advanced);
                let advanced_at = known.advanced_at.max(position.advanced_at);
                let newer = if position.last_timestamp > known.last_timestamp {
                    *position
                } else {
                    *known
                };
                *known = Position {
                    advanced,
                    advanced_at,
                    ..newer
                };
            }
        }
        let (stopped, comm, issued) = last?;
        let is_hang = self.is_past(stopped);
        let (alive, silent): (Vec<_>, Vec<_>) = latest
            .iter()
            .partition(|(_, position)| !self.is_past(position.last_received));
        let limit_ms = self.timeouts.stall_ms.unwrap_or(self.timeouts.hang_ms);
        let is_still = |position: &Position| {
            is_hang || position.last_timestamp.millis_since(position.advanced_at) >= limit_ms
        };
        let (waiting, others): (Vec<_>, Vec<_>) = alive
            .iter()
            .partition(|(_, position)| position.waiting_ms >= limit_ms && !position.is_stopped);
        let is_most = !waiting.is_empty() && waiting.len() * 2 >= alive.len();
        if alive.len() < 2 || !is_most || !alive.iter().all(|(_, position)| is_still(position)) {
            return None;
        }
        // Clocks of ranks are not compared: the duration is that of the first rank that waits.
        let (_, clock) = waiting.first()?;
        Some(Hang {
            comm,
            seq: issued.checked_sub(1)?,
            since: began_to_wait(clock),
            last_report: clock.last_timestamp,
            entered: waiting.iter().map(|(rank, _)| **rank).collect(),
            missing: others.iter().map(|(rank, _)| **rank).collect(),
            stopped: others
                .iter()
                .filter(|(_, position)| position.is_stopped)
                .map(|(rank, _)| **rank)
                .collect(),
            is_standstill: true,
            silent: silent.iter().map(|(rank, _)| **rank).collect(),
            unknown: Vec::new(),
            is_stall: !is_hang,
        })
    }

    fn is_past(&self, instant: Nanos) -> bool {
        self.now.millis_since(instant) > self.timeouts.hang_ms
    }

    /// Returns true if a rank that entered the operation has reported for long enough since then.
    fn stalls(&self, position: &Position) -> bool {
        let waited_ms = position.last_timestamp.millis_since(position.advanced_at);
        self.timeouts
            .stall_ms
            .is_some_and(|stall_ms| waited_ms >= stall_ms)
    }

    /// Returns true if the rank still reported when all ranks stopped.
    fn has_reported_until(&self, rank: Rank, stopped: Nanos) -> bool {
        let alive = self.progress.alive(rank);
        alive.is_some_and(|alive| stopped.millis_since(alive) <= TOGETHER_MS)
    }

    fn silent_of(&self, missing: &[Rank]) -> Vec<Rank> {
        let is_silent = |rank: &Rank| self.progress.alive(*rank).is_none_or(|at| self.is_past(at));
        missing.iter().copied().filter(is_silent).collect()
    }
}
