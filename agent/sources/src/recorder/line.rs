//! Output lines of a recording. Pure.

mod gpu_operation;

use crate::functions::{Effect, Function};
use fleet_agent_bpf::layout::{CallRecord, PluginRecord};
use fleet_agent_core::event::{CallDurations, CommState, DelaySample, Op, Stack, StackSample};
use serde::Serialize;

use crate::recorder::line::gpu_operation::GpuOperationFields;
use crate::recording::delays::DelayFields;
use crate::recording::durations::DurationFields;
use crate::recording::stacks::{FrameFields, shortened, to_fields};

/// Part of a call on a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Whole call.
    Whole,
    /// Entry only.
    Entry,
    /// Return only; the entry is on an earlier line.
    Return,
}

/// Line of a recording. Fields that do not belong to its kind are omitted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Line {
    kind: &'static str,
    pub(super) ts: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<u32>,
    #[serde(rename = "fn", skip_serializing_if = "Option::is_none")]
    function: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memcpy_kind: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_type: Option<u32>,
    #[serde(flatten)]
    call: Option<Arguments>,
    #[serde(flatten)]
    operation: Option<GpuOperationFields>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rc: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delays: Option<DelayFields>,
    #[serde(skip_serializing_if = "Option::is_none")]
    durations: Option<DurationFields>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_call: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outside: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stack: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frames: Option<Vec<FrameFields>>,
    /// Stack of the samples, which has a line of its own before.
    #[serde(skip)]
    pub(super) sampled: Option<Stack>,
}

/// Counted calls of one function by one process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted {
    pub(super) pid: u32,
    pub(super) function: &'static Function,
    pub(super) calls: u64,
    /// Bytes of copies.
    pub(super) bytes: u64,
    /// Direction of copies or type of events, as numbered by the library.
    pub(super) detail: u8,
}

/// Arguments of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
struct Arguments {
    #[serde(skip_serializing_if = "Option::is_none")]
    comm: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    datatype: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reduce_op: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    handle: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nranks: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unique_id_splitmix64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    commp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    color: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    comm_hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    collectives: Option<u64>,
}

impl Line {
    /// Returns whether it is about calls counted over a window.
    pub(super) fn is_window(&self) -> bool {
        self.pid.is_some() && self.operation.is_none() && self.call.is_none()
    }

    /// Returns the line of the state of a communicator older than the recording.
    pub(super) fn from_state(state: &CommState) -> Self {
        Self {
            kind: "comm_state",
            ts: state.ts_ns,
            window_ns: Some(state.ts_ns.saturating_sub(state.from_ns)),
            pid: Some(state.pid),
            call: Some(Arguments {
                comm: Some(hex(state.pointer)),
                rank: Some(state.rank),
                nranks: Some(state.nranks),
                comm_hash: Some(format!("{:016x}", state.comm_id)),
                collectives: Some(state.collectives),
                ..Arguments::default()
            }),
            ..Self::default()
        }
    }

    /// Returns the line of an operation on a GPU.
    pub(super) fn from_plugin_record(record: &PluginRecord) -> Option<Self> {
        Some(Self {
            kind: "coll",
            ts: record.seen_ns,
            pid: Some(record.tgid),
            operation: Some(GpuOperationFields::from_record(record)?),
            ..Self::default()
        })
    }

    /// Returns the line of a call.
    pub(super) fn from_call(part: Part, record: &CallRecord, function: &Function) -> Self {
        let has_returned = part != Part::Entry;
        Self {
            kind: match part {
                Part::Whole => "call",
                Part::Entry => "entered",
                Part::Return => "returned",
            },
            ts: record.entered_ns,
            dur: has_returned.then_some(record.duration_ns),
            pid: Some(record.tgid),
            tid: Some(record.tid),
            function: Some(function.name),
            call: arguments(part, record, function.effect),
            rc: Some(record.result).filter(|result| has_returned && *result != 0),
            ..Self::default()
        }
    }

    /// Returns the line of calls counted over a window that ends at `ts`.
    pub(super) fn from_window(ts: u64, window_ns: u64, counted: &Counted) -> Self {
        let is_copy = counted.function.effect == Effect::Copies;
        let is_event = counted.function.effect == Effect::AcknowledgesEvent;
        Self {
            kind: match counted.function.effect {
                Effect::Copies => "copies",
                Effect::LaunchesGraph => "graph_launches",
                Effect::AcknowledgesEvent => "rdma_events",
                _ => "launches",
            },
            ts,
            window_ns: Some(window_ns),
            pid: Some(counted.pid),
            function: Some(counted.function.name),
            n: Some(counted.calls),
            bytes: is_copy.then_some(counted.bytes),
            memcpy_kind: is_copy.then(|| counted.detail.into()),
            event_type: is_event.then(|| counted.detail.into()),
            ..Self::default()
        }
    }

    /// Returns the line of the delays of a process.
    pub(super) fn from_delays(sample: &DelaySample) -> Self {
        Self {
            kind: "delays",
            ts: sample.ts_ns,
            window_ns: Some(sample.ts_ns.saturating_sub(sample.from_ns)),
            pid: Some(sample.pid),
            delays: Some(DelayFields::new(&sample.delays)),
            ..Self::default()
        }
    }

    /// Returns the line of the durations of calls of a process.
    pub(super) fn from_durations(durations: &CallDurations) -> Self {
        Self {
            kind: "call_durations",
            ts: durations.ts_ns,
            pid: Some(durations.pid),
            durations: Some(DurationFields::new(durations)),
            ..Self::default()
        }
    }

    /// Returns the line of the samples of a stack.
    pub(super) fn from_samples(sample: &StackSample) -> Self {
        let stack = shortened(&sample.stack);
        Self {
            kind: "samples",
            ts: sample.ts_ns,
            pid: Some(sample.pid),
            tid: Some(sample.tid),
            n: Some(sample.samples),
            in_call: sample.call.clone(),
            outside: Some(sample.outside).filter(|samples| *samples > 0),
            worker: sample.is_worker.then_some(true),
            stack: Some(format!("{:016x}", stack.id())),
            sampled: Some(stack),
            ..Self::default()
        }
    }

    /// Returns the line of a stack.
    pub(super) fn from_stack(ts: u64, stack: &Stack) -> Self {
        Self {
            kind: "stack",
            ts,
            stack: Some(format!("{:016x}", stack.id())),
            frames: Some(to_fields(stack)),
            ..Self::default()
        }
    }

    /// Returns the line of lost events.
    pub(super) fn lost(ts: u64, events: u64) -> Self {
        Self {
            kind: "lost",
            ts,
            n: Some(events),
            ..Self::default()
        }
    }

    /// Returns the line of a quiet period.
    pub(super) fn quiet(ts: u64) -> Self {
        Self {
            kind: "quiet",
            ts,
            ..Self::default()
        }
    }

    /// Returns the time at which it takes effect, nanoseconds.
    pub(super) fn at_ns(&self) -> u64 {
        match self.kind {
            "returned" => self.ts.saturating_add(self.dur.unwrap_or(0)),
            _ => self.ts,
        }
    }

    /// Appends the line as text.
    pub(super) fn append_to(&self, text: &mut Vec<u8>) {
        // Lines consist of numbers and names, so writing them to memory cannot fail.
        if serde_json::to_writer(&mut *text, self).is_ok() {
            text.push(b'\n');
        }
    }
}

fn arguments(part: Part, record: &CallRecord, effect: Effect) -> Option<Arguments> {
    let comm = Some(hex(record.comm));
    Some(match effect {
        Effect::Operation(op) => operation(record, op),
        Effect::MakesComm => init_arguments(part, record),
        Effect::SplitsComm => Arguments {
            parent: Some(hex(record.handle)),
            color: Some(record.peer),
            ..init_arguments(part, record)
        },
        Effect::EndsComm => Arguments {
            comm,
            ..Arguments::default()
        },
        Effect::Waits => Arguments {
            handle: Some(hex(record.handle)),
            ..Arguments::default()
        },
        Effect::EndsGroup
        | Effect::Copies
        | Effect::Launches
        | Effect::LaunchesGraph
        | Effect::Allocates
        | Effect::Frees
        | Effect::ChangesGraph(_)
        | Effect::AcknowledgesEvent
        | Effect::Records => return None,
    })
}

fn operation(record: &CallRecord, op: Op) -> Arguments {
    let reduces = matches!(op, Op::AllReduce | Op::ReduceScatter | Op::Reduce);
    Arguments {
        comm: Some(hex(record.comm)),
        seq: record.seq,
        count: Some(record.count),
        datatype: Some(record.datatype),
        reduce_op: reduces.then_some(record.reduce_op),
        peer: (!op.is_collective()).then_some(record.peer),
        root: (!op.waits_for_all()).then_some(record.peer),
        stream: Some(hex(record.handle)),
        ..Arguments::default()
    }
}

/// Returns the arguments of a created communicator; without a pointer the call failed or excluded
/// this rank.
fn init_arguments(part: Part, record: &CallRecord) -> Arguments {
    let is_made = part != Part::Entry && record.comm != 0;
    Arguments {
        nranks: Some(record.nranks),
        rank: Some(record.rank),
        unique_id_splitmix64: is_made.then(|| format!("{:016x}", record.comm_id)),
        comm: is_made.then(|| hex(record.comm)),
        // Before the return it is the address that the pointer will be written to.
        commp: (part == Part::Entry).then(|| hex(record.comm)),
        ..Arguments::default()
    }
}

fn hex(number: u64) -> String {
    format!("{number:#x}")
}
