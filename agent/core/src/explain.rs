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
mod own_program;
mod past;
mod peers;
mod place;
mod process_state;
mod recapture;
mod report;
mod thresholds;
mod worker_lines;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::event::{Call, CallKind, Event, Process};
pub use crate::explain::cause::Cause;
pub use crate::explain::chain::{CausalChain, Reference, Severity};
use crate::explain::lost_time::lost_ns;
pub use crate::explain::observation::Observation;
use crate::explain::own_code::LineShares;
use crate::explain::peers::{CommHash, Groups, Peers, Shares};
pub use crate::explain::place::Place;
use crate::explain::process_state::ProcessState;
use crate::explain::recapture::Graphs;
pub use crate::explain::report::ProcessReport;
use crate::explain::worker_lines::WorkerLines;
use crate::statistics::ratio;

/// Maximum number of processes; further ones are not explained.
const MAX_PROCESSES: usize = 4096;

/// Explains the processes of one host.
#[derive(Debug)]
pub struct Explainer {
    period: Duration,
    opened_ns: Option<u64>,
    processes: BTreeMap<u32, ProcessState>,
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
            *state = ProcessState::new(Some(process), ts_ns);
        }
    }

    /// Takes in an event.
    pub fn on_event(&mut self, event: &Event) {
        let ts_ns = event.ts_ns();
        match event {
            Event::Started(started) => {
                self.add_process(started.process, ts_ns);
                if let Some(state) = self.state(started.process.pid, ts_ns) {
                    state.job.name.clone_from(&started.labels.job);
                }
            }
            Event::Call(Call { pid, kind, .. }) | Event::Returned(Call { pid, kind, .. }) => {
                if let CallKind::CommInit(init) = kind {
                    let hash = CommHash::Call(init.unique_id);
                    self.add_comm(*pid, ts_ns, (hash, init.nranks));
                }
            }
            Event::CommState(state) => {
                let hash = CommHash::Memory(state.comm_id);
                self.add_comm(state.pid, ts_ns, (hash, state.nranks));
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
        let groups = Groups::new(&shares);
        let mut reports = Vec::new();
        for (pid, state) in &mut self.processes {
            let own = shares.get(pid).cloned().unwrap_or_default();
            let peers = Peers::new(*pid, &shares, &groups);
            reports.extend(state.close(*pid, now_ns, &own, &peers));
        }
        reports
    }

    fn add_comm(&mut self, pid: u32, ts_ns: u64, (hash, nranks): (CommHash, u32)) {
        if let Some(state) = self.state(pid, ts_ns) {
            state.job.add_comm(hash, nranks, state.process.as_ref());
        }
    }

    fn state(&mut self, pid: u32, ts_ns: u64) -> Option<&mut ProcessState> {
        if self.processes.len() >= MAX_PROCESSES && !self.processes.contains_key(&pid) {
            return None;
        }
        Some(
            self.processes
                .entry(pid)
                .or_insert_with(|| ProcessState::new(None, ts_ns)),
        )
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

#[cfg(test)]
mod tests;
