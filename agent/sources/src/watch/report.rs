//! What a watch tells: what one look saw, and how the watch is doing.

use std::collections::BTreeMap;

use fleet_agent_bpf::layout::{CallRecord, Losses, PluginRecord};
use fleet_agent_bpf::programs::Abilities;

/// What one look saw. All calls that were entered by then are in it or were in an earlier one.
#[derive(Debug, Default)]
pub struct PollResult {
    /// When, nanoseconds of `CLOCK_MONOTONIC`.
    pub now_ns: u64,
    /// Until when everything was seen, nanoseconds of the same clock.
    pub until_ns: u64,
    /// Calls that have returned.
    pub returned: Vec<CallRecord>,
    /// Calls that have not.
    pub in_flight: Vec<CallRecord>,
    /// What plugins told of operations on GPUs.
    pub plugin_records: Vec<PluginRecord>,
    /// Processes that were found to have NCCL or RCCL.
    pub found: Vec<u32>,
    /// Processes that have ended.
    pub exited: Vec<u32>,
    /// Processes that go on, but of whose calls some were not seen, or none will be: a library lost its probes.
    pub detached: Vec<u32>,
}

/// What the watch has to say of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// What the kernel at hand allows.
    pub abilities: Abilities,
    /// Why processes are found by scans alone; none when the kernel tells of them.
    pub no_lifecycle: Option<String>,
    /// Files that are probed.
    pub probed: Vec<String>,
    /// Functions left alone because a probe there would be slow, by file.
    pub refused: BTreeMap<String, Vec<&'static str>>,
    /// Files that cannot be probed, and why.
    pub unprobeable: Vec<String>,
    /// What the programs could not tell.
    pub losses: Losses,
}

/// A file that is probed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// Its path as one of its processes sees it.
    pub path: String,
    /// Functions that are probed.
    pub functions: usize,
    /// Functions left alone because a probe there would be slow.
    pub refused: Vec<&'static str>,
    /// Processes that map it.
    pub users: Vec<u32>,
    /// Whether it has NCCL or RCCL.
    pub has_collectives: bool,
}
