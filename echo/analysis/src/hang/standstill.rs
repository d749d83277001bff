//! Standstills: no rank is behind, and nothing progresses.
//!
//! A GPU waits for another one only in an operation that it has begun. One that is in no operation, while the
//! GPUs of the other ranks are in one, is stuck in earlier work.

use std::collections::BTreeMap;
use std::time::Duration;

use echo_core::ids::{CommId, Rank};
use echo_core::units::Nanos;
use fleet_hang::{Finding, Group, Job, Kind, Operation, analyse};

use super::{Hang, HangSearch, Standstill, nanos, ranks};
use crate::assembly::progress::{Position, Progress};

/// Latest state of each rank over all communicators, and the last operation of the job.
struct Latest {
    ranks: BTreeMap<Rank, Position>,
    stopped: Nanos,
    comm: CommId,
    issued: u64,
}

impl Latest {
    fn of(progress: &Progress) -> Option<Self> {
        let mut latest: BTreeMap<Rank, Position> = BTreeMap::new();
        let mut last: Option<(Nanos, CommId, u64)> = None;
        for (comm, ranks) in progress.comms() {
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
        Some(Self {
            ranks: latest,
            stopped,
            comm,
            issued,
        })
    }
}

impl HangSearch<'_> {
    /// All ranks that are alive have stopped, and most of them wait for their GPUs.
    pub(super) fn standstill(&self) -> Option<Hang> {
        let latest = Latest::of(self.progress)?;
        let (alive, silent): (Vec<_>, Vec<_>) = latest
            .ranks
            .iter()
            .partition(|(_, position)| !self.is_past(position.last_received));
        let of_alive: Vec<&Position> = alive.iter().map(|(_, position)| *position).collect();
        let is_hang = self.is_hang(latest.stopped, &of_alive);
        let limit_ms = self.timeouts.stall_ms.unwrap_or(self.timeouts.hang_ms);
        let is_still = |position: &Position| {
            is_hang || position.last_timestamp.millis_since(position.advanced_at) >= limit_ms
        };
        let is_blocked =
            |position: &Position| position.waiting_ms >= limit_ms && !position.is_stopped;
        let mut blocked = alive.iter().filter(|(_, position)| is_blocked(position));
        let is_most = blocked.clone().count() * 2 >= alive.len();
        if alive.len() < 2 || !is_most || !alive.iter().all(|(_, position)| is_still(position)) {
            return None;
        }
        // Clocks of ranks are not compared: the duration is that of the first rank that waits.
        let (_, clock) = blocked.next()?;
        let runs = |position: &Position| position.running > Some(0) && !position.is_stopped;
        let (waiting, others): (Vec<_>, Vec<_>) = alive
            .iter()
            .partition(|(_, position)| is_blocked(position) || runs(position));
        let ranks_of = |some: &[(&Rank, &Position)]| some.iter().map(|(rank, _)| **rank).collect();
        let stopped = others.iter().filter(|(_, position)| position.is_stopped);
        let stopped: Vec<_> = stopped.copied().collect();
        let (missing, known) = self.reason(&waiting, &others);
        let entered: Vec<Rank> = ranks_of(&waiting);
        let entered = entered.into_iter().filter(|rank| !missing.contains(rank));
        Some(Hang {
            comm: latest.comm,
            seq: latest.issued.checked_sub(1)?,
            since: if clock.is_timed {
                began_to_wait(clock).max(clock.advanced_at)
            } else {
                began_to_wait(clock)
            },
            last_report: clock.last_timestamp,
            entered: entered.collect(),
            missing,
            stopped: ranks_of(&stopped),
            standstill: Some(known),
            links: Vec::new(),
            silent: silent.iter().map(|(rank, _)| **rank).collect(),
            unknown: Vec::new(),
            is_stall: !is_hang,
            crash: None,
        })
    }

    /// Returns the ranks for which the others wait, and what is known of the reason. A rank that does not wait is
    /// the reason by itself.
    fn reason(
        &self,
        waiting: &[(&Rank, &Position)],
        others: &[(&Rank, &Position)],
    ) -> (Vec<Rank>, Standstill) {
        let ranks_of = |some: &[(&Rank, &Position)]| some.iter().map(|(rank, _)| **rank).collect();
        if !others.is_empty() {
            let is_idle = others.iter().all(|(_, own)| own.running == Some(0));
            let is_known = is_idle && waiting.iter().all(|(_, own)| own.running > Some(0));
            let known = if is_known {
                Standstill::Idle
            } else {
                Standstill::Unexplained
            };
            return (ranks_of(others), known);
        }
        let waiting_ranks: Vec<Rank> = ranks_of(waiting);
        if let Some(orders) = self.orders(&waiting_ranks) {
            let is_minority = orders.ranks.len() < waiting.len();
            let named = if is_minority {
                ranks(&orders.ranks)
            } else {
                Vec::new()
            };
            return (named, Standstill::Orders(orders.sentence));
        }
        match stuck_gpus(waiting) {
            Some(stuck) => (stuck, Standstill::StuckGpus),
            None => (Vec::new(), Standstill::Unexplained),
        }
    }

    /// Returns the finding that these ranks called two communicators in different orders: each waits in
    /// the one that it called first. All of them have called the same number of operations on both, the last
    /// ones shortly before they began to wait. Both ends of an exchange send first, so transfers do not count.
    fn orders(&self, alive: &[Rank]) -> Option<Finding> {
        let limit_ms = self.timeouts.stall_ms.unwrap_or(self.timeouts.hang_ms);
        let group = |(comm, ranks): (CommId, &BTreeMap<Rank, Position>)| {
            let own = || ranks.iter().filter(|(rank, _)| alive.contains(rank));
            let (_, first) = own().next()?;
            let is_alike = |position: &Position| {
                let before_ms = began_to_wait(position).millis_since(position.advanced_at);
                position.is_timed && position.issued == first.issued && before_ms <= limit_ms
            };
            let is_joined = own().count() > 1 && own().all(|(_, position)| is_alike(position));
            (is_joined && !self.progress.has_transfers(comm)).then(|| Group {
                name: comm.to_string(),
                members: own().map(|(rank, _)| rank.value()).collect(),
                progress: own().map(|(rank, at)| (rank.value(), last(at))).collect(),
                ..Group::default()
            })
        };
        let job = Job {
            groups: self.progress.comms().filter_map(group).collect(),
            ..Job::default()
        };
        let mut findings = analyse(&job).findings.into_iter();
        findings.find(|finding| finding.kind == Kind::OtherOrder)
    }
}

/// Returns the ranks whose GPUs are in no operation, if they are at most half of these ranks and it is known of
/// all.
fn stuck_gpus(waiting: &[(&Rank, &Position)]) -> Option<Vec<Rank>> {
    let running = waiting
        .iter()
        .map(|(rank, own)| Some((**rank, own.running?)));
    let running: Vec<(Rank, u64)> = running.collect::<Option<_>>()?;
    let stuck = running.iter().filter(|(_, operations)| *operations == 0);
    let stuck: Vec<Rank> = stuck.map(|(rank, _)| *rank).collect();
    let is_few = !stuck.is_empty() && stuck.len() * 2 <= running.len();
    is_few.then_some(stuck)
}

/// Last operation of a rank on a communicator, with its place among those of the rank: the time at
/// which it was issued.
fn last(position: &Position) -> fleet_hang::Progress {
    let number = position.issued.saturating_sub(1);
    let operation = Operation {
        position: Some(nanos(position.advanced_at)),
        ..Operation::default()
    };
    fleet_hang::Progress {
        enqueued: Some(number),
        operations: BTreeMap::from([(number, operation)]),
        ..fleet_hang::Progress::default()
    }
}

/// Start of the synchronisation in which a rank is blocked, by its own clock.
fn began_to_wait(position: &Position) -> Nanos {
    let waited = Duration::try_from_secs_f64(position.waiting_ms / 1e3).unwrap_or_default();
    position.last_timestamp.before(waited)
}
