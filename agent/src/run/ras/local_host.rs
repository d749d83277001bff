//! Knowledge of the agent about the processes that RAS names.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;

use fleet_agent_core::host::{Host, Identity};
use fleet_agent_core::ras::{LocalHost, MemberProcess};
use fleet_agent_sources::process::Processes;

use crate::ras::is_local;

/// The agent's host during one report.
#[derive(Debug)]
pub(super) struct AgentHost<'a> {
    identity: &'a Identity,
    host: &'a Host,
    processes: &'a Processes,
    namespace_pids: &'a BTreeMap<u32, u32>,
    addresses: RefCell<BTreeMap<String, bool>>,
}

impl<'a> AgentHost<'a> {
    /// Creates the host; `namespace_pids` are the traced processes with their own ids of
    /// themselves, which RAS reports.
    pub(super) fn new(
        identity: &'a Identity,
        host: &'a Host,
        processes: &'a Processes,
        namespace_pids: &'a BTreeMap<u32, u32>,
    ) -> Self {
        Self {
            identity,
            host,
            processes,
            namespace_pids,
            addresses: RefCell::default(),
        }
    }

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
        let mut known = self.addresses.borrow_mut();
        if let Some(is_local) = known.get(address) {
            return *is_local;
        }
        let is_local = address.parse::<IpAddr>().is_ok_and(is_local);
        known.insert(address.to_owned(), is_local);
        is_local
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
