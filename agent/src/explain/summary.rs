//! What was found out about the processes of some hosts, as text and as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use fleet_agent_core::event::Process;
use fleet_agent_core::explain::{CausalChain, Cause, Observation, ProcessReport};

/// What was found out about some hosts.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The hosts.
    pub hosts: Vec<HostSummary>,
    /// Processes to show; empty for all.
    pub selected: Vec<u32>,
    /// Whether to show the calls of each process.
    pub per_process: bool,
}

/// What was found out about one host.
#[derive(Debug, Clone, PartialEq)]
pub struct HostSummary {
    /// Its name, or the file of its recording.
    pub name: String,
    /// What could not be seen.
    pub limitations: Vec<String>,
    reports: BTreeMap<u32, Vec<ProcessReport>>,
}

/// What was found out about one process.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessSummary {
    /// Process id.
    pub pid: u32,
    /// Its rank; `None` if it has none.
    pub process: Option<Process>,
    /// Time for which it was observed, nanoseconds.
    pub observed_ns: u64,
    /// What was seen, over the whole time.
    pub seen: Observation,
    /// Chains in their latest state, largest share first.
    pub chains: Vec<HeldChain>,
}

/// Chain, and for how long it held.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldChain {
    /// Latest state.
    pub chain: CausalChain,
    /// Time for which it held, nanoseconds.
    pub held_ns: u64,
    /// Time for which it has not held since, nanoseconds; 0 if it still holds.
    pub over_ns: u64,
}

impl Summary {
    /// Returns the processes that are shown.
    pub fn processes(&self) -> impl Iterator<Item = ProcessSummary> + '_ {
        let is_shown = |pid: &u32| self.selected.is_empty() || self.selected.contains(pid);
        let hosts = self.hosts.iter();
        hosts.flat_map(move |host| {
            let reports = host.reports.iter().filter(move |(pid, _)| is_shown(pid));
            reports.filter_map(|(_, reports)| ProcessSummary::new(reports))
        })
    }
}

impl HostSummary {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            limitations: Vec::new(),
            reports: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, reports: Vec<ProcessReport>) {
        for report in reports {
            self.reports.entry(report.pid).or_default().push(report);
        }
    }

    /// Keeps the reports of the last part only.
    pub(super) fn keep_last(&mut self, part: Duration) {
        let all = self.reports.values().flatten();
        let end_ns = all.map(|report| report.to_ns).max().unwrap_or(0);
        let part_ns = u64::try_from(part.as_nanos()).unwrap_or(u64::MAX);
        let from_ns = end_ns.saturating_sub(part_ns);
        for reports in self.reports.values_mut() {
            reports.retain(|report| report.to_ns > from_ns);
        }
    }

    pub(super) fn n_processes(&self) -> usize {
        self.reports.len()
    }
}

impl ProcessSummary {
    fn new(reports: &[ProcessReport]) -> Option<Self> {
        let (first, last) = (reports.first()?, reports.last()?);
        let mut seen = Observation::default();
        let mut chains: BTreeMap<Cause, HeldChain> = BTreeMap::new();
        for report in reports {
            seen.merge(&report.seen);
            for chain in &report.chains {
                let held = HeldChain {
                    held_ns: report.to_ns.saturating_sub(chain.since_ns),
                    over_ns: last.to_ns.saturating_sub(report.to_ns),
                    chain: chain.clone(),
                };
                chains.insert(chain.cause, held);
            }
        }
        let mut chains: Vec<HeldChain> = chains.into_values().collect();
        chains.sort_by(|a, b| b.chain.share.total_cmp(&a.chain.share));
        Some(Self {
            pid: first.pid,
            process: last.process,
            observed_ns: last.to_ns.saturating_sub(first.from_ns),
            seen,
            chains,
        })
    }
}
