//! Conversion of delays counted by the kernel, and of the totals of control groups, to delays since
//! the last reading.

use std::collections::{BTreeMap, BTreeSet};
#[cfg(test)]
use std::path::Path;
use std::path::PathBuf;

use fleet_agent_bpf::layout::{DelayKey, DelayKind, DelaySum};
use fleet_agent_core::event::{BlockReason, BlockedTime, DelaySample, Delays, TaskTime};

use crate::process::{CgroupTotals, Processes};

/// Number of readings after which a delay that does not grow is removed from the kernel.
const MAX_IDLE: u32 = 60;

/// Readings of the kernel's delays.
#[derive(Debug)]
pub(crate) struct DelayMeter {
    processes: Processes,
    mount: PathBuf,
    counted: BTreeMap<DelayKey, Counted>,
    cgroups: BTreeMap<u32, CgroupTotals>,
    read_ns: u64,
}

/// Delay at the last reading.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    sum: DelaySum,
    idle: u32,
}

impl DelayMeter {
    /// Starts with zero counters.
    pub(crate) fn new(processes: Processes) -> Self {
        Self {
            processes,
            mount: PathBuf::from("/sys/fs/cgroup"),
            counted: BTreeMap::new(),
            cgroups: BTreeMap::new(),
            read_ns: 0,
        }
    }

    /// Uses the control groups below another mount point.
    #[cfg(test)]
    fn with_mount(mut self, mount: &Path) -> Self {
        self.mount = mount.to_owned();
        self
    }

    /// Compares the delays of all processes with the last reading and returns those of `pids` since
    /// then. `counted` is `None` where the kernel's counters cannot be read.
    pub(crate) fn measure(
        &mut self,
        ts_ns: u64,
        counted: Option<&[(DelayKey, DelaySum)]>,
        pids: impl IntoIterator<Item = u32>,
    ) -> Vec<DelaySample> {
        let from_ns = std::mem::replace(&mut self.read_ns, ts_ns);
        let mut delays: BTreeMap<u32, Delays> = BTreeMap::new();
        for (key, sum) in counted.unwrap_or_default() {
            let since = self.since(key, *sum);
            if since.count > 0 || since.ns > 0 {
                add(delays.entry(key.tgid).or_default(), &key.kind, since);
            }
        }
        // Ranks of one pod share a group, which is read once.
        let mut groups = BTreeMap::new();
        let mut samples = Vec::new();
        for pid in pids {
            let mut delays = delays.remove(&pid).unwrap_or_default();
            if counted.is_some() {
                delays.interrupt_ns.get_or_insert(0);
            }
            self.add_cgroup(pid, &mut delays, &mut groups);
            finish(&mut delays);
            if counted.is_some() || delays != Delays::default() {
                samples.push(DelaySample {
                    from_ns,
                    ts_ns,
                    pid,
                    delays,
                });
            }
        }
        samples
    }

    /// Removes the delays that have not grown for a minute and returns them, so that their entries
    /// in the kernel can be used again.
    pub(crate) fn take_idle(&mut self) -> BTreeSet<DelayKey> {
        let idle = self
            .counted
            .extract_if(.., |_, counted| counted.idle >= MAX_IDLE);
        idle.map(|(key, _)| key).collect()
    }

    /// Removes a process.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.counted.retain(|key, _| key.tgid != pid);
        self.cgroups.remove(&pid);
    }

    fn since(&mut self, key: &DelayKey, sum: DelaySum) -> DelaySum {
        let counted = self.counted.entry(key.clone()).or_default();
        let before = counted.sum;
        counted.sum = sum;
        if (sum.ns, sum.count) == (before.ns, before.count) {
            counted.idle += 1;
        } else {
            counted.idle = 0;
        }
        DelaySum {
            ns: sum.ns.saturating_sub(before.ns),
            count: sum.count.saturating_sub(before.count),
            cpu: sum.cpu,
            longest_ns: sum.longest_ns,
        }
    }

    fn add_cgroup(
        &mut self,
        pid: u32,
        delays: &mut Delays,
        groups: &mut BTreeMap<String, CgroupTotals>,
    ) {
        let Some(membership) = self.processes.cgroup(pid) else {
            return;
        };
        let (processes, mount) = (&self.processes, &self.mount);
        let now = groups
            .entry(membership)
            .or_insert_with_key(|membership| processes.cgroup_totals(pid, mount, membership));
        // The first reading has no predecessor.
        if let Some(before) = self.cgroups.insert(pid, now.clone()) {
            delays.cgroup_throttled_ns = now.throttled_since(&before);
            delays.pressure = now.pressure_since(&before);
        }
    }
}

fn add(delays: &mut Delays, kind: &DelayKind, since: DelaySum) {
    match kind {
        DelayKind::Task(task) => delays.preempted_by.push(TaskTime {
            task: task.clone(),
            cpu: Some(since.cpu),
            ns: since.ns,
            switches: since.count,
        }),
        DelayKind::Blocked(number) => {
            let at = usize::try_from(*number).unwrap_or(usize::MAX);
            let reason = BlockReason::ALL.get(at).copied();
            delays.blocked.push(BlockedTime {
                reason: reason.unwrap_or(BlockReason::Other),
                ns: since.ns,
                count: since.count,
                longest_ns: since.longest_ns,
            });
        }
        DelayKind::Interrupt => delays.interrupt_ns = Some(since.ns),
        DelayKind::Preemption => delays.longest_preemption_ns = Some(since.longest_ns),
    }
}

/// Sorts by time and sums up the tasks that are not named.
fn finish(delays: &mut Delays) {
    delays.name_largest_tasks();
    delays
        .blocked
        .sort_by(|a, b| b.ns.cmp(&a.ns).then(a.reason.cmp(&b.reason)));
}

#[cfg(test)]
mod tests {
    use fleet_agent_core::event::OTHER_TASKS;

    use super::*;

    fn key(tgid: u32, kind: DelayKind) -> DelayKey {
        DelayKey { tgid, kind }
    }

    fn sum(ns: u64, count: u64) -> DelaySum {
        DelaySum {
            ns,
            count,
            cpu: 3,
            longest_ns: 0,
        }
    }

    fn meter() -> (tempfile::TempDir, DelayMeter) {
        let host = tempfile::tempdir().unwrap();
        let processes = Processes::new(host.path().join("proc"));
        let meter = DelayMeter::new(processes).with_mount(&host.path().join("cgroup"));
        (host, meter)
    }

    #[test]
    fn the_three_longest_tasks_are_named_and_the_rest_is_one_entry() {
        let (_host, mut meter) = meter();
        let task = |name: &str, ns| (key(7, DelayKind::Task(name.to_owned())), sum(ns, 2));
        let tasks = [
            task("a", 1),
            task("b", 50),
            task("c", 30),
            task("d", 2),
            task("e", 40),
        ];
        let measured = meter.measure(9, Some(&tasks), [7]);
        let named: Vec<(&str, u64, u64)> = measured[0]
            .delays
            .preempted_by
            .iter()
            .map(|task| (task.task.as_str(), task.ns, task.switches))
            .collect();
        assert_eq!(
            named,
            [
                ("b", 50, 2),
                ("e", 40, 2),
                ("c", 30, 2),
                (OTHER_TASKS, 3, 4)
            ]
        );
    }

    #[test]
    fn delays_count_since_the_last_reading_and_for_each_process() {
        let (_host, mut meter) = meter();
        let delays = |lock, interrupt| {
            [
                (key(7, DelayKind::Blocked(0)), sum(lock, lock)),
                (key(7, DelayKind::Blocked(3)), sum(lock / 2, 1)),
                (key(8, DelayKind::Interrupt), sum(interrupt, 1)),
            ]
        };
        meter.measure(1, Some(&delays(100, 5)), [7, 8]);
        let measured = meter.measure(2, Some(&delays(160, 5)), [7, 8]);
        let reasons: Vec<(BlockReason, u64)> = measured[0]
            .delays
            .blocked
            .iter()
            .map(|blocked| (blocked.reason, blocked.ns))
            .collect();
        assert_eq!(
            reasons,
            [(BlockReason::Lock, 60), (BlockReason::Network, 30)]
        );
        assert_eq!(measured[1].delays.interrupt_ns, Some(0));
        assert_eq!((measured[1].from_ns, measured[1].ts_ns), (1, 2));
    }

    #[test]
    fn a_delay_that_does_not_grow_for_a_minute_is_removed() {
        let (_host, mut meter) = meter();
        let delay = [(key(7, DelayKind::Interrupt), sum(5, 1))];
        for ts in 0..=u64::from(MAX_IDLE) {
            assert!(meter.take_idle().is_empty());
            meter.measure(ts, Some(&delay), [7]);
        }
        assert_eq!(meter.take_idle(), BTreeSet::from([delay[0].0.clone()]));
        let again = meter.measure(99, Some(&delay), [7]);
        assert_eq!(again[0].delays.interrupt_ns, Some(5));
    }

    #[test]
    fn a_process_of_which_nothing_can_be_seen_has_no_delays() {
        let (_host, mut meter) = meter();
        assert_eq!(meter.measure(1, None, [7]), []);
    }
}
