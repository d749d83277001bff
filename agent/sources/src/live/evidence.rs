//! Conversion of the kernel's counters to activity since the last reading. Pure.

use std::collections::BTreeMap;

use fleet_agent_bpf::layout::{CallSum, FunctionSum, HostSum};
use fleet_agent_core::event::{
    Activity, ActivitySample, CopiedBytes, Direction, KernelWork, OffCpuTime,
};

use crate::functions::{self, Effect};

/// Counters at the last reading.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    calls: BTreeMap<(u32, u32), CallSum>,
    host: BTreeMap<u32, HostSum>,
    tcp_retransmits: Option<u64>,
    read_ns: u64,
}

impl Evidence {
    /// Compares the counters of all processes with the last reading and returns the activity of
    /// each process since then.
    pub(super) fn measure(
        &mut self,
        ts_ns: u64,
        calls: &[FunctionSum],
        host: Option<&[(u32, HostSum)]>,
        tcp_retransmits: Option<u64>,
    ) -> Vec<ActivitySample> {
        let from_ns = std::mem::replace(&mut self.read_ns, ts_ns);
        let mut activities: BTreeMap<u32, Activity> = BTreeMap::new();
        for FunctionSum { tgid, op, sum } in calls {
            let before = self.calls.insert((*tgid, *op), *sum).unwrap_or_default();
            add_calls(activities.entry(*tgid).or_default(), *op, sum, &before);
        }
        for (pid, sum) in host.unwrap_or_default() {
            let before = self.host.insert(*pid, *sum).unwrap_or_default();
            add_host(activities.entry(*pid).or_default(), sum, &before);
        }
        if let Some(now) = tcp_retransmits {
            // The first reading has no predecessor: counting starts with the agent.
            let sent_again = now.saturating_sub(self.tcp_retransmits.replace(now).unwrap_or(now));
            for activity in activities.values_mut() {
                activity.tcp_retransmits = Some(sent_again);
            }
        }
        let measured = activities
            .into_iter()
            .map(|(pid, activity)| ActivitySample {
                from_ns,
                ts_ns,
                pid,
                activity,
            });
        measured.collect()
    }

    /// Removes a process.
    pub(super) fn forget(&mut self, pid: u32) {
        self.calls.retain(|(owner, _), _| *owner != pid);
        self.host.remove(&pid);
    }
}

/// Adds the counted calls of a process. The second byte of `op` is the direction of a copy, or the
/// type of a device event.
fn add_calls(activity: &mut Activity, op: u32, sum: &CallSum, before: &CallSum) {
    let [number, kind, ..] = op.to_le_bytes();
    let calls = sum.calls.saturating_sub(before.calls);
    let bytes = sum.bytes.saturating_sub(before.bytes);
    match functions::by_number(number).map(|function| function.effect) {
        Some(Effect::Launches) => *activity.launches.get_or_insert_default() += calls,
        Some(Effect::LaunchesGraph) => *activity.graph_launches.get_or_insert_default() += calls,
        Some(Effect::Copies) => {
            let copied: &mut CopiedBytes = activity.memcpy_bytes.get_or_insert_default();
            match Direction::from_cuda_kind(kind.into()) {
                Direction::ToDevice => copied.to_device += bytes,
                Direction::ToHost => copied.to_host += bytes,
                Direction::Unspecified => copied.unspecified += bytes,
                Direction::WithinDevice => {}
            }
        }
        Some(Effect::AcknowledgesEvent) if functions::is_rdma_error(kind.into()) => {
            *activity.rdma_errors.get_or_insert_default() += calls;
        }
        _ => {}
    }
}

fn add_host(activity: &mut Activity, sum: &HostSum, before: &HostSum) {
    activity.threads = Some(OffCpuTime {
        off_cpu_ns: sum.off_cpu_ns.saturating_sub(before.off_cpu_ns),
        run_queue_ns: Some(sum.run_queue_ns.saturating_sub(before.run_queue_ns)),
        preempted_ns: sum.preempted_ns.saturating_sub(before.preempted_ns),
        preemptions: sum.preemptions.saturating_sub(before.preemptions),
    });
    activity.kernel = Some(KernelWork {
        page_allocations: sum.page_allocations.saturating_sub(before.page_allocations),
        block_io_ns: sum.block_io_ns.saturating_sub(before.block_io_ns),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::FUNCTIONS;

    fn op(name: &str, kind: u32) -> u32 {
        let at = FUNCTIONS.iter().position(|function| function.name == name);
        u32::try_from(at.unwrap()).unwrap() | kind << 8
    }

    fn sum(op: u32, calls: u64, bytes: u64) -> FunctionSum {
        let sum = CallSum {
            calls,
            bytes,
            ..CallSum::default()
        };
        FunctionSum { tgid: 7, op, sum }
    }

    #[test]
    fn copies_are_counted_by_direction_since_the_last_reading() {
        let mut evidence = Evidence::default();
        let copies = |to_device, to_host| {
            [
                sum(op("cudaMemcpyAsync", 1), 1, to_device),
                sum(op("cudaMemcpyAsync", 2), 1, to_host),
                sum(op("cudaMemcpyAsync", 3), 1, 9999),
            ]
        };
        evidence.measure(1, &copies(100, 10), None, None);
        let measured = evidence.measure(2, &copies(150, 10), None, None);
        assert_eq!((measured[0].from_ns, measured[0].ts_ns), (1, 2));
        let copied = CopiedBytes {
            to_device: 50,
            ..CopiedBytes::default()
        };
        assert_eq!(measured[0].activity.memcpy_bytes, Some(copied));
    }

    #[test]
    fn only_errors_of_rdma_events_count() {
        let mut evidence = Evidence::default();
        let events = |kind, calls| sum(op("ibv_ack_async_event", kind), calls, 0);
        // A port failure, the recovery of the port, and a queue that was drained as intended.
        let measured =
            evidence.measure(1, &[events(10, 2), events(9, 1), events(5, 1)], None, None);
        assert_eq!(measured[0].activity.rdma_errors, Some(2));
    }

    #[test]
    fn host_counters_apply_to_each_process() {
        let mut evidence = Evidence::default();
        let host = [
            (
                7,
                HostSum {
                    preemptions: 3,
                    ..HostSum::default()
                },
            ),
            (8, HostSum::default()),
        ];
        let first = evidence.measure(1, &[], Some(&host), Some(40));
        assert_eq!(first[0].activity.threads.unwrap().preemptions, 3);
        assert_eq!(first[0].activity.tcp_retransmits, Some(0));
        let second = evidence.measure(2, &[], Some(&host), Some(42));
        let retransmits: Vec<Option<u64>> = second
            .iter()
            .map(|measured| measured.activity.tcp_retransmits)
            .collect();
        assert_eq!(retransmits, [Some(2), Some(2)]);
        assert_eq!(second[0].activity.threads.unwrap().preemptions, 0);
    }

    #[test]
    fn unseen_counters_are_unknown_and_not_zero() {
        let mut evidence = Evidence::default();
        let measured = evidence.measure(1, &[sum(op("cudaLaunchKernel", 0), 5, 0)], None, None);
        assert_eq!(
            measured[0].activity,
            Activity {
                launches: Some(5),
                ..Activity::default()
            }
        );
    }
}
