//! Table of the probed library functions, one row each. A new function is a new row, not a new
//! program.
//!
//! Argument indexes are those of the published headers: NCCL 2.18 to 2.32 (RCCL has the same), CUDA
//! 12 and 13, HIP 6. On x86-64, a `ncclUniqueId` passed by value is on the stack and takes no
//! register, so the arguments after it move up.

mod argument_index;
mod runtime;
mod spec;

use fleet_agent_bpf::layout::{ArgumentIndexes, CallRecord, NO_ARGUMENT, flag};
use fleet_agent_core::event::{CallKind, CommInit, Op, Operation};

use crate::functions::argument_index::{
    COMM_ONLY, GATHERING, INIT, INIT_SCALABLE, PAIRED, REDUCING, REDUCING_TO_ONE, ROOTED, SPLIT,
};
use crate::functions::runtime::RUNTIME;
pub use crate::functions::spec::{Effect, Family, Function, GraphChange, ProbeWhen};

const fn operation(name: &'static str, op: Op, arguments: ArgumentIndexes) -> Function {
    let flags = if matches!(op, Op::Send | Op::Recv) {
        0
    } else {
        flag::SEQUENCE
    };
    Function {
        name,
        family: Family::Collectives,
        probe_when: ProbeWhen::Always,
        effect: Effect::Operation(op),
        one_way: None,
        flags,
        arguments,
    }
}

const fn comm(
    name: &'static str,
    effect: Effect,
    flags: u16,
    arguments: ArgumentIndexes,
) -> Function {
    Function {
        name,
        family: Family::Collectives,
        probe_when: ProbeWhen::Always,
        effect,
        one_way: None,
        flags,
        arguments,
    }
}

/// Returns a function that waits for the GPU; its first argument is a stream or an event, if it has
/// one.
const fn wait(name: &'static str, family: Family) -> Function {
    let arguments = ArgumentIndexes {
        handle: 0,
        ..ArgumentIndexes::NONE
    };
    Function {
        name,
        family,
        probe_when: ProbeWhen::Always,
        effect: Effect::Waits,
        one_way: None,
        flags: flag::WAITS,
        arguments,
    }
}

/// Acknowledgement of what `ibv_get_async_event` returned. That function blocks until an event
/// occurs, and the return of a thread that entered it before the probe was attached would not be
/// seen; every event has to be acknowledged by the same pointer.
const ACKNOWLEDGING: Function = Function {
    name: "ibv_ack_async_event",
    family: Family::Verbs,
    probe_when: ProbeWhen::Always,
    effect: Effect::AcknowledgesEvent,
    one_way: None,
    flags: flag::COUNTS | flag::KIND_BEHIND,
    arguments: ArgumentIndexes {
        kind: 0,
        ..ArgumentIndexes::NONE
    },
};

/// Returns a function through which records of the NCCL profiler plugin pass.
const fn record(name: &'static str, probe_when: ProbeWhen) -> Function {
    Function {
        name,
        family: Family::Profiler,
        probe_when,
        effect: Effect::Records,
        one_way: None,
        flags: flag::COUNTS | flag::RECORDS,
        arguments: ArgumentIndexes::NONE,
    }
}

/// All functions. Their indexes are their numbers in cookies.
pub const FUNCTIONS: [Function; OTHERS.len() + RUNTIME.len()] = {
    let mut all = [ACKNOWLEDGING; OTHERS.len() + RUNTIME.len()];
    let (first, rest) = all.split_at_mut(OTHERS.len());
    first.copy_from_slice(&OTHERS);
    rest.copy_from_slice(&RUNTIME);
    all
};

/// Functions that issue, wait, or pass on records.
const OTHERS: [Function; 43] = [
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
    comm("ncclCommInitRank", Effect::MakesComm, INIT.0, INIT.1),
    comm("ncclCommInitRankConfig", Effect::MakesComm, INIT.0, INIT.1),
    comm(
        "ncclCommInitRankScalable",
        Effect::MakesComm,
        INIT_SCALABLE.0,
        INIT_SCALABLE.1,
    ),
    comm("ncclCommSplit", Effect::SplitsComm, SPLIT.0, SPLIT.1),
    comm(
        "ncclCommDestroy",
        Effect::EndsComm,
        flag::ENDS_COMM,
        COMM_ONLY,
    ),
    comm(
        "ncclCommAbort",
        Effect::EndsComm,
        flag::ENDS_COMM,
        COMM_ONLY,
    ),
    comm(
        "ncclGroupEnd",
        Effect::EndsGroup,
        flag::QUIET,
        ArgumentIndexes::NONE,
    ),
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
    ACKNOWLEDGING,
    record("fleet_nccl_record", ProbeWhen::FastNop),
    record("fleet_nccl_record_push", ProbeWhen::SlowNop),
];

/// Returns the function with this number.
pub fn by_number(op: u8) -> Option<&'static Function> {
    FUNCTIONS.get(usize::from(op))
}

/// Returns the function with this name.
pub fn by_name(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

/// Returns whether an event of an RDMA device is an error, by its number in `infiniband/verbs.h`:
/// one of a queue (0 to 3, 14, 19), a path (7), the device (8) or a port (10). The others report
/// completed requests, or a port that has recovered.
pub fn is_rdma_error(event_type: u32) -> bool {
    matches!(event_type, 0..=3 | 7 | 8 | 10 | 14 | 19)
}

/// Returns the call of a record; `None` for a function whose calls are no events, and for a call
/// that created no communicator.
pub fn call_kind(record: &CallRecord) -> Option<CallKind> {
    Some(match by_number(record.op)?.effect {
        Effect::Operation(op) => CallKind::Operation(Operation {
            op,
            count: record.count,
            datatype: record.datatype,
            comm: record.comm,
            seq: record.seq,
            peer: u32::try_from(record.peer)
                .ok()
                .filter(|_| !op.is_collective()),
        }),
        // Failed, or a split that excluded this rank.
        Effect::MakesComm | Effect::SplitsComm if record.comm == 0 => return None,
        Effect::MakesComm | Effect::SplitsComm => CallKind::CommInit(CommInit {
            nranks: record.nranks,
            rank: record.rank,
            unique_id: record.comm_id,
            comm: Some(record.comm),
        }),
        Effect::EndsComm => CallKind::CommDestroy {
            comm: Some(record.comm),
        },
        Effect::Waits => CallKind::Synchronize,
        Effect::EndsGroup
        | Effect::Copies
        | Effect::Allocates
        | Effect::Frees
        | Effect::Launches
        | Effect::LaunchesGraph
        | Effect::ChangesGraph(_)
        | Effect::AcknowledgesEvent
        | Effect::Records => {
            return None;
        }
    })
}

const _: () = assert!(FUNCTIONS.len() <= u8::MAX as usize);
const _: () = assert!(NO_ARGUMENT == ArgumentIndexes::NONE.comm);

#[cfg(test)]
mod tests;
