//! Known communicators, checked against the identity in each operation. Pure.

use std::collections::BTreeMap;

use fleet_agent_bpf::layout::CallRecord;
use fleet_agent_core::event::CommInit;

/// Change of a communicator that an operation reveals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommChange {
    /// Unknown communicator: the record of its creation was lost, or comes from an earlier agent.
    Made(CommInit),
    /// Another communicator than the known one at this address, of unknown origin.
    Unknown,
}

/// Communicators by process and address.
#[derive(Debug, Default)]
pub(crate) struct KnownComms {
    known: BTreeMap<(u32, u64), CommInit>,
}

impl KnownComms {
    /// Adds a communicator that a process has joined.
    pub(crate) fn insert(&mut self, pid: u32, init: CommInit) {
        if let Some(pointer) = init.comm {
            self.known.insert((pid, pointer), init);
        }
    }

    /// Removes a communicator and returns whether it was known.
    pub(crate) fn remove(&mut self, pid: u32, pointer: u64) -> bool {
        self.known.remove(&(pid, pointer)).is_some()
    }

    /// Returns the communicators of a process.
    pub(crate) fn of_process(&self, pid: u32) -> impl Iterator<Item = &CommInit> {
        let range = (pid, 0)..=(pid, u64::MAX);
        self.known.range(range).map(|(_, init)| init)
    }

    /// Returns the change that an operation reveals, if any.
    pub(super) fn change_in(&self, record: &CallRecord) -> Option<CommChange> {
        let known = self.known.get(&(record.tgid, record.comm));
        match known {
            Some(_) if record.comm_id == 0 => Some(CommChange::Unknown),
            Some(init) if init.unique_id == record.comm_id => None,
            None if record.comm_id == 0 => None,
            Some(_) | None => Some(CommChange::Made(CommInit {
                nranks: record.nranks,
                rank: record.rank,
                unique_id: record.comm_id,
                comm: Some(record.comm),
            })),
        }
    }

    /// Removes a process.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.known.retain(|(owner, _), _| *owner != pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(comm: u64, comm_id: u64) -> CallRecord {
        CallRecord {
            tgid: 7,
            comm,
            comm_id,
            rank: 1,
            nranks: 4,
            ..CallRecord::default()
        }
    }

    fn joined(comm: u64, unique_id: u64) -> CommInit {
        CommInit {
            nranks: 4,
            rank: 1,
            unique_id,
            comm: Some(comm),
        }
    }

    #[test]
    fn an_operation_replaces_a_lost_record_of_its_communicator() {
        let mut comms = KnownComms::default();
        let change = comms.change_in(&operation(0x10, 5));
        assert_eq!(change, Some(CommChange::Made(joined(0x10, 5))));
        comms.insert(7, joined(0x10, 5));
        assert_eq!(comms.change_in(&operation(0x10, 5)), None);
    }

    #[test]
    fn a_reused_address_is_another_communicator() {
        let mut comms = KnownComms::default();
        comms.insert(7, joined(0x10, 5));
        let change = comms.change_in(&operation(0x10, 6));
        assert_eq!(change, Some(CommChange::Made(joined(0x10, 6))));
        assert_eq!(
            comms.change_in(&operation(0x10, 0)),
            Some(CommChange::Unknown)
        );
        comms.remove(7, 0x10);
        assert_eq!(comms.change_in(&operation(0x10, 0)), None);
    }

    #[test]
    fn a_process_that_has_ended_leaves_nothing() {
        let mut comms = KnownComms::default();
        comms.insert(7, joined(0x10, 5));
        comms.insert(8, joined(0x10, 5));
        comms.forget(7);
        assert_eq!(
            (comms.of_process(7).count(), comms.of_process(8).count()),
            (0, 1)
        );
    }
}
