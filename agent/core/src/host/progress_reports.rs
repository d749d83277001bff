//! Reports of progress: those that were made without probes, and which do not wait for the next batch.

use crate::batch::{Batch, ResourcePoints};
use crate::host::resources::job_name;
use crate::host::{BATCH_POINTS, Host};

impl Host {
    /// Returns whether a traced process has joined a communicator of this size with this rank, so
    /// that its progress is reported from its calls.
    pub fn has_comm(&self, pid: u32, rank: u32, size: u32) -> bool {
        let pipeline = self.pipelines.get(&pid);
        pipeline.is_some_and(|pipeline| pipeline.has_comm(rank, size))
    }

    /// Returns the job of a traced process, if known.
    pub fn job(&self, pid: u32) -> Option<String> {
        let pipeline = self.pipelines.get(&pid)?;
        job_name(&self.identity, self.labels.get(&pid), pipeline)
    }

    /// Returns the processes that have issued nothing for some seconds, with that time in nanoseconds.
    pub fn still(&self, now_ns: u64) -> impl Iterator<Item = (u32, u64)> {
        let pipelines = self.pipelines.iter();
        pipelines.filter_map(move |(pid, pipeline)| Some((*pid, pipeline.still_ns(now_ns)?)))
    }

    /// Updates which processes are stopped by a signal or a debugger.
    pub fn set_stopped(&mut self, is_stopped: impl Fn(u32) -> bool) {
        for (pid, pipeline) in &mut self.pipelines {
            pipeline.set_stopped(is_stopped(*pid));
        }
    }

    /// Records how many operations the GPU of a process has begun and not ended, as read since `read_ns`; `None`
    /// if that is unknown.
    pub fn set_running(&mut self, pid: u32, running: Option<u64>, read_ns: u64) {
        if let Some(pipeline) = self.pipelines.get_mut(&pid) {
            pipeline.set_running(running, read_ns);
        }
    }

    /// Returns whether a process that does nothing has something to report. A stall is to be known soon, so
    /// its progress does not wait for the next batch.
    pub(super) fn has_still_process(&self, now_ns: u64) -> bool {
        let pending = self.pending.keys();
        let mut pending = pending.filter_map(|pid| self.pipelines.get(pid));
        pending.any(|pipeline| pipeline.is_still(now_ns))
    }

    /// Returns the batches that deliver these points, whose times are Unix nanoseconds.
    pub fn batches(&mut self, mut resources: Vec<ResourcePoints>) -> Vec<Batch> {
        let mut batches = Vec::new();
        while !resources.is_empty() {
            let rest = resources.split_off(resources.len().min(BATCH_POINTS));
            self.batches += 1;
            batches.push(Batch {
                number: self.batches,
                resources,
                reports: Vec::new(),
                agent_counters: None,
            });
            resources = rest;
        }
        batches
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Call, CallKind, CommInit, Event, Labels, Op, Operation, Process, Started};
    use crate::host::Identity;
    use crate::signal::Value;

    const SECOND: u64 = 1_000_000_000;

    const OPERATION: Operation = Operation {
        op: Op::AllReduce,
        count: 1,
        datatype: 7,
        comm: 1,
        seq: None,
        peer: None,
    };

    fn call(ts_ns: u64, kind: CallKind) -> Event {
        Event::Call(Call {
            ts_ns,
            dur_ns: 1,
            pid: 1,
            tid: 1,
            kind,
        })
    }

    /// Host with a rank that has issued one operation, at the first second; batches are due after a day.
    fn host() -> Host {
        let mut host = Host::new(Identity::without_job(), 86_400 * SECOND);
        let process = Process {
            pid: 1,
            rank: 0,
            world_size: 2,
        };
        host.on_event(&Event::Started(Box::new(Started {
            ts_ns: 0,
            process,
            labels: Labels::default(),
        })));
        let init = CommInit {
            nranks: 2,
            rank: 0,
            unique_id: 7,
            comm: Some(1),
        };
        host.on_event(&call(1, CallKind::CommInit(init)));
        host.on_event(&call(SECOND, CallKind::Operation(OPERATION)));
        host
    }

    #[test]
    fn the_progress_of_a_process_that_does_nothing_is_sent_at_once() {
        let mut host = host();
        let sent = (2..100).filter(|second| host.tick(second * SECOND).is_some());
        let sent: Vec<u64> = sent.collect();
        // Reported every four seconds; until 6 s it may be a step, and after a minute it is idle.
        let expected: Vec<u64> = (6..61).step_by(4).collect();
        assert_eq!(sent, expected);
    }

    #[test]
    fn the_operations_that_a_gpu_is_in_are_reported_until_the_process_issues_another_one() {
        let mut host = host();
        let reported = |host: &mut Host, second: u64| {
            let batch = host.tick(second * SECOND);
            let points = batch.into_iter().flat_map(|batch| batch.resources);
            let points = points.flat_map(|own| own.points);
            let running = points.filter_map(|point| match point.value {
                Value::Issued { running, .. } => Some(running),
                _ => None,
            });
            running.collect::<Vec<_>>()
        };
        // Read before the operation was issued.
        host.set_running(1, Some(1), SECOND);
        assert_eq!(reported(&mut host, 6), [None]);
        host.set_running(1, Some(1), 2 * SECOND);
        assert_eq!(reported(&mut host, 10), [Some(1)]);
        host.on_event(&call(11 * SECOND, CallKind::Operation(OPERATION)));
        assert_eq!(reported(&mut host, 17), [None]);
    }
}
