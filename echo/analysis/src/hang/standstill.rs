//! Standstills: no rank is behind, and nothing progresses.

use std::collections::BTreeMap;
use std::time::Duration;

use echo_core::ids::{CommId, Rank};
use echo_core::units::Nanos;
use fleet_hang::{Finding, Group, Job, Kind, Operation, analyse};

use super::{Hang, HangSearch, nanos, ranks};
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
        let (waiting, others): (Vec<_>, Vec<_>) = alive
            .iter()
            .partition(|(_, position)| position.waiting_ms >= limit_ms && !position.is_stopped);
        let is_most = !waiting.is_empty() && waiting.len() * 2 >= alive.len();
        if alive.len() < 2 || !is_most || !alive.iter().all(|(_, position)| is_still(position)) {
            return None;
        }
        // Clocks of ranks are not compared: the duration is that of the first rank that waits.
        let (_, clock) = waiting.first()?;
        let named = |some: &[(&Rank, &Position)]| some.iter().map(|(rank, _)| **rank).collect();
        let stopped = others.iter().filter(|(_, position)| position.is_stopped);
        let stopped: Vec<_> = stopped.copied().collect();
        let mut entered: Vec<Rank> = named(&waiting);
        let mut missing: Vec<Rank> = named(&others);
        // A rank that does not wait is the reason by itself.
        let orders = others.is_empty().then(|| self.orders(&entered)).flatten();
        if let Some(orders) = &orders
            && orders.ranks.len() < entered.len()
        {
            missing = ranks(&orders.ranks);
            entered.retain(|rank| !missing.contains(rank));
        }
        Some(Hang {
            comm: latest.comm,
            seq: latest.issued.checked_sub(1)?,
            since: if clock.is_timed {
                began_to_wait(clock).max(clock.advanced_at)
            } else {
                began_to_wait(clock)
            },
            last_report: clock.last_timestamp,
            entered,
            missing,
            stopped: named(&stopped),
            is_standstill: true,
            orders: orders.map(|orders| orders.sentence),
            links: Vec::new(),
            silent: silent.iter().map(|(rank, _)| **rank).collect(),
            unknown: Vec::new(),
            is_stall: !is_hang,
            crash: None,
        })
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
