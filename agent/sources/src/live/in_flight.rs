//! Operations in flight of processes that do nothing: the NCCL profiler plugin keeps them in the memory of
//! the process, with whether the GPU has begun them. They are read while nothing ends.

use std::collections::BTreeMap;

use fleet_agent_bpf::layout::{PluginRecord, SlotInUse, SlotTable};
use fleet_agent_core::progress::NotBegun;

/// Time without a record after which a process is read, and after which it is not read any more,
/// nanoseconds.
const STILL_NS: u64 = 3_000_000_000;
const IDLE_NS: u64 = 60_000_000_000;
/// Time between two reads of a process, nanoseconds.
const INTERVAL_NS: u64 = 2_000_000_000;

/// Tables of the traced processes.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    processes: BTreeMap<u32, Process>,
}

#[derive(Debug)]
struct Process {
    table: SlotTable,
    /// Time of its last record.
    last_ns: u64,
    read_ns: u64,
}

impl InFlight {
    /// Takes in the records of a poll.
    pub(super) fn record(&mut self, records: &[PluginRecord]) {
        for record in records {
            let (pid, last_ns) = (record.tgid, record.seen_ns);
            if let Some(process) = self.processes.get_mut(&pid) {
                process.last_ns = last_ns.max(process.last_ns);
            }
            if let Some(table) = SlotTable::announced(record) {
                let read_ns = self.processes.get(&pid).map_or(0, |known| known.read_ns);
                let process = Process {
                    table,
                    last_ns,
                    read_ns,
                };
                self.processes.insert(pid, process);
            }
        }
    }

    /// Returns the tables to read at `now_ns`, by process.
    pub(super) fn due(&mut self, now_ns: u64) -> Vec<(u32, SlotTable)> {
        let due = self.processes.iter_mut().filter_map(|(pid, process)| {
            let still_ns = now_ns.saturating_sub(process.last_ns);
            let is_due = (STILL_NS..IDLE_NS).contains(&still_ns)
                && now_ns.saturating_sub(process.read_ns) >= INTERVAL_NS;
            is_due.then(|| {
                process.read_ns = now_ns;
                (*pid, process.table)
            })
        });
        due.collect()
    }

    /// Removes a process.
    pub(super) fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }
}

/// Returns how many collectives in flight the GPU has not begun, for each communicator that has some in
/// flight.
pub(super) fn not_begun(table: &[u8]) -> Vec<NotBegun> {
    let mut by_comm: BTreeMap<(u64, u32), u64> = BTreeMap::new();
    for slot in SlotInUse::parse(table) {
        let operations = by_comm.entry((slot.comm_id, slot.rank)).or_default();
        *operations += u64::from(!slot.has_begun);
    }
    let not_begun = by_comm.into_iter();
    not_begun
        .map(|((comm_id, rank), operations)| NotBegun {
            comm_id,
            rank,
            operations,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_process_is_read_every_two_seconds_while_no_operation_ends_for_a_minute_at_most() {
        let mut in_flight = InFlight::default();
        let slots = PluginRecord {
            tgid: 7,
            what: 5,
            seen_ns: SECOND,
            count: 0x7000,
            seq: 4096,
            nccl_seq: 104,
            ..PluginRecord::default()
        };
        let ran = PluginRecord {
            what: 2,
            seen_ns: 10 * SECOND,
            ..slots
        };
        in_flight.record(&[slots, ran]);
        let read = |from: u64, to: u64, in_flight: &mut InFlight| {
            (from..to)
                .filter(|second| !in_flight.due(second * SECOND).is_empty())
                .count()
        };
        assert_eq!(read(10, 13, &mut in_flight), 0);
        assert_eq!(read(13, 23, &mut in_flight), 5);
        assert_eq!(read(70, 90, &mut in_flight), 0);
        in_flight.record(&[PluginRecord {
            seen_ns: 90 * SECOND,
            ..ran
        }]);
        assert_eq!(read(93, 94, &mut in_flight), 1);
        in_flight.forget(7);
        assert_eq!(read(95, 100, &mut in_flight), 0);
    }
}
