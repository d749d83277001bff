//! Explains on one host, without a server, what its processes lose time to: one report for each
//! process and period, with the causal chains that hold. Pure.
//!
//! A share of time stands out against the other ranks of the job on this host, else against the
//! process's own past, else by its amount, for causes on which no healthy process spends time. It
//! has to stand out in several periods in a row. All times are those of the process's own threads,
//! so that a cause is never named because it coincides with a wait.

mod cause;
mod chain;
mod links;
mod lost_time;
mod observation;
mod own_code;
mod past;
mod peers;
mod place;
mod recapture;
mod thresholds;
mod worker_lines;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::captured_file::CapturedFile;
use crate::event::{Event, FunctionDurations, Process, Stack};
pub use crate::explain::cause::Cause;
pub use crate::explain::chain::{CausalChain, Reference, Severity};
use crate::explain::lost_time::lost_ns;
pub use crate::explain::observation::Observation;
use crate::explain::own_code::{LineHistory, LineShares, OwnLine};
use crate::explain::past::Past;
use crate::explain::peers::{PeerKey, Peers, Shares};
pub use crate::explain::place::Place;
use crate::explain::recapture::Graphs;
use crate::explain::thresholds::{required_periods, stands_out};
use crate::explain::worker_lines::{WorkerLines, waits};
use crate::statistics::ratio;

/// Share of a period from which the calls of a function are noticeable.
const NOTICEABLE: f64 = 0.001;
/// Maximum number of functions and of stacks that are reported of a process.
const MAX_FUNCTIONS: usize = 8;
const MAX_STACKS: usize = 8;
/// Maximum number of processes; further ones are not explained.
const MAX_PROCESSES: usize = 4096;

/// What was found out about one process in one period.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessReport {
    /// Process id.
    pub pid: u32,
    /// Its rank; `None` if it has none.
    pub process: Option<Process>,
    /// Start of the period, nanoseconds.
    pub from_ns: u64,
    /// End of the period, nanoseconds.
    pub to_ns: u64,
    /// What was seen.
    pub seen: Observation,
    /// Chains that hold, largest share first.
    pub chains: Vec<CausalChain>,
    /// Files that were made about it.
    pub files: Vec<CapturedFile>,
}

impl ProcessReport {
    /// Returns the functions that took at least a noticeable share of the period, longest first.
    pub fn functions(&self) -> Vec<&FunctionDurations> {
        let period_ns = self.to_ns.saturating_sub(self.from_ns);
        let calls = self.seen.calls.values();
        let mut calls: Vec<&FunctionDurations> = calls
            .filter(|calls| ratio(calls.total_ns, period_ns) >= NOTICEABLE)
            .collect();
        calls.sort_by_key(|calls| std::cmp::Reverse(calls.total_ns));
        calls.truncate(MAX_FUNCTIONS);
        calls
    }

    /// Returns the most frequent stacks with the function that the thread was in and the number of
    /// samples.
    pub fn stacks(&self) -> Vec<(Option<&str>, &Stack, u64)> {
        let stacks = self.seen.stacks.iter();
        let mut stacks: Vec<_> = stacks
            .map(|((call, stack), samples)| (call.as_deref(), stack, *samples))
            .filter(|(.., samples)| *samples > 0)
            .collect();
        stacks.sort_by_key(|(.., samples)| std::cmp::Reverse(*samples));
        stacks.truncate(MAX_STACKS);
        stacks
    }

    /// Returns the number of points that deliver it.
    pub fn n_points(&self) -> usize {
        let of_files: usize = self.files.iter().map(|file| file.parts().len()).sum();
        self.functions().len() + self.stacks().len() + self.chains.len() + of_files
    }

    /// Converts its times.
    pub fn map_times(&mut self, convert: impl Fn(u64) -> u64) {
        for ns in [&mut self.from_ns, &mut self.to_ns] {
            *ns = convert(*ns);
        }
        for chain in &mut self.chains {
            chain.since_ns = convert(chain.since_ns);
        }
    }
}

/// Explains the processes of one host.
#[derive(Debug)]
pub struct Explainer {
    period: Duration,
    opened_ns: Option<u64>,
    processes: BTreeMap<u32, ProcessState>,
}

#[derive(Debug, Default)]
struct ProcessState {
    process: Option<Process>,
    job: Option<String>,
    opened_ns: u64,
    seen: Observation,
    past: Past,
    past_graphs: Past,
    lines: LineHistory,
    standing_out: BTreeMap<Cause, StandingOut>,
}

/// Periods in a row in which a cause stood out.
#[derive(Debug, Clone)]
struct StandingOut {
    since_ns: u64,
    periods: u32,
    /// Where the process was in the last of them that has a sample: calls can be rarer than samples.
    place: Option<Place>,
}

impl Explainer {
    /// Creates an explainer that closes a period every `period` of event time.
    pub fn new(period: Duration) -> Self {
        Self {
            period,
            opened_ns: None,
            processes: BTreeMap::new(),
        }
    }

    /// Adds a process with a rank, as the header of a recording lists it.
    pub fn add_process(&mut self, process: Process, ts_ns: u64) {
        if let Some(state) = self.state(process.pid, ts_ns) {
            *state = ProcessState {
                process: Some(process),
                opened_ns: ts_ns,
                ..ProcessState::default()
            };
        }
    }

    /// Takes in an event.
    pub fn on_event(&mut self, event: &Event) {
        let ts_ns = event.ts_ns();
        match event {
            Event::Started(started) => {
                self.add_process(started.process, ts_ns);
                if let Some(state) = self.state(started.process.pid, ts_ns) {
                    state.job.clone_from(&started.labels.job);
                }
            }
            Event::Ended(ended) => {
                self.processes.remove(&ended.pid);
            }
            Event::Activity(sample) => {
                if let Some(state) = self.state(sample.pid, ts_ns) {
                    state.seen.add_activity(&sample.activity);
                }
            }
            Event::Delays(sample) => {
                if let Some(state) = self.state(sample.pid, ts_ns) {
                    state.seen.add_delays(&sample.delays);
                }
            }
            Event::CallDurations(sample) => {
                if let Some(state) = self.state(sample.pid, ts_ns) {
                    state.seen.add_calls(sample);
                }
            }
            Event::Stack(sample) => {
                // The last samples of a process come after its end.
                if let Some(state) = self.processes.get_mut(&sample.pid) {
                    state.seen.add_stack(sample);
                }
            }
            _ => {}
        }
    }

    /// Returns whether no process was seen.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Returns whether the period is over at `now_ns`.
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.opened_ns.is_some_and(|opened_ns| {
            Duration::from_nanos(now_ns.saturating_sub(opened_ns)) >= self.period
        })
    }

    /// Closes the period if it is over at `now_ns`, and returns a report for each process of which
    /// anything was seen.
    pub fn reports(&mut self, now_ns: u64) -> Vec<ProcessReport> {
        self.opened_ns.get_or_insert(now_ns);
        if !self.is_due(now_ns) {
            return Vec::new();
        }
        self.opened_ns = Some(now_ns);
        let shares = self.shares(now_ns);
        let mut reports = Vec::new();
        for (pid, state) in &mut self.processes {
            let own = shares.get(pid).cloned().unwrap_or_default();
            let peers = Peers::new(&state.key(), *pid, &shares);
            reports.extend(state.close(*pid, now_ns, &own, &peers));
        }
        reports
    }

    fn state(&mut self, pid: u32, ts_ns: u64) -> Option<&mut ProcessState> {
        if self.processes.len() >= MAX_PROCESSES && !self.processes.contains_key(&pid) {
            return None;
        }
        Some(self.processes.entry(pid).or_insert_with(|| ProcessState {
            opened_ns: ts_ns,
            ..ProcessState::default()
        }))
    }

    /// Shares of their time that the processes lost to each cause.
    fn shares(&self, now_ns: u64) -> BTreeMap<u32, Shares> {
        let of_process = |(pid, state): (&u32, &ProcessState)| {
            let period_ns = now_ns.saturating_sub(state.opened_ns);
            let share = |cause: Cause| {
                let lost_ns = lost_ns(cause, &state.seen)?;
                Some((cause, ratio(lost_ns, period_ns).min(1.0)))
            };
            let present = LineShares::from_observation(&state.seen);
            let shares = Shares {
                key: state.key(),
                lines: state.lines.pooled(&present),
                present,
                graphs: Graphs::new(&state.seen, period_ns),
                workers: WorkerLines::from_observation(&state.seen),
                shares: Cause::MEASURED.into_iter().filter_map(share).collect(),
            };
            (*pid, shares)
        };
        self.processes.iter().map(of_process).collect()
    }
}

impl ProcessState {
    fn key(&self) -> PeerKey {
        let process = self.process.filter(|process| process.world_size > 1)?;
        Some((process.world_size, self.job.clone()))
    }

    /// Closes the period: judges the shares of each cause.
    fn close(
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
        let are_made_again = own
            .graphs
            .are_made_again(&peers.graphs(), &mut self.past_graphs);
        let workers = own.workers.link(&peers.workers());
        let mut chains: Vec<CausalChain> = Vec::new();
        let mut is_delayed = false;
        for cause in Cause::MEASURED {
            let Some(share) = own.shares.get(&cause).copied() else {
                self.standing_out.remove(&cause);
                continue;
            };
            let usual = peers.usual(cause).map(Reference::Peers);
            let usual = usual.or_else(|| self.past.usual(cause).map(Reference::Past));
            let reference = usual.unwrap_or(Reference::None);
            let is_by_count = cause == Cause::GraphCreation && are_made_again;
            if !is_by_count && !stands_out(cause, share, reference) {
                self.standing_out.remove(&cause);
                self.past.add_seen(cause, share, &seen);
                continue;
            }
            is_delayed |= !cause.is_call();
            let line = line.as_ref().filter(|_| !cause.is_call());
            let line = line.map(|own| &own.line);
            let required = required_periods(cause, self.past.usual(cause).is_some());
            let held = self.held(cause, from_ns, Place::of(cause, line, &seen), required);
            chains.extend(held.map(|held| {
                CausalChain {
                    cause,
                    share,
                    reference,
                    since_ns: held.since_ns,
                    links: links::links(cause, &seen, period_ns)
                        .into_iter()
                        .chain(workers.clone().filter(|_| cause.may_wait_for_workers()))
                        .chain(links::of_peers(cause, share, reference))
                        .collect(),
                    place: held.place.clone(),
                    advice: links::advice(cause, pid, &seen, period_ns),
                }
            }));
        }
        self.lines.add(own.present.clone(), is_delayed);
        // A delayed thread is more often at whatever line it was delayed at.
        let line = line.filter(|own| own.stands_out && !is_delayed);
        chains.extend(self.own_code(line, workers, from_ns, &seen));
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

    fn own_code(
        &mut self,
        line: Option<OwnLine>,
        workers: Option<String>,
        from_ns: u64,
        seen: &Observation,
    ) -> Option<CausalChain> {
        let Some(own) = line else {
            self.standing_out.remove(&Cause::OwnCode);
            return None;
        };
        let place = Place::of(Cause::OwnCode, Some(&own.line), seen);
        let required = required_periods(Cause::OwnCode, true);
        let held = self.held(Cause::OwnCode, from_ns, place, required)?;
        let workers = workers.filter(|_| waits(&own.line));
        let advice = workers.as_ref().map(|_| links::WORKERS.to_owned());
        Some(CausalChain {
            cause: Cause::OwnCode,
            share: own.share,
            reference: Reference::Peers(own.usual),
            since_ns: held.since_ns,
            links: [format!("the line is {}", own.line)]
                .into_iter()
                .chain(workers)
                .collect(),
            place: held.place.clone(),
            advice: advice.into_iter().collect(),
        })
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
        });
        standing.periods = standing.periods.saturating_add(1);
        if place.is_some() {
            standing.place = place;
        }
        (standing.periods >= required).then_some(standing)
    }
}

#[cfg(test)]
mod tests;
