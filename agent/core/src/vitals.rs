//! How an agent itself is doing: plain data.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

use fleet_proto::metric;

/// How an agent is doing at one moment. Counts are since the agent was started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Vitals {
    /// Events that were seen, by the name of their source.
    pub events: BTreeMap<&'static str, u64>,
    /// What the programs could not tell.
    pub lost: LostEvents,
    /// Processes that are traced now.
    pub processes: u64,
    /// Operations on communicators that were made before tracing began.
    pub unknown_comm_ops: u64,
    /// Blocks of operations that were left out, because something of them was not seen.
    pub broken_blocks: u64,
    /// What is missing of operations on GPUs.
    pub gpu_lost: LostOperations,
    /// What became of points.
    pub points: PointCounts,
    /// Bytes of points that wait on disk to be sent.
    pub spool_bytes: u64,
    /// Version of the policy set in use; none before the first one.
    pub policy_version: Option<u64>,
    /// Policy sets that asked for a sampling that is not believed.
    pub implausible_policies: u64,
    /// Clients of the hook socket that are connected.
    pub hook_clients: u64,
    /// Clients of the hook socket that were cut off because they fell behind.
    pub hook_clients_dropped: u64,
    /// Time that the agent has spent on CPUs.
    pub cpu: Duration,
    /// Memory that the agent holds, bytes.
    pub rss_bytes: u64,
}

/// What the programs had no room for or could not read, by what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LostEvents {
    /// Events: the ring to the agent was full.
    pub ring: u64,
    /// Calls: too many lasted at once.
    pub in_flight: u64,
    /// Communicators.
    pub comms: u64,
    /// Processes.
    pub traced: u64,
    /// Threads.
    pub threads: u64,
    /// Sums of calls.
    pub sums: u64,
    /// Sums of what the kernel did.
    pub host_sums: u64,
    /// Arguments behind pointers.
    pub unreadable: u64,
    /// Files that were not looked into when they were mapped, because too many were.
    pub files: u64,
}

impl LostEvents {
    /// Everything that an event is missing for.
    pub fn events(&self) -> u64 {
        self.ring.saturating_add(self.in_flight)
    }

    /// Everything else: what events and their explanation rest on.
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

/// Operations on GPUs that are missing, or whose times are, by why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LostOperations {
    /// The profiler plugin left them out, since it was loaded.
    pub plugin: u64,
    /// Their times were those of another one: they would have begun before they were enqueued.
    pub implausible: u64,
    /// Their end was that of a later one, or they lie among many of which it was.
    pub overwritten: u64,
    /// Times of their communicator are not used any more: most were those of an earlier operation.
    pub counter_lost: u64,
    /// Nobody knows their communicator: it was made before tracing began, for one.
    pub unknown_comm: u64,
}

impl AddAssign for LostOperations {
    fn add_assign(&mut self, rhs: Self) {
        self.plugin = self.plugin.saturating_add(rhs.plugin);
        self.implausible = self.implausible.saturating_add(rhs.implausible);
        self.overwritten = self.overwritten.saturating_add(rhs.overwritten);
        self.counter_lost = self.counter_lost.saturating_add(rhs.counter_lost);
        self.unknown_comm = self.unknown_comm.saturating_add(rhs.unknown_comm);
    }
}

/// What became of points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PointCounts {
    /// Points that were made.
    pub made: u64,
    /// Points that the collector has.
    pub sent: u64,
    /// Points that the collector will never have.
    pub dropped: u64,
}

/// What a host reports of its agent to Echo: names of metrics, and how much each rose from `before` to `now`. What did not
/// rise is reported, too: it says that somebody counts.
pub fn counter_increases(before: &Vitals, now: &Vitals) -> [(&'static str, u64); 5] {
    type Count = fn(&Vitals) -> u64;
    let counts: [(&str, Count); 5] = [
        (metric::EVENTS_LOST, |vitals| vitals.lost.events()),
        (metric::EVIDENCE_LOST, |vitals| vitals.lost.evidence()),
        (metric::POINTS_DROPPED, |vitals| vitals.points.dropped),
        (metric::UNKNOWN_COMM_OPS, |vitals| vitals.unknown_comm_ops),
        (metric::BROKEN_BLOCKS, |vitals| vitals.broken_blocks),
    ];
    counts.map(|(name, count)| (name, count(now).saturating_sub(count(before))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reported_is_the_rise_since_the_last_time() {
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
        let expected = [
            ("fleet.agent.events_lost", 2),
            ("fleet.agent.evidence_lost", 3),
            ("fleet.agent.points_dropped", 1000),
            ("fleet.agent.unknown_comm_ops", 0),
            ("fleet.agent.broken_blocks", 0),
        ];
        assert_eq!(counter_increases(&before, &now), expected);
    }

    #[test]
    fn counts_never_fall_or_overflow() {
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
        assert_eq!(rises(&none, &most), [u64::MAX, u64::MAX, 0, 0, 0]);
        assert_eq!(rises(&most, &none), [0, 0, 0, 0, 0]);
    }
}
