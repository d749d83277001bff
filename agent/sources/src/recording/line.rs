//! Parsing of a recording line to its event. Pure.

use std::borrow::Cow;
use std::collections::HashMap;

use fleet_agent_core::event::{
    Activity, ActivitySample, Call, CallKind, CommInit, CommState, ContextSwitch, CopiedBytes,
    Direction, Entered, Event, Launches, Lost, MemoryCopy, Operation, Stack, StackSample,
    SwitchReason,
};
use serde::Deserialize;

use crate::functions::{self, Effect};
use crate::recording::delays::DelayFields;
use crate::recording::durations::DurationFields;
use crate::recording::stacks::{FrameFields, from_fields};

#[derive(Deserialize)]
pub(super) struct Line<'a> {
    #[serde(borrow)]
    pub(super) kind: Cow<'a, str>,
    #[serde(default)]
    pub(super) ts: Option<u64>,
    #[serde(default)]
    dur: u64,
    #[serde(default)]
    pid: u32,
    #[serde(default)]
    tid: u32,
    #[serde(borrow, default, rename = "fn")]
    function: Cow<'a, str>,
    #[serde(borrow, default)]
    comm: Option<Cow<'a, str>>,
    #[serde(default)]
    seq: Option<u64>,
    #[serde(default)]
    count: u64,
    #[serde(default)]
    datatype: u32,
    #[serde(default)]
    nranks: u32,
    #[serde(default)]
    rank: u32,
    #[serde(default)]
    peer: Option<u32>,
    #[serde(borrow, default)]
    unique_id_splitmix64: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    comm_hash: Option<Cow<'a, str>>,
    #[serde(default)]
    collectives: u64,
    #[serde(default)]
    window_ns: u64,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    memcpy_kind: u32,
    #[serde(default)]
    event_type: u32,
    #[serde(default)]
    n: u64,
    #[serde(default)]
    prev_tid: u32,
    #[serde(borrow, default)]
    prev_state: Cow<'a, str>,
    #[serde(default)]
    next_tid: u32,
    #[serde(default)]
    delays: Option<DelayFields>,
    #[serde(default)]
    durations: Option<DurationFields>,
    #[serde(borrow, default)]
    stack: Option<Cow<'a, str>>,
    #[serde(default)]
    frames: Option<Vec<FrameFields>>,
    #[serde(borrow, default)]
    in_call: Option<Cow<'a, str>>,
    #[serde(default)]
    outside: u64,
    #[serde(default)]
    worker: bool,
}

impl Line<'_> {
    /// Returns the stack that the line describes, with its id.
    pub(super) fn stack(&self) -> Option<(u64, Stack)> {
        let frames = self.frames.as_ref().filter(|_| self.kind == "stack")?;
        Some((self.stack_id()?, from_fields(frames)))
    }

    /// Returns the event if its kind is known, with one of the stacks read so far; an error if the
    /// line has no time.
    pub(super) fn event(
        &self,
        stacks: &HashMap<u64, Stack>,
    ) -> Result<Option<Event>, &'static str> {
        let ts_ns = self.ts.ok_or("event without ts");
        Ok(Some(match self.kind.as_ref() {
            "call" => Event::Call(self.call(ts_ns?)),
            "returned" => Event::Returned(self.call(ts_ns?)),
            "entered" => Event::Entered(Entered {
                ts_ns: ts_ns?,
                pid: self.pid,
                tid: self.tid,
                kind: self.call_kind(),
            }),
            "launches" => Event::Launches(Launches {
                ts_ns: ts_ns?,
                pid: self.pid,
                n: self.n,
            }),
            "graph_launches" | "copies" | "rdma_events" => Event::Activity(ActivitySample {
                from_ns: self.window_start(ts_ns?),
                ts_ns: ts_ns?,
                pid: self.pid,
                activity: self.activity(),
            }),
            "delays" => return Ok(self.delays(ts_ns?)),
            "call_durations" => return Ok(self.durations(ts_ns?)),
            "samples" => return Ok(self.samples(ts_ns?, stacks)),
            "comm_state" => return Ok(self.comm_state(ts_ns?).map(Event::CommState)),
            "lost" => Event::Lost(Lost {
                ts_ns: ts_ns?,
                events: self.n,
            }),
            "sched_switch" => Event::ContextSwitch(ContextSwitch {
                ts_ns: ts_ns?,
                prev_tid: self.prev_tid,
                reason: switch_reason(&self.prev_state),
                next_tid: self.next_tid,
            }),
            _ => return Ok(None),
        }))
    }

    /// Returns the beginning of the window that ends at `ts_ns`.
    const fn window_start(&self, ts_ns: u64) -> u64 {
        ts_ns.saturating_sub(self.window_ns)
    }

    fn call(&self, ts_ns: u64) -> Call {
        Call {
            ts_ns,
            dur_ns: self.dur,
            pid: self.pid,
            tid: self.tid,
            kind: self.call_kind(),
        }
    }

    fn call_kind(&self) -> CallKind {
        let pointer = self.comm.as_deref().and_then(hex);
        let effect = functions::by_name(&self.function).map(|function| function.effect);
        let kind = match effect {
            Some(Effect::Operation(op)) => pointer.map(|comm| {
                CallKind::Operation(Operation {
                    op,
                    count: self.count,
                    datatype: self.datatype,
                    comm,
                    seq: self.seq,
                    peer: self.peer,
                })
            }),
            Some(Effect::MakesComm | Effect::SplitsComm) => {
                let unique_id = self.unique_id_splitmix64.as_deref().and_then(hex);
                // Without its size its operations are unknown, as they are to a live agent.
                unique_id.filter(|_| self.nranks > 0).map(|unique_id| {
                    CallKind::CommInit(CommInit {
                        nranks: self.nranks,
                        rank: self.rank,
                        unique_id,
                        comm: pointer,
                    })
                })
            }
            Some(Effect::EndsComm) => Some(CallKind::CommDestroy { comm: pointer }),
            Some(Effect::Waits) => Some(CallKind::Synchronize),
            Some(Effect::Copies) => Some(CallKind::MemoryCopy(MemoryCopy {
                bytes: self.bytes,
                direction: Direction::from_cuda_kind(self.memcpy_kind),
            })),
            Some(
                Effect::EndsGroup
                | Effect::Launches
                | Effect::LaunchesGraph
                | Effect::Allocates
                | Effect::Frees
                | Effect::ChangesGraph(_)
                | Effect::AcknowledgesEvent
                | Effect::Records,
            )
            | None => None,
        };
        kind.unwrap_or(CallKind::Other)
    }

    /// Returns the state of a communicator older than the recording; `None` if the line lacks its
    /// pointer or hash.
    fn comm_state(&self, ts_ns: u64) -> Option<CommState> {
        Some(CommState {
            from_ns: self.window_start(ts_ns),
            ts_ns,
            pid: self.pid,
            pointer: self.comm.as_deref().and_then(hex)?,
            comm_id: self.comm_hash.as_deref().and_then(hex)?,
            rank: self.rank,
            nranks: self.nranks,
            collectives: self.collectives,
        })
    }

    /// Returns the delays of a process; `None` if the line lacks them.
    fn delays(&self, ts_ns: u64) -> Option<Event> {
        let window = (self.window_start(ts_ns), ts_ns);
        let sample = self.delays.as_ref()?.sample(window, self.pid);
        Some(Event::Delays(Box::new(sample)))
    }

    /// Returns the durations of calls of a process; `None` if the line lacks them.
    fn durations(&self, ts_ns: u64) -> Option<Event> {
        let durations = self.durations.as_ref()?.durations(ts_ns, self.pid);
        Some(Event::CallDurations(Box::new(durations)))
    }

    fn stack_id(&self) -> Option<u64> {
        u64::from_str_radix(self.stack.as_deref()?, 16).ok()
    }

    /// Returns the samples of a stack; `None` if the stack is unknown.
    fn samples(&self, ts_ns: u64, stacks: &HashMap<u64, Stack>) -> Option<Event> {
        let stack = stacks.get(&self.stack_id()?)?;
        Some(Event::Stack(Box::new(StackSample {
            ts_ns,
            pid: self.pid,
            tid: self.tid,
            is_worker: self.worker,
            call: self.in_call.as_deref().map(str::to_owned),
            stack: stack.clone(),
            samples: self.n,
            outside: self.outside.min(self.n),
        })))
    }

    /// Returns the activity counted over a window.
    fn activity(&self) -> Activity {
        if self.kind == "graph_launches" {
            return Activity {
                graph_launches: Some(self.n),
                ..Activity::default()
            };
        }
        if self.kind == "rdma_events" {
            return Activity {
                rdma_errors: functions::is_rdma_error(self.event_type).then_some(self.n),
                ..Activity::default()
            };
        }
        let mut copied = CopiedBytes::default();
        match Direction::from_cuda_kind(self.memcpy_kind) {
            Direction::ToDevice => copied.to_device = self.bytes,
            Direction::ToHost => copied.to_host = self.bytes,
            Direction::Unspecified => copied.unspecified = self.bytes,
            Direction::WithinDevice => {}
        }
        Activity {
            memcpy_bytes: Some(copied),
            ..Activity::default()
        }
    }
}

/// Parses the kernel's task state letter: a runnable task was preempted, a dead task or a zombie
/// has exited.
fn switch_reason(prev_state: &str) -> SwitchReason {
    match prev_state.bytes().next() {
        Some(b'R') => SwitchReason::Preempted,
        Some(b'X' | b'Z') => SwitchReason::Exited,
        _ => SwitchReason::Blocked,
    }
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}
