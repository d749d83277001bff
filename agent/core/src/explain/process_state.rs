//! What is remembered of one process, and the chains that hold at the end of a period.

use std::collections::BTreeMap;

use crate::event::{Frame, Process};
use crate::explain::cause::Cause;
use crate::explain::chain::{CausalChain, Reference};
use crate::explain::links;
use crate::explain::observation::Observation;
use crate::explain::own_code::{LineHistory, LineShares, OwnLine};
use crate::explain::own_program::{PerCall, ProgramPast};
use crate::explain::past::Past;
use crate::explain::peers::{PeerKey, Peers, ProcessJob, Shares};
use crate::explain::place::{Place, is_mostly_in_gpu_library, program_samples, waits};
use crate::explain::report::ProcessReport;
use crate::explain::thresholds::{required_periods, stands_out};

/// What is remembered of one process.
#[derive(Debug, Default)]
pub(super) struct ProcessState {
    pub(super) process: Option<Process>,
    pub(super) job: ProcessJob,
    pub(super) opened_ns: u64,
    pub(super) seen: Observation,
    past: Past,
    past_graphs: Past,
    past_program: ProgramPast,
    pub(super) lines: LineHistory,
    /// What its workers did in the period that is being closed; `None` without samples of them.
    workers: Option<WorkersSeen>,
    standing_out: BTreeMap<Cause, StandingOut>,
}

/// What samples say of the workers of a process; `None` if that explains nothing.
type WorkersSeen = Option<String>;

/// Period of a process that is being closed.
#[derive(Debug, Clone, Copy)]
struct Period<'a> {
    pid: u32,
    from_ns: u64,
    period_ns: u64,
    seen: &'a Observation,
}

/// Periods in a row in which a cause stood out.
#[derive(Debug, Clone)]
struct StandingOut {
    since_ns: u64,
    periods: u32,
    /// Where the process was in the last of them that has a sample: calls can be rarer than samples.
    place: Option<Place>,
    /// What its workers did in the last of them that has samples of theirs.
    workers: Option<String>,
}

impl ProcessState {
    /// A process with its rank, if it has one, of which nothing is known before an instant.
    pub(super) fn new(process: Option<Process>, opened_ns: u64) -> Self {
        Self {
            process,
            opened_ns,
            ..Self::default()
        }
    }

    pub(super) fn key(&self) -> Option<PeerKey> {
        let process = self.process.filter(|process| process.world_size > 1)?;
        Some(PeerKey {
            rank: process.rank,
            ranks: process.world_size,
            job: self.job.clone(),
        })
    }

    /// Closes the period: judges the shares of each cause.
    pub(super) fn close(
        &mut self,
        pid: u32,
        now_ns: u64,
        own: &Shares,
        peers: &Peers<'_>,
    ) -> Option<ProcessReport> {
        let from_ns = std::mem::replace(&mut self.opened_ns, now_ns);
        let period_ns = now_ns.saturating_sub(from_ns);
        let seen = std::mem::take(&mut self.seen);
        let line = own.lines.compare(&own.present, &peers.lines());
        let workers = || own.workers.link(&peers.workers());
        self.workers = own.workers.are_sampled().then(workers);
        let period = Period {
            pid,
            from_ns,
            period_ns,
            seen: &seen,
        };
        let mut chains: Vec<CausalChain> = Vec::new();
        let mut is_delayed = false;
        for cause in Cause::MEASURED {
            let Some((share, reference)) = self.stands_out(cause, own, peers, &seen) else {
                self.standing_out.remove(&cause);
                continue;
            };
            is_delayed |= !cause.is_call();
            let line = line.as_ref().filter(|_| !cause.is_call());
            let line = line.map(|own| &own.line);
            chains.extend(self.measured(cause, (share, reference), line, period));
        }
        self.lines.add(own.present.clone(), is_delayed);
        // A delayed thread is more often at whatever line it was delayed at.
        let line = line.filter(|own| own.stands_out && !is_delayed);
        chains.extend(self.own_code(line, (&own.lines, &peers.lines()), period));
        chains.extend(self.own_program(period));
        links::relate_allocations_to_captures(&mut chains);
        chains.sort_by(|a, b| b.share.total_cmp(&a.share));
        (!seen.is_empty()).then_some(ProcessReport {
            pid,
            process: self.process,
            from_ns,
            to_ns: now_ns,
            seen,
            chains,
            files: Vec::new(),
        })
    }

    /// Returns the share of its time that the process lost to a cause, and what it was compared with, if it
    /// stands out; else adds it to the past.
    fn stands_out(
        &mut self,
        cause: Cause,
        own: &Shares,
        peers: &Peers<'_>,
        seen: &Observation,
    ) -> Option<(f64, Reference)> {
        let share = own.shares.get(&cause).copied()?;
        let usual = peers.usual(cause).map(Reference::Peers);
        let usual = usual.or_else(|| self.past.usual(cause).map(Reference::Past));
        let reference = usual.unwrap_or(Reference::None);
        let is_by_count = cause == Cause::GraphCreation
            && own
                .graphs
                .are_made_again(&peers.graphs(), &mut self.past_graphs);
        if is_by_count || stands_out(cause, share, reference) {
            return Some((share, reference));
        }
        self.past.add_seen(cause, share, seen);
        None
    }

    /// A measured cause that stands out.
    fn measured(
        &mut self,
        cause: Cause,
        (share, reference): (f64, Reference),
        line: Option<&Frame>,
        period: Period<'_>,
    ) -> Option<CausalChain> {
        let Period {
            seen, period_ns, ..
        } = period;
        let required = required_periods(cause, self.past.usual(cause).is_some());
        let place = Place::of(cause, line, seen);
        let held = self.held(cause, period.from_ns, place, required)?;
        let workers = held.workers.clone();
        Some(CausalChain {
            cause,
            share,
            reference,
            since_ns: held.since_ns,
            links: links::links(cause, seen, period_ns)
                .into_iter()
                .chain(workers.filter(|_| cause.may_wait_for_workers()))
                .chain(links::of_peers(cause, share, reference))
                .collect(),
            place: held.place.clone(),
            advice: links::advice(cause, period.pid, seen, period_ns),
        })
    }

    /// A line of its program at which the process is more often than its peers, and the copies beside it.
    fn own_code(
        &mut self,
        line: Option<OwnLine>,
        (lines, peers): (&LineShares, &[&LineShares]),
        period: Period<'_>,
    ) -> Option<CausalChain> {
        let Some(own) = line else {
            self.standing_out.remove(&Cause::OwnCode);
            return None;
        };
        let place = Place::of(Cause::OwnCode, Some(&own.line), period.seen);
        let required = required_periods(Cause::OwnCode, true);
        let held = self.held(Cause::OwnCode, period.from_ns, place, required)?;
        let workers = held.workers.clone().filter(|_| waits(&own.line));
        let mut advice: Vec<String> = workers.iter().map(|_| links::WORKERS.to_owned()).collect();
        let copies = held.place.as_ref().and_then(|place| {
            let copies = place.copies(period.seen)?;
            let share = lines.copies(copies.stack.python_line()?, peers)?;
            (share > own.share).then_some(Place { share, ..copies })
        });
        if copies.is_some() {
            let (seen, period_ns) = (period.seen, period.period_ns);
            advice.extend(links::advice(Cause::Copies, period.pid, seen, period_ns));
        }
        Some(CausalChain {
            cause: Cause::OwnCode,
            share: own.share,
            reference: Reference::Peers(own.usual),
            since_ns: held.since_ns,
            links: [format!("the line is {}", own.line)]
                .into_iter()
                .chain(workers)
                .chain(copies.and_then(|copies| links::calls_beside(&copies)))
                .collect(),
            place: held.place.clone(),
            advice,
        })
    }

    /// Without a rank, the past tells that a process runs its own program for too long, and samples where. A
    /// rank that waits for another one may be blocked in launches, which are not measured.
    fn own_program(&mut self, period: Period<'_>) -> Option<CausalChain> {
        let is_copying = self.is_copying(period.seen);
        if !is_copying && is_mostly_in_gpu_library(period.seen) {
            // Its launches may be blocked by now: that is the usual, also while nothing is sampled.
            self.past_program = ProgramPast::default();
        }
        let now = PerCall::from_observation(period.seen, period.period_ns);
        let now = now.filter(|_| self.key().is_none());
        let excess = now.and_then(|now| self.past_program.excess(now));
        let (cause, other) = if is_copying {
            (Cause::Copies, Cause::OwnProgram)
        } else {
            (Cause::OwnProgram, Cause::Copies)
        };
        // Samples tell which of both it has been since it began.
        if let Some(began) = self.standing_out.remove(&other) {
            let held = self.standing_out.entry(cause).or_insert(began);
            held.place = None;
        }
        let Some(excess) = excess else {
            self.standing_out.remove(&cause);
            return None;
        };
        let place = Place::of(cause, None, period.seen);
        let held = self.held(cause, period.from_ns, place, required_periods(cause, true))?;
        Some(CausalChain {
            cause,
            share: excess.share,
            reference: Reference::None,
            since_ns: held.since_ns,
            links: vec![excess.link(cause)],
            place: held.place.clone(),
            advice: links::advice(cause, period.pid, period.seen, period.period_ns),
        })
    }

    /// Returns whether samples find the process in copies for more than half of the time, or did so before where
    /// nothing is sampled.
    fn is_copying(&self, seen: &Observation) -> bool {
        if program_samples(seen) == 0 {
            return self.standing_out.contains_key(&Cause::Copies);
        }
        let place = Place::of(Cause::Copies, None, seen);
        place.is_some_and(|place| place.share > 0.5)
    }

    /// Counts a period in which a cause stood out, with its place. Returns all of them in a row if they
    /// are enough.
    fn held(
        &mut self,
        cause: Cause,
        from_ns: u64,
        place: Option<Place>,
        required: u32,
    ) -> Option<&StandingOut> {
        let standing = self.standing_out.entry(cause).or_insert(StandingOut {
            since_ns: from_ns,
            periods: 0,
            place: None,
            workers: None,
        });
        standing.periods = standing.periods.saturating_add(1);
        if place.is_some() {
            standing.place = place;
        }
        if let Some(workers) = &self.workers {
            standing.workers.clone_from(workers);
        }
        (standing.periods >= required).then_some(standing)
    }
}
