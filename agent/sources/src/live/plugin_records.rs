//! Queue of plugin records that wait for earlier calls to be yielded. Pure.

use std::collections::BTreeMap;

use fleet_agent_bpf::layout::PluginRecord;
use fleet_agent_core::event::{CommInit, Event, GpuOperation, GpuSpan, Op};

/// Functions in the order of the plugin's numbers.
const FUNCTIONS: [Op; 10] = [
    Op::AllReduce,
    Op::AllGather,
    Op::ReduceScatter,
    Op::Broadcast,
    Op::Reduce,
    Op::AllToAll,
    Op::Gather,
    Op::Scatter,
    Op::Send,
    Op::Recv,
];

const JOINED: u32 = 1;
const COLLECTIVE: u32 = 2;
const TRANSFER: u32 = 3;

/// Maximum number of queued records; the oldest are released early beyond that.
const MAX_QUEUED: usize = 1 << 16;

/// Records in order of time.
#[derive(Debug, Default)]
pub(super) struct PluginRecordQueue {
    records: BTreeMap<(u64, u64), PluginRecord>,
    pushed: u64,
}

impl PluginRecordQueue {
    /// Adds the records of a poll.
    pub(super) fn extend(&mut self, records: &[PluginRecord]) {
        for record in records {
            self.pushed += 1;
            self.records.insert((record.seen_ns, self.pushed), *record);
        }
    }

    /// Takes the records up to `until_ns`, in order.
    pub(super) fn take_until(&mut self, until_ns: u64) -> Vec<PluginRecord> {
        let mut due = Vec::new();
        // A process may be blocked in a call that never returns, which delays later records.
        while self.records.len() > MAX_QUEUED {
            due.extend(self.records.pop_first().map(|(_, record)| record));
        }
        while let Some(first) = self.records.first_entry() {
            if first.key().0 > until_ns {
                break;
            }
            due.push(first.remove());
        }
        due
    }

    /// Removes a process.
    pub(super) fn forget(&mut self, pid: u32) {
        self.records.retain(|_, record| record.tgid != pid);
    }
}

/// Returns the communicator that a record's process joins, if any.
pub(super) fn comm_init(record: &PluginRecord) -> Option<CommInit> {
    (record.what == JOINED).then_some(CommInit {
        nranks: record.nranks,
        rank: record.rank,
        unique_id: record.comm_id,
        comm: None,
    })
}

/// Returns the operation of a record; `None` if it has none.
pub(crate) fn operation(record: &PluginRecord) -> Option<Op> {
    let is_operation = matches!(record.what, COLLECTIVE | TRANSFER);
    let op = FUNCTIONS.get(usize::try_from(record.function).ok()?);
    op.copied().filter(|_| is_operation)
}

/// Returns the event of a record; `None` if it has none.
pub(super) fn event(record: &PluginRecord) -> Option<Event> {
    let PluginRecord {
        seen_ns: ts_ns,
        tgid: pid,
        comm_id,
        rank,
        nranks,
        ..
    } = *record;
    match record.what {
        COLLECTIVE | TRANSFER => {
            let op = operation(record)?;
            let timer = (record.gpu_stop_ns > 0).then_some(GpuSpan {
                start_ns: record.gpu_start_ns,
                stop_ns: record.gpu_stop_ns,
            });
            Some(Event::GpuOperation(GpuOperation {
                ts_ns,
                pid,
                comm_id,
                rank,
                nranks,
                nth: record.nth,
                op,
                root: u32::try_from(record.peer)
                    .ok()
                    .filter(|_| !op.waits_for_all()),
                seq: record.seq,
                nccl_seq: (record.what == COLLECTIVE).then_some(record.nccl_seq),
                count: record.count,
                host_ns: record.host_ns,
                timer,
                lost: record.lost.into(),
            }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(seen_ns: u64, function: u32) -> PluginRecord {
        PluginRecord {
            seen_ns,
            tgid: 7,
            what: COLLECTIVE,
            function,
            gpu_start_ns: 10,
            gpu_stop_ns: 20,
            ..PluginRecord::default()
        }
    }

    #[test]
    fn records_wait_for_the_calls_before_them() {
        let mut queue = PluginRecordQueue::default();
        queue.extend(&[record(300, 0), record(100, 0), record(200, 0)]);
        let times = |due: Vec<PluginRecord>| -> Vec<u64> {
            due.iter().map(|record| record.seen_ns).collect()
        };
        assert_eq!(times(queue.take_until(250)), [100, 200]);
        assert_eq!(times(queue.take_until(250)), [0; 0]);
        queue.forget(7);
        assert_eq!(times(queue.take_until(u64::MAX)), [0; 0]);
    }

    #[test]
    fn unknown_operations_are_ignored() {
        assert!(matches!(
            event(&record(1, 8)),
            Some(Event::GpuOperation(GpuOperation { op: Op::Send, .. }))
        ));
        assert_eq!(event(&record(1, 255)), None);
    }

    #[test]
    fn an_operation_reports_how_many_its_plugin_has_dropped() {
        let after_three = PluginRecord {
            lost: 3,
            ..record(1, 0)
        };
        assert!(matches!(
            event(&after_three),
            Some(Event::GpuOperation(GpuOperation { lost: 3, .. }))
        ));
    }
}
