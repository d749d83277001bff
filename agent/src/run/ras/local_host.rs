//! Knowledge of the agent about the processes that RAS names.

use std::collections::{BTreeMap, BTreeSet};

use fleet_agent_core::host::{Host, Identity};
use fleet_agent_core::ras::{LocalHost, MemberProcess};
use fleet_agent_sources::process::Processes;

/// The agent's host during one report.
#[derive(Debug)]
pub(super) struct AgentHost<'a> {
    pub(super) identity: &'a Identity,
    pub(super) host: &'a Host,
    pub(super) processes: &'a Processes,
    /// Traced processes with their own ids of themselves, which RAS reports.
    pub(super) namespace_pids: &'a BTreeMap<u32, u32>,
    /// Addresses of this host among those that the answer names.
    pub(super) local_hosts: &'a BTreeSet<String>,
}

impl AgentHost<'_> {
    fn traced(&self, process: &MemberProcess) -> impl Iterator<Item = u32> {
        let own = process.pid;
        let pids = self.namespace_pids.iter();
        pids.filter_map(move |(pid, inside)| (*inside == own).then_some(*pid))
    }
}

impl LocalHost for AgentHost<'_> {
    fn cluster(&self) -> &str {
        &self.identity.cluster
    }

    fn node(&self) -> &str {
        &self.identity.node
    }

    fn is_local(&self, address: &str) -> bool {
        self.local_hosts.contains(address)
    }

    fn is_probed(&self, process: &MemberProcess, rank: u32, size: u32) -> bool {
        self.traced(process)
            .any(|pid| self.host.has_comm(pid, rank, size))
    }

    fn job(&self, process: &MemberProcess) -> Option<String> {
        let traced = self.traced(process).find_map(|pid| self.host.job(pid));
        // Only a launcher sets the size: an id that means another process here has none.
        let launched = || self.processes.placement(process.pid).ok();
        let launched = || launched().filter(|place| place.world_size.is_some())?.job;
        traced
            .or_else(|| self.identity.job.clone())
            .or_else(launched)
    }
}
