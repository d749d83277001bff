//! Rank and size of recorded communicators.

use fleet_agent_bpf::layout::CallRecord;
use fleet_agent_core::event::CallKind;

use crate::comm_fields::RankAndSize;
use crate::functions;
use crate::live::comms::KnownComms;
use crate::live::sizes::CommSizes;

/// Ranks and sizes of the communicators of recorded processes.
#[derive(Debug, Default)]
pub(super) struct RecordedSizes {
    comms: KnownComms,
    sizes: CommSizes,
}

impl RecordedSizes {
    /// Fills in rank and size of new communicators, which `read` reads in the memory of a process,
    /// at a pointer. Where they stay unknown the size is 0.
    pub(super) fn fill_in(
        &mut self,
        calls: &mut [CallRecord],
        read: impl Fn(u32, u64) -> Option<RankAndSize>,
    ) {
        for record in calls {
            let pid = record.tgid;
            match functions::call_kind(record) {
                Some(CallKind::CommInit(init)) => {
                    let known = self.comms.of_process(pid).copied();
                    let read = |at| read(pid, at);
                    if let Some(sized) = self.sizes.complete((pid, init), known, read) {
                        (record.rank, record.nranks) = (sized.rank, sized.nranks);
                        self.comms.insert(pid, sized);
                    }
                }
                Some(CallKind::CommDestroy { .. }) => {
                    self.comms.remove(pid, record.comm);
                }
                _ => {}
            }
        }
    }

    /// Removes a process.
    pub(super) fn forget(&mut self, pid: u32) {
        self.comms.forget(pid);
        self.sizes.forget(pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::FUNCTIONS;

    fn call(name: &str, comm: u64, (rank, nranks): (u32, u32)) -> CallRecord {
        let op = FUNCTIONS.iter().position(|function| function.name == name);
        CallRecord {
            op: u8::try_from(op.unwrap()).unwrap(),
            tgid: 7,
            comm,
            comm_id: comm,
            rank,
            nranks,
            ..CallRecord::default()
        }
    }

    /// Memory of a process: rank 3 of four ranks, and 1 of two in the part at address 2.
    fn memory(pid: u32, at: u64) -> Option<RankAndSize> {
        let (rank, nranks) = match (pid, at) {
            (7, 1) => (3, 4),
            (7, 2) => (1, 2),
            _ => return None,
        };
        Some(RankAndSize { rank, nranks })
    }

    fn places(calls: &[CallRecord]) -> Vec<(u32, u32)> {
        calls.iter().map(|call| (call.rank, call.nranks)).collect()
    }

    #[test]
    fn a_split_is_recorded_with_its_size() {
        let mut sizes = RecordedSizes::default();
        let mut calls = [
            call("ncclCommInitRankConfig", 1, (3, 4)),
            call("ncclCommSplit", 2, (9, 0)),
            call("ncclAllReduce", 2, (9, 0)),
        ];
        sizes.fill_in(&mut calls, memory);
        assert_eq!(places(&calls), [(3, 4), (1, 2), (9, 0)]);
    }

    #[test]
    fn memory_that_contradicts_a_call_is_not_trusted() {
        let mut sizes = RecordedSizes::default();
        let mut calls = [
            call("ncclCommInitRankConfig", 1, (3, 8)),
            call("ncclCommSplit", 2, (9, 0)),
        ];
        sizes.fill_in(&mut calls, memory);
        assert_eq!(places(&calls), [(3, 8), (9, 0)]);
    }
}
