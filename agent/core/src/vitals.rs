//! State and counters of the agent itself: plain data.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

use fleet_proto::metric;

/// State of an agent at one moment. Counters start with the agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Vitals {
    /// Events seen, by source name.
    pub events: BTreeMap<&'static str, u64>,
    /// Losses of the BPF programs.
    pub lost: LostEvents,
    /// Processes traced now.
    pub processes: u64,
    /// Operations on communicators that were created before tracing began.
    pub unknown_comm_ops: u64,
    /// Blocks discarded because a part of them was not seen.
    pub broken_blocks: u64,
    /// Losses of operations on GPUs.
    pub gpu_lost: LostOperations,
    /// Samples of stacks.
    pub stacks: StackCounts,
    /// Delivery counters of points.
    pub points: PointCounts,
    /// Bytes of points spooled on disk.
    pub spool_bytes: u64,
    /// Version of the policy set in use; `None` before the first one.
    pub policy_version: Option<u64>,
    /// Policy sets with an implausible sampling modulus.
    pub implausible_policies: u64,
    /// Connected clients of the hook socket.
    pub hook_clients: u64,
    /// Clients of the hook socket that were disconnected because they fell behind.
    pub hook_clients_dropped: u64,
    /// Events that `NVSentinel` has accepted.
    pub sentinel_events: u64,
    /// Attempts to send it events that failed, and were or will be repeated.
    pub sentinel_failures: u64,
    /// CPU time of the agent.
    pub cpu: Duration,
    /// Resident memory of the agent, bytes.
    pub rss_bytes: u64,
}

/// Losses of the BPF programs by cause: full buffers and tables, and unreadable arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LostEvents {
    /// Events: the ring buffer to the agent was full.
    pub ring: u64,
    /// Calls: too many in flight at once.
    pub in_flight: u64,
    /// Communicators.
    pub comms: u64,
    /// Processes.
    pub traced: u64,
    /// Threads.
    pub threads: u64,
    /// Call counters.
    pub sums: u64,
    /// Host activity counters.
    pub host_sums: u64,
    /// Arguments behind pointers that could not be read.
    pub unreadable: u64,
    /// Files that were not inspected when they were mapped, because of the rate limit.
    pub files: u64,
}

impl LostEvents {
    /// Returns the losses that cost events.
    pub fn events(&self) -> u64 {
        self.ring.saturating_add(self.in_flight)
    }

    /// Returns all other losses: those that cost evidence.
    pub fn evidence(&self) -> u64 {
        let counts = [
            self.comms,
            self.traced,
            self.threads,
            self.sums,
            self.host_sums,
            self.unreadable,
            self.files,
        ];
        counts.into_iter().fold(0, u64::saturating_add)
    }
}

/// Operations on GPUs that are missing or lack times, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LostOperations {
    /// Dropped by the profiler plugin since it was loaded.
    pub plugin: u64,
    /// Times of another operation: they would have begun before they were enqueued.
    pub implausible: u64,
    /// End of a later operation, or among many such ends.
    pub overwritten: u64,
    /// Times of a communicator that are no longer used, since most were those of an earlier
    /// operation.
    pub counter_lost: u64,
    /// Unknown communicator, for example one created before tracing began.
    pub unknown_comm: u64,
    /// In no sum of durations: of too many communicators, or after the sums of their block were sent.
    pub not_summed: u64,
}

impl LostOperations {
    /// Returns those that are in no sum of durations.
    pub fn unsummed(&self) -> u64 {
        self.plugin.saturating_add(self.not_summed)
    }
}

impl AddAssign for LostOperations {
    fn add_assign(&mut self, rhs: Self) {
        self.plugin = self.plugin.saturating_add(rhs.plugin);
        self.implausible = self.implausible.saturating_add(rhs.implausible);
        self.overwritten = self.overwritten.saturating_add(rhs.overwritten);
        self.counter_lost = self.counter_lost.saturating_add(rhs.counter_lost);
        self.unknown_comm = self.unknown_comm.saturating_add(rhs.unknown_comm);
        self.not_summed = self.not_summed.saturating_add(rhs.not_summed);
    }
}

/// Samples of the stacks of late ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StackCounts {
    /// Stacks that were read.
    pub samples: u64,
    /// Stacks of which a part is missing, since the thread moved on during each attempt.
    pub torn: u64,
    /// Samples without a stack.
    pub dropped: u64,
    /// Times that sampling ended early, because its CPU time was spent.
    pub over_budget: u64,
}

/// Delivery counters of points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PointCounts {
    /// Points created.
    pub made: u64,
    /// Points acknowledged by the collector.
    pub sent: u64,
    /// Points dropped for good.
    pub dropped: u64,
}

/// Returns the counters that an agent reports to Echo: metric names and their increases from
/// `before` to `now`. Zero increases are included: they show that the agent counts.
pub fn counter_increases(before: &Vitals, now: &Vitals) -> [(&'static str, u64); 6] {
    type Count = fn(&Vitals) -> u64;
    let counts: [(&str, Count); 6] = [
        (metric::EVENTS_LOST, |vitals| vitals.lost.events()),
        (metric::EVIDENCE_LOST, |vitals| vitals.lost.evidence()),
        (metric::POINTS_DROPPED, |vitals| vitals.points.dropped),
        (metric::UNKNOWN_COMM_OPS, |vitals| vitals.unknown_comm_ops),
        (metric::BROKEN_BLOCKS, |vitals| vitals.broken_blocks),
        (metric::GPU_OPERATIONS_LOST, |vitals| {
            vitals.gpu_lost.unsummed()
        }),
    ];
    counts.map(|(name, count)| (name, count(now).saturating_sub(count(before))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_reported_as_increases_since_the_last_report() {
        let before = Vitals {
            lost: LostEvents {
                ring: 5,
                in_flight: 1,
                ..LostEvents::default()
            },
            unknown_comm_ops: 9,
            ..Vitals::default()
        };
        let mut now = before.clone();
        (now.lost.ring, now.lost.comms, now.points.dropped) = (7, 3, 1000);
        now.gpu_lost = LostOperations {
            plugin: 40,
            implausible: 3,
            not_summed: 2,
            ..LostOperations::default()
        };
        let expected = [
            ("fleet.agent.events_lost", 2),
            ("fleet.agent.evidence_lost", 3),
            ("fleet.agent.points_dropped", 1000),
            ("fleet.agent.unknown_comm_ops", 0),
            ("fleet.agent.broken_blocks", 0),
            ("fleet.agent.gpu_operations_lost", 42),
        ];
        assert_eq!(counter_increases(&before, &now), expected);
    }

    #[test]
    fn increases_are_never_negative_and_never_overflow() {
        let lost = LostEvents {
            ring: u64::MAX,
            in_flight: 1,
            comms: u64::MAX,
            threads: 1,
            ..LostEvents::default()
        };
        let most = Vitals {
            lost,
            ..Vitals::default()
        };
        let rises = |before, now| counter_increases(before, now).map(|(_, rise)| rise);
        let none = Vitals::default();
        assert_eq!(rises(&none, &most), [u64::MAX, u64::MAX, 0, 0, 0, 0]);
        assert_eq!(rises(&most, &none), [0, 0, 0, 0, 0, 0]);
    }
}
