//! Counters of the kernel, by process.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::process;

use fleet_agent_bpf::layout::{
    CommRecord, DelayKey, DelaySum, FunctionHistogram, FunctionSum, HostSum, LaunchSizeCounts,
    Losses,
};
use fleet_agent_bpf::programs::HostMaps;
use fleet_agent_core::event::{Exit, ExitStatus};

use crate::functions;
use crate::watch::Watch;

/// Histograms that the kernel has counted so far.
#[derive(Debug, Default)]
pub struct Histograms {
    /// Durations by process and function.
    pub functions: Vec<FunctionHistogram>,
    /// Sizes of launches by process.
    pub launch_sizes: Vec<LaunchSizeCounts>,
    /// Whether preemptions within calls are counted.
    pub sees_preemptions: bool,
}

impl Histograms {
    /// Returns the sums of the histograms, with the direction of each copy as its kind.
    pub fn sums(&self) -> impl Iterator<Item = FunctionSum> {
        self.functions.iter().map(|histogram| {
            let mut sum = histogram.sum();
            let [number, kind, ..] = sum.op.to_le_bytes();
            let function = functions::by_number(number);
            if let Some(direction) = function.and_then(|function| function.direction(kind)) {
                sum.op = u32::from(number) | direction.to_cuda_kind() << 8;
            }
            sum
        })
    }
}

impl Watch {
    /// Returns the communicators whose creation an earlier agent saw.
    pub fn comms(&self) -> Vec<CommRecord> {
        self.programs.maps().comms()
    }

    /// Returns the counters of functions whose entry alone is probed, by process and function.
    pub fn sums(&self) -> Vec<FunctionSum> {
        self.programs.maps().sums()
    }

    /// Returns the histograms of the functions whose return is probed.
    pub fn histograms(&self) -> Histograms {
        let maps = self.programs.maps();
        Histograms {
            functions: maps.durations(),
            launch_sizes: maps.launch_sizes(),
            sees_preemptions: self.programs.host_maps().is_some(),
        }
    }

    /// Returns host activity by process; `None` where it cannot be seen.
    pub fn host_sums(&self) -> Option<Vec<(u32, HostSum)>> {
        self.programs.host_maps().map(HostMaps::sums)
    }

    /// Returns the delays of each process since tracing began; `None` where they cannot be seen.
    pub fn delays(&self) -> Option<Vec<(DelayKey, DelaySum)>> {
        self.programs.host_maps().map(HostMaps::delays)
    }

    /// Removes delays that no longer grow.
    pub fn remove_delays(&self, idle: &BTreeSet<DelayKey>) {
        if let Some(maps) = self.programs.host_maps().filter(|_| !idle.is_empty()) {
            maps.remove_delays(|key| idle.contains(key));
        }
    }

    /// Returns the number of TCP segments that this host has retransmitted; `None` where it cannot
    /// be seen.
    pub fn tcp_retransmits(&self) -> Option<u64> {
        self.programs.host_maps().map(HostMaps::tcp_retransmits)
    }

    /// Returns how a traced process ended; `None` where that cannot be seen.
    pub fn exit(&self, pid: u32) -> Option<Exit> {
        let record = self.programs.host_maps()?.exit(pid)?;
        let status = process::ExitStatus::from_raw(record.status.cast_signed());
        let signal = status.signal().map(ExitStatus::Signal);
        Some(Exit {
            ts_ns: record.at_ns,
            status: signal.or_else(|| status.code().map(ExitStatus::Code))?,
        })
    }

    /// Returns the losses since the programs were loaded, possibly by an earlier agent.
    pub fn losses(&self) -> Losses {
        self.programs.maps().losses()
    }

    /// Returns the losses that were already reported.
    pub fn reported_losses(&self) -> Losses {
        self.programs.maps().reported_losses()
    }

    /// Marks these losses as reported.
    pub fn mark_losses_reported(&self, losses: &Losses) {
        self.programs.maps().mark_losses_reported(losses);
    }

    /// Returns whether processes are measured that do not call NCCL.
    pub fn measures_all(&self) -> bool {
        self.measures_all
    }

    /// Returns whether calls of a process are measured that does not call NCCL.
    pub fn is_measured(&self, pid: u32) -> bool {
        self.measures_all && self.programs.maps().is_measured(pid)
    }

    /// Returns whether the programs trace a process.
    pub fn is_traced(&self, pid: u32) -> bool {
        self.programs.maps().is_traced(pid)
    }

    /// Removes the state of a process that has ended and been reported.
    pub fn forget(&self, pid: u32) {
        self.programs.maps().forget(pid);
        if let Some(maps) = self.programs.host_maps() {
            maps.forget(pid);
        }
    }
}
