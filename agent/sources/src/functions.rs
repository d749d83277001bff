//! The library functions that are probed: one row each. A new one is a new row and no new program.
//!
//! Argument numbers are those of the published headers: NCCL 2.18 to 2.32 (RCCL has the same), CUDA 12 and 13, HIP 6. On
//! x86-64 a `ncclUniqueId` passed by value lies on the stack and takes no register, so the arguments behind it move up.

mod argument_index;
mod spec;

use fleet_agent_bpf::layout::{CallRecord, Cookie, NO_ARGUMENT, Places, flag};
use fleet_agent_core::event::{CallKind, CommInit, Direction, MemoryCopy, Op, Operation};

use crate::functions::argument_index::{
    COMM_ONLY, COPYING, GATHERING, INIT, INIT_SCALABLE, PAIRED, REDUCING, REDUCING_TO_ONE, ROOTED,
    SPLIT,
};
pub use crate::functions::spec::{Does, Family, Wanted};

/// A function of a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// Its symbol.
    pub name: &'static str,
    /// Where it is found.
    pub family: Family,
    /// When it is probed.
    pub wanted: Wanted,
    /// What it does.
    pub does: Does,
    flags: u16,
    places: Places,
}

impl Function {
    /// Whether it is called so often that a slow probe would be felt.
    pub fn is_hot(&self) -> bool {
        !matches!(
            self.does,
            Does::MakesComm
                | Does::SplitsComm
                | Does::EndsComm
                | Does::AcknowledgesEvent
                // Made of an instruction that suits the kernel.
                | Does::Records
        )
    }

    /// Whether its return is of interest.
    pub fn returns(&self) -> bool {
        self.flags & flag::COUNTS == 0
    }

    /// Its cookie, as function number `op` of [`FUNCTIONS`].
    pub fn cookie(&self, op: u8) -> Cookie {
        Cookie::new(op, self.class(), self.flags, self.places)
    }

    // The newer variants of a function call the older one or the other way round, and a runtime the driver: one class, so
    // that only the outer call is told. What is only counted is counted wherever it is called.
    fn class(&self) -> u8 {
        match self.does {
            Does::Operation(op) => 16 + op as u8,
            Does::MakesComm | Does::SplitsComm => 1,
            Does::EndsComm => 2,
            Does::EndsGroup => 3,
            Does::Waits => 4,
            Does::Copies
            | Does::Launches
            | Does::LaunchesGraph
            | Does::AcknowledgesEvent
            | Does::Records => 5,
        }
    }
}

const fn operation(name: &'static str, op: Op, places: Places) -> Function {
    let flags = if matches!(op, Op::Send | Op::Recv) {
        0
    } else {
        flag::SEQUENCE
    };
    Function {
        name,
        family: Family::Collectives,
        wanted: Wanted::Always,
        does: Does::Operation(op),
        flags,
        places,
    }
}

const fn comm(name: &'static str, does: Does, flags: u16, places: Places) -> Function {
    Function {
        name,
        family: Family::Collectives,
        wanted: Wanted::Always,
        does,
        flags,
        places,
    }
}

/// A function that waits for the GPU; its first argument is a stream or an event, if it has one.
const fn wait(name: &'static str, family: Family) -> Function {
    let places = Places {
        handle: 0,
        ..Places::NONE
    };
    Function {
        name,
        family,
        wanted: Wanted::Always,
        does: Does::Waits,
        flags: flag::WAITS,
        places,
    }
}

const fn count(name: &'static str, wanted: Wanted, does: Does, places: Places) -> Function {
    Function {
        name,
        family: Family::Runtime,
        wanted,
        does,
        flags: flag::COUNTS,
        places,
    }
}

/// What `ibv_get_async_event` has brought. That one blocks until something happens, and a thread that was in it before the probe
/// came would return unseen; whatever it brings has to be acknowledged, and is by the same pointer.
const ACKNOWLEDGING: Function = Function {
    name: "ibv_ack_async_event",
    family: Family::Verbs,
    wanted: Wanted::Always,
    does: Does::AcknowledgesEvent,
    flags: flag::COUNTS | flag::KIND_BEHIND,
    places: Places {
        kind: 0,
        ..Places::NONE
    },
};

/// Where records of the NCCL profiler plugin pass by.
const fn record(name: &'static str, wanted: Wanted) -> Function {
    Function {
        name,
        family: Family::Profiler,
        wanted,
        does: Does::Records,
        flags: flag::COUNTS | flag::RECORDS,
        places: Places::NONE,
    }
}

/// All functions. Their places here are their numbers in cookies.
pub const FUNCTIONS: [Function; 59] = [
    operation("ncclAllReduce", Op::AllReduce, REDUCING),
    operation("ncclAllGather", Op::AllGather, GATHERING),
    operation("ncclReduceScatter", Op::ReduceScatter, REDUCING),
    operation("ncclBroadcast", Op::Broadcast, ROOTED),
    operation("ncclBcast", Op::Broadcast, PAIRED),
    operation("ncclReduce", Op::Reduce, REDUCING_TO_ONE),
    operation("ncclAlltoAll", Op::AllToAll, GATHERING),
    operation("ncclAllToAll", Op::AllToAll, GATHERING),
    operation("ncclGather", Op::Gather, ROOTED),
    operation("ncclScatter", Op::Scatter, ROOTED),
    operation("ncclSend", Op::Send, PAIRED),
    operation("ncclRecv", Op::Recv, PAIRED),
    operation("ncclAllReduceConfig", Op::AllReduce, REDUCING),
    operation("ncclAllGatherConfig", Op::AllGather, GATHERING),
    operation("ncclReduceScatterConfig", Op::ReduceScatter, REDUCING),
    operation("ncclBroadcastConfig", Op::Broadcast, ROOTED),
    operation("ncclReduceConfig", Op::Reduce, REDUCING_TO_ONE),
    operation("ncclAlltoAllConfig", Op::AllToAll, GATHERING),
    operation("ncclGatherConfig", Op::Gather, ROOTED),
    operation("ncclScatterConfig", Op::Scatter, ROOTED),
    operation("ncclSendConfig", Op::Send, PAIRED),
    operation("ncclRecvConfig", Op::Recv, PAIRED),
    comm("ncclCommInitRank", Does::MakesComm, INIT.0, INIT.1),
    comm("ncclCommInitRankConfig", Does::MakesComm, INIT.0, INIT.1),
    comm(
        "ncclCommInitRankScalable",
        Does::MakesComm,
        INIT_SCALABLE.0,
        INIT_SCALABLE.1,
    ),
    comm("ncclCommSplit", Does::SplitsComm, SPLIT.0, SPLIT.1),
    comm(
        "ncclCommDestroy",
        Does::EndsComm,
        flag::ENDS_COMM,
        COMM_ONLY,
    ),
    comm("ncclCommAbort", Does::EndsComm, flag::ENDS_COMM, COMM_ONLY),
    comm("ncclGroupEnd", Does::EndsGroup, flag::QUIET, Places::NONE),
    wait("cudaStreamSynchronize", Family::Runtime),
    wait("cudaStreamSynchronize_ptsz", Family::Runtime),
    wait("cudaEventSynchronize", Family::Runtime),
    wait("cudaDeviceSynchronize", Family::Runtime),
    wait("hipStreamSynchronize", Family::Runtime),
    wait("hipEventSynchronize", Family::Runtime),
    wait("hipDeviceSynchronize", Family::Runtime),
    wait("cuStreamSynchronize", Family::Driver),
    wait("cuStreamSynchronize_ptsz", Family::Driver),
    wait("cuEventSynchronize", Family::Driver),
    wait("cuCtxSynchronize", Family::Driver),
    count("cudaMemcpy", Wanted::Copies, Does::Copies, COPYING),
    count("cudaMemcpy_ptds", Wanted::Copies, Does::Copies, COPYING),
    count("cudaMemcpyAsync", Wanted::Copies, Does::Copies, COPYING),
    count(
        "cudaMemcpyAsync_ptsz",
        Wanted::Copies,
        Does::Copies,
        COPYING,
    ),
    count("hipMemcpy", Wanted::Copies, Does::Copies, COPYING),
    count("hipMemcpyAsync", Wanted::Copies, Does::Copies, COPYING),
    count(
        "cudaLaunchKernel",
        Wanted::Launches,
        Does::Launches,
        Places::NONE,
    ),
    count(
        "cudaLaunchKernel_ptsz",
        Wanted::Launches,
        Does::Launches,
        Places::NONE,
    ),
    count(
        "cudaLaunchKernelExC",
        Wanted::Launches,
        Does::Launches,
        Places::NONE,
    ),
    count(
        "cudaLaunchKernelExC_ptsz",
        Wanted::Launches,
        Does::Launches,
        Places::NONE,
    ),
    count(
        "hipLaunchKernel",
        Wanted::Launches,
        Does::Launches,
        Places::NONE,
    ),
    count(
        "hipModuleLaunchKernel",
        Wanted::Launches,
        Does::Launches,
        Places::NONE,
    ),
    count(
        "hipExtModuleLaunchKernel",
        Wanted::Launches,
        Does::Launches,
        Places::NONE,
    ),
    count(
        "cudaGraphLaunch",
        Wanted::Always,
        Does::LaunchesGraph,
        Places::NONE,
    ),
    count(
        "cudaGraphLaunch_ptsz",
        Wanted::Always,
        Does::LaunchesGraph,
        Places::NONE,
    ),
    count(
        "hipGraphLaunch",
        Wanted::Always,
        Does::LaunchesGraph,
        Places::NONE,
    ),
    ACKNOWLEDGING,
    record("fleet_nccl_record", Wanted::FastNop),
    record("fleet_nccl_record_push", Wanted::SlowNop),
];

/// The function of a record.
pub fn of(op: u8) -> Option<&'static Function> {
    FUNCTIONS.get(usize::from(op))
}

/// The function of this name.
pub fn named(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

/// Whether an event of an RDMA device is an error, by its number in `infiniband/verbs.h`: one of a queue (0 to 3, 14, 19), a path
/// (7), the device (8) or a port (10). The others tell of what was asked for, or of a port that is well again.
pub fn is_rdma_error(event_type: u32) -> bool {
    matches!(event_type, 0..=3 | 7 | 8 | 10 | 14 | 19)
}

/// What a record says that a process called; none for a function that is only counted, or a call that made no communicator.
pub fn call_kind(record: &CallRecord) -> Option<CallKind> {
    Some(match of(record.op)?.does {
        Does::Operation(op) => CallKind::Operation(Operation {
            op,
            count: record.count,
            datatype: record.datatype,
            comm: record.comm,
            seq: record.seq,
            peer: u32::try_from(record.peer)
                .ok()
                .filter(|_| !op.is_collective()),
        }),
        // It failed, or it was a split that left this rank out.
        Does::MakesComm | Does::SplitsComm if record.comm == 0 => return None,
        Does::MakesComm | Does::SplitsComm => CallKind::CommInit(CommInit {
            nranks: record.nranks,
            rank: record.rank,
            unique_id: record.comm_id,
            comm: Some(record.comm),
        }),
        Does::EndsComm => CallKind::CommDestroy {
            comm: Some(record.comm),
        },
        Does::Waits => CallKind::Synchronize,
        Does::Copies => CallKind::MemoryCopy(MemoryCopy {
            bytes: record.count,
            direction: Direction::of_kind(record.kind),
        }),
        Does::EndsGroup
        | Does::Launches
        | Does::LaunchesGraph
        | Does::AcknowledgesEvent
        | Does::Records => {
            return None;
        }
    })
}

const _: () = assert!(FUNCTIONS.len() <= u8::MAX as usize);
const _: () = assert!(NO_ARGUMENT == Places::NONE.comm);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_function_is_listed_twice() {
        let names: BTreeSet<&str> = FUNCTIONS.iter().map(|function| function.name).collect();
        assert_eq!(names.len(), FUNCTIONS.len());
    }

    #[test]
    fn a_call_that_made_no_communicator_is_not_told() {
        let op = FUNCTIONS
            .iter()
            .position(|function| function.does == Does::MakesComm);
        let record = CallRecord {
            op: u8::try_from(op.unwrap()).unwrap(),
            result: 1,
            ..CallRecord::default()
        };
        assert_eq!(call_kind(&record), None);
    }

    #[test]
    fn what_is_only_counted_never_waits_for_its_return() {
        for function in FUNCTIONS {
            let counts = matches!(
                function.does,
                Does::Copies
                    | Does::Launches
                    | Does::LaunchesGraph
                    | Does::AcknowledgesEvent
                    | Does::Records
            );
            assert_eq!(counts, !function.returns(), "{}", function.name);
        }
    }

    #[test]
    fn collectives_take_a_sequence_number_and_transfers_do_not() {
        for function in FUNCTIONS {
            if let Does::Operation(op) = function.does {
                assert_eq!(
                    function.flags & flag::SEQUENCE != 0,
                    op.is_collective(),
                    "{}",
                    function.name
                );
            }
        }
    }
}
