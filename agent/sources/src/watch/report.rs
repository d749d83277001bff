//! Results of a watch: events of one poll, and its health.

use std::collections::BTreeMap;

use fleet_agent_bpf::layout::{CallRecord, Losses, PluginRecord};
use fleet_agent_bpf::programs::Abilities;

/// Result of one poll. All calls that were entered by `until_ns` are in it or were in an earlier
/// one.
#[derive(Debug, Default)]
pub struct PollResult {
    /// Time of the poll, nanoseconds of `CLOCK_MONOTONIC`.
    pub now_ns: u64,
    /// Time until which everything was seen, nanoseconds of the same clock.
    pub until_ns: u64,
    /// Calls that have returned.
    pub returned: Vec<CallRecord>,
    /// Calls that have not returned.
    pub in_flight: Vec<CallRecord>,
    /// Records of profiler plugins.
    pub plugin_records: Vec<PluginRecord>,
    /// Processes newly found to have NCCL or RCCL.
    pub found: Vec<u32>,
    /// Processes that have exited.
    pub exited: Vec<u32>,
    /// Processes that still run, but some of whose calls were not seen or will not be, because a
    /// library lost its probes.
    pub detached: Vec<u32>,
}

/// Health of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Abilities of the programs on this kernel.
    pub abilities: Abilities,
    /// Reason why processes are found by scans only; `None` when kernel events are available.
    pub no_lifecycle: Option<String>,
    /// Probed files.
    pub probed: Vec<String>,
    /// Functions skipped because a probe would be slow, by file.
    pub refused: BTreeMap<String, Vec<&'static str>>,
    /// Files that cannot be probed, with the reason.
    pub unprobeable: Vec<String>,
    /// Losses of the programs.
    pub losses: Losses,
}

/// Probed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// Path as one of its processes sees it.
    pub path: String,
    /// Number of probed functions.
    pub functions: usize,
    /// Functions skipped because a probe would be slow.
    pub refused: Vec<&'static str>,
    /// Processes that map it.
    pub users: Vec<u32>,
    /// Set if it contains NCCL or RCCL.
    pub has_collectives: bool,
}
