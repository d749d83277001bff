//! Calls of a simulated rank, in the form that sources yield.

use fleet_agent_core::event::{
    Call, CallKind, CommInit, Direction, MemoryCopy, Operation, Process,
};

use crate::job::layout::{CommKind, Layout};
use crate::job::steps::RankStep;

/// Start of every job on the sources' clocks, nanoseconds: far enough from 0 that an agent can have
/// started before.
pub const ORIGIN_NS: u64 = 86_400_000_000_000;

/// Time from joining a communicator to its first use, nanoseconds.
const INIT_NS: u64 = 1_000_000;
/// Duration of a call that does not wait, nanoseconds.
const CALL_NS: u64 = 20_000;
/// Bytes that a step copies to its GPU.
const INPUT_BYTES: u64 = 4 << 20;
/// Bfloat16, in NCCL's numbering.
const DATATYPE: u32 = 9;

/// Rank of a simulated job, independent of time.
#[derive(Debug, Clone)]
pub struct SimulatedRank {
    rank: u32,
    process: Process,
    comms: Vec<Comm>,
    unused: Option<CommInit>,
    n_ops: u32,
}

#[derive(Debug, Clone, Copy)]
struct Comm {
    kind: CommKind,
    init: CommInit,
    operation: Operation,
}

impl Comm {
    /// Returns the operation at a position of a step. Its size distinguishes it from its neighbors:
    /// with equal operations the start of a step could not be found.
    fn operation_at(&self, at: u32) -> Operation {
        Operation {
            count: self.operation.count + (u64::from(at) << 12),
            ..self.operation
        }
    }
}

impl SimulatedRank {
    /// Creates a rank of a job. `job` distinguishes jobs of one layout, as the unique ids of real
    /// communicators do.
    pub fn new(layout: &Layout, rank: u32, job: u64) -> Self {
        let local = rank % layout.ranks_per_node;
        let mut comms: Vec<Comm> = layout
            .comms()
            .map(|kind| comm(layout, kind, rank, job))
            .collect();
        // In the order of use within a step, which is also the order of creation.
        comms.sort_by_key(|comm| order(comm.kind));
        Self {
            rank,
            process: Process {
                pid: 1000 + local,
                rank,
                world_size: layout.n_ranks,
            },
            // Every framework creates a communicator of all ranks, used or not: it distinguishes
            // jobs.
            unused: (!layout.uses(CommKind::Job))
                .then(|| comm(layout, CommKind::Job, rank, job).init),
            n_ops: comms.iter().map(|comm| comm.kind.ops()).sum(),
            comms,
        }
    }

    /// Returns the number of the rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the process of the rank.
    pub fn process(&self) -> Process {
        self.process
    }

    /// Returns the calls by which the rank joins its communicators at the start of the job.
    pub fn comm_inits(&self) -> impl Iterator<Item = Call> {
        let join = |init| self.call(ORIGIN_NS, INIT_NS, CallKind::CommInit(init));
        // A communicator belongs to the thread that uses it first, so another thread creates the
        // unused one.
        let unused = self.unused.map(join).map(|call| Call {
            tid: call.tid + 1,
            ..call
        });
        let used = self.comms.iter().map(move |comm| join(comm.init));
        unused.into_iter().chain(used)
    }

    /// Returns the calls of one step, in order of entry.
    pub fn step(&self, step: &RankStep) -> impl Iterator<Item = Call> {
        let copy = MemoryCopy {
            bytes: INPUT_BYTES,
            direction: Direction::ToDevice,
        };
        let begin_ns = instant_ns(step.begin_ms) + INIT_NS;
        let copy = self.call(begin_ns, CALL_NS, CallKind::MemoryCopy(copy));
        let (issue_ns, wait_ns) = (instant_ns(step.issue_ms), instant_ns(step.wait_ms));
        let waits_ns = instant_ns(step.end_ms).saturating_sub(wait_ns);
        let wait = self.call(wait_ns, waits_ns, CallKind::Synchronize);
        let apart_ns = wait_ns.saturating_sub(issue_ns) / u64::from(self.n_ops.max(1));
        let operations = self
            .comms
            .iter()
            .flat_map(|comm| (0..comm.kind.ops()).map(|at| comm.operation_at(at)));
        let operations = operations.zip(0..).map(move |(operation, at)| {
            let entry_ns = issue_ns + apart_ns * at;
            self.call(
                entry_ns,
                CALL_NS.min(apart_ns),
                CallKind::Operation(operation),
            )
        });
        std::iter::once(copy)
            .chain(operations)
            .chain(std::iter::once(wait))
    }

    fn call(&self, ts_ns: u64, dur_ns: u64, kind: CallKind) -> Call {
        let pid = self.process.pid;
        Call {
            ts_ns,
            dur_ns,
            pid,
            tid: pid,
            kind,
        }
    }
}

/// Converts a time of the job to the sources' clocks. The communicators are created before the
/// first step.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a job begins at 0, and the cast saturates"
)]
pub fn instant_ns(job_ms: f64) -> u64 {
    ORIGIN_NS.saturating_add((job_ms * 1e6) as u64)
}

fn comm(layout: &Layout, kind: CommKind, rank: u32, job: u64) -> Comm {
    let (group, place) = kind.position(layout.mesh, rank);
    let mut key = job.to_le_bytes().to_vec();
    key.extend_from_slice(&u64::from(order(kind)).to_le_bytes());
    key.extend_from_slice(&group.to_le_bytes());
    // Each stage works on layers of its own size, so stages differ in their operations, as roles
    // do.
    let count = (1 << 20) + u64::from(layout.mesh.stage(rank));
    Comm {
        kind,
        init: CommInit {
            nranks: kind.size(layout.mesh),
            rank: place,
            unique_id: xxhash_rust::xxh64::xxh64(&key, 0),
            comm: None,
        },
        operation: Operation {
            op: kind.op(),
            count: if kind == CommKind::Job { 1 } else { count },
            datatype: DATATYPE,
            comm: 0x7f00_0000_0000 + u64::from(order(kind)) * 0x1000,
            seq: None,
            peer: None,
        },
    }
}

fn order(kind: CommKind) -> u32 {
    match kind {
        CommKind::Tensor => 0,
        CommKind::Data => 1,
        CommKind::Job => 2,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn caller(rank: u32) -> SimulatedRank {
        let mesh = "2x2x2".parse().ok();
        let layout = Layout::new(2, 4, mesh, None).unwrap();
        SimulatedRank::new(&layout, rank, 1)
    }

    fn ids(rank: u32) -> Vec<u64> {
        let caller = caller(rank);
        let joins = caller.comm_inits().map(|call| match call.kind {
            CallKind::CommInit(init) => init.unique_id,
            other => panic!("{other:?}"),
        });
        joins.collect()
    }

    #[test]
    fn peers_share_a_communicator_and_others_do_not() {
        assert_eq!(ids(0)[0], ids(1)[0]);
        assert_ne!(ids(0)[1], ids(1)[1]);
        assert_eq!(ids(0)[1], ids(4)[1]);
        let of_the_job: BTreeSet<u64> = (0..8).map(|rank| ids(rank)[2]).collect();
        assert_eq!(of_the_job.len(), 1);
        let all: BTreeSet<u64> = (0..8).flat_map(ids).collect();
        assert_eq!(all.len(), 4 + 4 + 1);
    }

    #[test]
    fn a_step_is_a_copy_the_operations_and_a_wait_in_order_of_entry() {
        let step = RankStep {
            begin_ms: 100.0,
            issue_ms: 115.0,
            wait_ms: 120.0,
            end_ms: 200.0,
        };
        let calls: Vec<Call> = caller(0).step(&step).collect();
        assert_eq!(calls.len(), 1 + 8 + 4 + 1 + 1);
        assert!(calls.is_sorted_by_key(|call| call.ts_ns));
        assert_eq!(calls[1].ts_ns, ORIGIN_NS + 115_000_000);
        let operations: BTreeSet<String> = calls
            .iter()
            .map(|call| format!("{:?}", call.kind))
            .collect();
        assert_eq!(
            operations.len(),
            calls.len(),
            "nothing happens twice in a step"
        );
        let wait = calls.last().unwrap();
        assert_eq!(wait.kind, CallKind::Synchronize);
        assert_eq!(wait.return_ns(), ORIGIN_NS + 200_000_000);
    }
}
