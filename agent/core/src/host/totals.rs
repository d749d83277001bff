//! Sums over the processes of one host.

use crate::pipeline::Pipeline;
use crate::vitals::LostOperations;

/// Counters summed over processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Blocks closed.
    pub blocks: u64,
    /// Blocks discarded because a part of them was not seen.
    pub broken_blocks: u64,
    /// Operations on communicators created before tracing began.
    pub unknown_comm_ops: u64,
    /// Losses of operations on GPUs.
    pub gpu_lost: LostOperations,
}

impl Totals {
    /// Adds the counters of a process.
    pub(super) fn add(&mut self, pipeline: &Pipeline) {
        self.blocks += pipeline.blocks();
        self.broken_blocks += pipeline.broken_blocks();
        self.unknown_comm_ops += pipeline.unknown_comm_ops();
        self.gpu_lost += pipeline.lost_operations();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Ended, Event, GpuOperation, GpuSpan, Labels, Op, Process, Started};
    use crate::host::{Host, Identity};
    use crate::pipeline::Ending;

    fn host() -> Host {
        Host::new(Identity::without_job(), u64::MAX)
    }

    fn started(ts_ns: u64, pid: u32) -> Event {
        Event::Started(Box::new(Started {
            ts_ns,
            process: Process {
                pid,
                rank: 0,
                world_size: 2,
            },
            labels: Labels::default(),
        }))
    }

    /// Operation of an unknown communicator.
    fn gpu_operation(ts_ns: u64, pid: u32, lost: u64) -> Event {
        Event::GpuOperation(GpuOperation {
            ts_ns,
            pid,
            comm_id: 9,
            rank: 0,
            nranks: 2,
            nth: 0,
            op: Op::AllReduce,
            root: None,
            seq: 0,
            nccl_seq: None,
            count: 1,
            host_ns: ts_ns,
            timer: Some(GpuSpan {
                start_ns: ts_ns,
                stop_ns: ts_ns + 1,
            }),
            lost,
        })
    }

    #[test]
    fn losses_of_an_ended_process_stay_in_the_sum() {
        let mut host = host();
        let events = [
            started(1, 7),
            started(1, 8),
            gpu_operation(10, 7, 3),
            gpu_operation(10, 8, 40),
            Event::Ended(Ended {
                ts_ns: 20,
                pid: 7,
                exit: None,
            }),
        ];
        for event in &events {
            host.on_event(event);
        }
        let both = LostOperations {
            plugin: 43,
            unknown_comm: 2,
            ..LostOperations::default()
        };
        assert_eq!(host.totals().gpu_lost, both);
        host.take_verdicts();
        assert_eq!((host.n_processes(), host.totals().gpu_lost), (1, both));
        // A new process with a reused pid is counted separately.
        for event in [started(30, 8), gpu_operation(40, 8, 5)] {
            host.on_event(&event);
        }
        let all = LostOperations {
            plugin: 48,
            unknown_comm: 3,
            ..both
        };
        assert_eq!(host.totals().gpu_lost, all);
    }

    #[test]
    fn counters_reported_twice_before_a_batch_is_sent_are_added() {
        let mut host = host();
        host.report_counters(vec![("lost", 3), ("dropped", 0)]);
        host.tick(1_000);
        host.report_counters(vec![("lost", 0), ("dropped", 2)]);
        let (batch, _) = host.finish(Ending::Cut);
        let counters = batch.unwrap().agent_counters.unwrap();
        assert_eq!(counters.counts, [("lost", 3), ("dropped", 2)]);
        assert_eq!((counters.start_ns, counters.time_ns), (0, 1_000));
    }
}
