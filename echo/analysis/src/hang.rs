//! Operations that never end, because ranks are missing or although all reporting ranks have
//! entered them.
//!
//! The progress of a rank is known only while it reports. A rank that fell silent while its peers
//! continued (its agent died, for example) may have continued as well: it is neither missing nor
//! present. A rank that fell silent when all stopped is missing, and its silence is the reason.
//!
//! Which ranks are missing is decided by `fleet_hang`, as for dumps and answers of NCCL. Here the
//! reports become its input, and limits of time are applied.

mod standstill;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use echo_core::ids::{CommId, Rank};
use echo_core::stats::median;
use echo_core::units::Nanos;
use fleet_hang::{Blocked, Group, Job, Process, analyse};

use crate::assembly::progress::{Position, Progress};
use crate::crash::{Crash, crash};

/// Time in which the first report of an operation usually arrives, milliseconds: agents report every 4 s, in
/// batches of 5 s by default.
const REPORTED_WITHIN_MS: f64 = 10_000.0;

/// An operation that does not end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hang {
    /// Communicator.
    pub comm: CommId,
    /// Sequence number of the operation.
    pub seq: u64,
    /// Ranks that entered it; in a standstill, ranks that wait for their GPUs; after a crash, all but the
    /// rank that is named.
    pub entered: Vec<Rank>,
    /// Ranks that did not, and do not wait themselves; in a standstill, those that block it as far as is
    /// known.
    pub missing: Vec<Rank>,
    /// Other ranks that wait for a missing one, in other communicators, directly or along a chain.
    pub links: Vec<Rank>,
    /// Set if no rank is behind on any communicator: all ranks have stopped, and most wait for their
    /// GPUs.
    pub standstill: Option<Standstill>,
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
    /// The crash for which it cannot end.
    pub crash: Option<Crash>,
}

/// What is known of the reason of a standstill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standstill {
    /// Nothing: the missing ranks do not wait, and may have entered the operation.
    Unexplained,
    /// The missing ranks do not wait, and their GPUs are in no operation, while those of the others are in one.
    Idle,
    /// All wait. Ranks called two communicators in different orders: a sentence about these.
    Orders(String),
    /// All wait. The GPUs of the missing ranks are in no operation, while those of the others are in one.
    StuckGpus,
}

/// Limits on the duration of an operation.
#[derive(Debug, Clone, Copy)]
pub struct HangTimeouts {
    /// Limit beyond which it hangs, milliseconds of arrival time, or of the clocks of the waiting ranks.
    pub hang_ms: f64,
    /// Limit beyond which it stalls, milliseconds by the clocks of the waiting ranks; `None` while
    /// the usual duration of operations is unknown.
    pub stall_ms: Option<f64>,
}

/// Hangs of a job at `now` (arrival time).
///
/// A job hangs if all of this holds on some communicator:
///
/// - Some ranks have issued an operation, and others have not.
/// - One of the others is missing: it does not wait in another communicator.
/// - One of the ranks that issued the operation is alive.
/// - No rank has progressed within the time limit.
///
/// If no rank is behind, the job is at a standstill when no rank has issued
/// anything on any communicator, and at least half of the live ranks have been blocked in one
/// synchronisation for longer than the time limit. A stopped process does not count as waiting.
pub fn hangs(progress: &Progress, now: Nanos, timeouts: HangTimeouts) -> Vec<Hang> {
    let search = HangSearch {
        progress,
        now,
        timeouts,
    };
    let mut found = search.behind();
    if found.is_empty() {
        found.extend(search.standstill());
    }
    found
}

/// Hang of a job that has crashed, at `now` (arrival time). No time limit applies: the other ranks cannot
/// complete an operation without the process.
pub fn hang_of_crash(progress: &Progress, now: Nanos) -> Option<Hang> {
    let crash = crash(progress, now)?;
    let of_first = progress.comms().filter_map(|(comm, ranks)| {
        let own = ranks.get(&crash.first)?;
        Some((own.last_timestamp, comm))
    });
    let (_, comm) = of_first.max()?;
    let missing: Vec<Rank> = crash.named().into_iter().collect();
    let waited = Duration::try_from_secs_f64(waited_ms(progress, &crash) / 1e3);
    Some(Hang {
        comm,
        // Each crash is an incident of its own.
        seq: nanos(crash.end.at) / 1_000_000,
        since: crash.end.at,
        last_report: crash.end.at.after(waited.unwrap_or_default()),
        entered: progress
            .ranks()
            .filter(|rank| !missing.contains(rank))
            .collect(),
        missing,
        links: Vec::new(),
        standstill: None,
        stopped: Vec::new(),
        silent: Vec::new(),
        unknown: Vec::new(),
        is_stall: false,
        crash: Some(crash),
    })
}

/// Time that the other ranks have waited since a crash, median, milliseconds: from the last operation of
/// each to its last report, less the same time of the rank that ended. Each is of one clock, for clocks
/// of ranks are not compared.
fn waited_ms(progress: &Progress, crash: &Crash) -> f64 {
    let mut latest: BTreeMap<Rank, (Nanos, Nanos)> = BTreeMap::new();
    for (rank, own) in progress.comms().flat_map(|(_, ranks)| ranks) {
        let known = latest.entry(*rank);
        let (advanced, reported) = known.or_insert((own.advanced_at, own.last_timestamp));
        *advanced = own.advanced_at.max(*advanced);
        *reported = own.last_timestamp.max(*reported);
    }
    let waited = |(advanced, reported): &(Nanos, Nanos)| reported.millis_since(*advanced);
    let own_ms = latest.remove(&crash.first).map_or(0.0, |own| waited(&own));
    let others: Vec<f64> = latest.values().map(waited).collect();
    (median(&others).unwrap_or(0.0) - own_ms).max(0.0)
}

fn ranks(numbers: &[u32]) -> Vec<Rank> {
    numbers.iter().copied().map(Rank::new).collect()
}

/// Nanoseconds as the analysis takes them; times are not before 1970.
fn nanos(instant: Nanos) -> u64 {
    u64::try_from(instant.value()).unwrap_or(0)
}

struct HangSearch<'p> {
    progress: &'p Progress,
    now: Nanos,
    timeouts: HangTimeouts,
}

impl HangSearch<'_> {
    /// Operations that some ranks have not issued.
    fn behind(&self) -> Vec<Hang> {
        let differs = |ranks: &BTreeMap<Rank, Position>| {
            let mut issued = ranks.values().map(|position| position.issued);
            let first = issued.next();
            issued.any(|other| Some(other) != first)
        };
        let comms = self.progress.comms();
        let comms =
            comms.filter(|(comm, ranks)| differs(ranks) && self.progress.is_comparable(*comm));
        let comms: Vec<_> = comms.collect();
        if !comms.iter().any(|(_, ranks)| self.may_hang(ranks)) {
            return Vec::new();
        }
        let hang = analyse(&Job {
            groups: comms
                .iter()
                .map(|(comm, ranks)| self.group(*comm, ranks))
                .collect(),
            processes: self.processes(&comms),
            ..Job::default()
        });
        let missing: BTreeSet<u32> = hang.missing.into_iter().collect();
        let named = hang.findings.iter().flat_map(|one| &one.ranks);
        let named: BTreeSet<u32> = named.copied().collect();
        let mut held: BTreeSet<u32> = hang.links.into_iter().collect();
        held.extend(hang.blocked.iter().flat_map(|one| &one.waiting));
        held.retain(|rank| !named.contains(rank));
        let by_name: BTreeMap<String, _> = comms
            .iter()
            .map(|(comm, ranks)| (comm.to_string(), (*comm, *ranks)))
            .collect();
        let of_missing = hang.blocked.iter().filter_map(|one| {
            let (comm, ranks) = by_name.get(&one.group)?;
            self.hang(*comm, ranks, one, &missing)
        });
        let mut found: Vec<Hang> = of_missing.collect();
        for hang in &mut found {
            let is_link = |rank: &Rank| !hang.entered.contains(rank);
            hang.links = held
                .iter()
                .copied()
                .map(Rank::new)
                .filter(is_link)
                .collect();
        }
        found.sort_by_key(|hang| hang.comm);
        found
    }

    /// Returns whether no rank of a communicator has progressed for long enough.
    fn may_hang(&self, ranks: &BTreeMap<Rank, Position>) -> bool {
        let advanced = ranks.values().map(|position| position.advanced).max();
        let highest = ranks.values().map(|position| position.issued).max();
        let mut ahead = ranks
            .values()
            .filter(|position| Some(position.issued) == highest);
        advanced.is_some_and(|advanced| self.is_past(advanced))
            || ahead.all(|position| self.stalls(position))
    }

    fn group(&self, comm: CommId, ranks: &BTreeMap<Rank, Position>) -> Group {
        let own = |(rank, position): (&Rank, &Position)| {
            let own = fleet_hang::Progress {
                enqueued: position.issued.checked_sub(1),
                observed_ns: Some(self.progress.alive(*rank).map_or(0, nanos)),
                advanced_ns: Some(nanos(position.advanced)),
                ..fleet_hang::Progress::default()
            };
            (rank.value(), own)
        };
        Group {
            name: comm.to_string(),
            members: ranks.keys().map(|rank| rank.value()).collect(),
            progress: ranks.iter().map(own).collect(),
            ..Group::default()
        }
    }

    /// Returns what the latest reports say about the processes.
    fn processes(&self, comms: &[(CommId, &BTreeMap<Rank, Position>)]) -> BTreeMap<u32, Process> {
        // A rank begins to wait after it has issued the operation.
        let limit_ms = self.timeouts.stall_ms.unwrap_or(self.timeouts.hang_ms) / 2.0;
        let positions = comms.iter().flat_map(|(_, ranks)| ranks.iter());
        let process = |(rank, position): (&Rank, &Position)| {
            let process = if position.is_stopped {
                Process::Stopped
            } else if position.waiting_ms >= limit_ms {
                Process::Waits
            } else {
                return None;
            };
            Some((rank.value(), process))
        };
        positions.filter_map(process).collect()
    }

    /// Returns the hang of a communicator from which ranks are missing, after the limits of time.
    fn hang(
        &self,
        comm: CommId,
        positions: &BTreeMap<Rank, Position>,
        one: &Blocked,
        missing: &BTreeSet<u32>,
    ) -> Option<Hang> {
        let entered = ranks(&one.waiting);
        let missing: Vec<u32> = one
            .behind
            .iter()
            .copied()
            .filter(|rank| missing.contains(rank))
            .collect();
        let missing = ranks(&missing);
        let advanced = positions.values().map(|position| position.advanced).max()?;
        let position = |rank: &Rank| positions.get(rank);
        let of_entered: Vec<&Position> = entered.iter().filter_map(position).collect();
        let is_hang = self.is_hang(advanced, &of_entered);
        let waits = |rank: &Rank| position(rank).is_some_and(|own| self.stalls(own));
        let is_still =
            |rank: &Rank| position(rank).is_none_or(|own| self.is_still(*rank, own, advanced));
        let is_reported = entered.iter().all(waits) && missing.iter().all(is_still);
        if missing.is_empty() || !(self.is_past(advanced) || is_reported) {
            return None;
        }
        // A job whose every rank is silent has ended; it does not hang. Clocks of ranks are not
        // compared: the duration is that of one rank that entered it.
        let mut clocks = entered.iter().filter_map(position);
        let clock = clocks.find(|own| !self.is_past(own.last_received))?;
        let is_stopped = |rank: &&Rank| position(rank).is_some_and(|own| own.is_stopped);
        Some(Hang {
            comm,
            seq: one.seq,
            since: clock.advanced_at,
            last_report: clock.last_timestamp,
            stopped: missing.iter().filter(is_stopped).copied().collect(),
            silent: self.silent_of(&missing),
            entered,
            missing,
            links: Vec::new(),
            standstill: None,
            unknown: ranks(&one.unknown),
            is_stall: !is_hang,
            crash: None,
        })
    }

    /// Returns whether an operation hangs of which the first report arrived at `advanced`: the time limit has
    /// passed since then, or a part of it, and the ranks that entered the operation report that they issued it
    /// before the limit. Delayed reports arrive all at once, so those alone do not suffice.
    fn is_hang(&self, advanced: Nanos, entered: &[&Position]) -> bool {
        let hang_ms = self.timeouts.hang_ms;
        let least_ms = (hang_ms - REPORTED_WITHIN_MS).max(hang_ms / 2.0);
        let waited_ms = |own: &Position| own.last_timestamp.millis_since(own.advanced_at);
        let is_reported = || {
            let mut entered = entered.iter();
            entered.all(|own| own.is_timed && waited_ms(own) > hang_ms)
        };
        self.is_past(advanced) || (self.now.millis_since(advanced) > least_ms && is_reported())
    }

    /// Returns whether a rank that did not enter the operation does nothing: it has reported that, on all
    /// communicators and after the first report of the operation (`advanced`), or it has not reported for
    /// long. The reports of a rank that goes on may arrive after those of its peers.
    fn is_still(&self, rank: Rank, position: &Position, advanced: Nanos) -> bool {
        let limit_ms = self.timeouts.stall_ms.unwrap_or(self.timeouts.hang_ms) / 2.0;
        let all = self
            .progress
            .comms()
            .filter_map(|(_, ranks)| ranks.get(&rank));
        let idle_ms = all.map(|own| own.last_timestamp.millis_since(own.advanced_at));
        let is_idle = idle_ms.fold(f64::INFINITY, f64::min) >= limit_ms;
        let is_silent = self.now.millis_since(position.last_received) > REPORTED_WITHIN_MS;
        !position.is_timed || is_silent || (is_idle && position.last_received >= advanced)
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

    fn silent_of(&self, missing: &[Rank]) -> Vec<Rank> {
        let is_silent = |rank: &Rank| self.progress.alive(*rank).is_none_or(|at| self.is_past(at));
        missing.iter().copied().filter(is_silent).collect()
    }
}
