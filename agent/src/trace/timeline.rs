//! Events of each rank as spans of time.

use std::collections::BTreeMap;

use fleet_agent_core::discover::{CommIndex, CommTable};
use fleet_agent_core::event::{
    Activity, Call, CallKind, ContextSwitch, Event, GpuOperation, Op, Operation, Process,
    SwitchReason,
};
use fleet_agent_core::signal::CommId;

/// Period of time, nanoseconds of the source's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// Start.
    pub(super) start_ns: u64,
    /// End.
    pub(super) end_ns: u64,
    /// Thread.
    pub(super) tid: u32,
}

/// Operation of a communicator, as one of its ranks takes part in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CommOperation {
    /// Communicator.
    pub(super) comm: CommId,
    /// Rank in the communicator.
    pub(super) comm_rank: u32,
    /// Number of ranks of the communicator.
    pub(super) comm_size: u32,
    /// Number in the communicator.
    pub(super) seq: u64,
    /// Kind of operation.
    pub(super) op: Op,
    /// Elements per rank.
    pub(super) count: u64,
}

/// Collective of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Collective {
    /// Call that issued it.
    pub(super) call: Span,
    /// Return of the first wait for the GPU that began after it; `None` if none followed.
    pub(super) completed_ns: Option<u64>,
    /// Its operation.
    pub(super) operation: CommOperation,
}

/// Time off the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OffCpu {
    /// From one thread of the rank leaving the CPU until its return.
    pub(super) span: Span,
    /// Whether it was preempted, else blocked.
    pub(super) is_preempted: bool,
}

/// Number that was measured at some time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sample {
    /// Time, nanoseconds.
    pub(super) ts_ns: u64,
    /// Name with its unit.
    pub(super) name: &'static str,
    /// Value.
    pub(super) value: u64,
}

/// Events of one rank.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RankTimeline {
    /// Index of its recording: one for each host.
    pub(super) host: usize,
    /// Process and rank.
    pub(super) process: Process,
    /// Collectives in order of issue.
    pub(super) collectives: Vec<Collective>,
    /// Waits for the GPU.
    pub(super) waits: Vec<Span>,
    /// Memory copies: time, and bytes.
    pub(super) copies: Vec<(Span, u64)>,
    /// Time off the CPU of the threads that call libraries.
    pub(super) off_cpu: Vec<OffCpu>,
    /// Evidence of the host.
    pub(super) samples: Vec<Sample>,
    /// Operations that the GPU timed.
    pub(super) gpu: Vec<GpuOperation>,
}

/// Builder of the timelines of one recording.
#[derive(Debug)]
pub(super) struct TimelineBuilder {
    ranks: BTreeMap<u32, RankBuilder>,
    /// Process of each thread that has called a library.
    owners: BTreeMap<u32, u32>,
    /// Threads that are off the CPU: since when, and why.
    away: BTreeMap<u32, (u64, SwitchReason)>,
    absences: Vec<OffCpu>,
}

#[derive(Debug)]
struct RankBuilder {
    timeline: RankTimeline,
    table: CommTable,
    next_seq: BTreeMap<CommIndex, u64>,
    /// Position of the first collective that no wait has completed.
    first_open: usize,
}

impl TimelineBuilder {
    /// Creates a builder for the recording with index `host`.
    pub(super) fn new(host: usize, processes: &[Process]) -> Self {
        let rank = |process: &Process| (process.pid, RankBuilder::new(host, *process));
        Self {
            ranks: processes.iter().map(rank).collect(),
            owners: BTreeMap::new(),
            away: BTreeMap::new(),
            absences: Vec::new(),
        }
    }

    /// Adds the next event.
    pub(super) fn on_event(&mut self, event: &Event) {
        match event {
            Event::Started(started) => {
                let process = started.process;
                let new = RankBuilder::new(self.host(), process);
                self.ranks.entry(process.pid).or_insert(new);
            }
            Event::Call(call) | Event::Returned(call) => {
                self.owners.insert(call.tid, call.pid);
                if let Some(rank) = self.ranks.get_mut(&call.pid) {
                    rank.on_call(call);
                }
            }
            Event::ContextSwitch(switch) => self.on_switch(switch),
            Event::Activity(measured) => {
                if let Some(rank) = self.ranks.get_mut(&measured.pid) {
                    rank.add_samples(measured.ts_ns, &measured.activity);
                }
            }
            Event::Launches(launches) => {
                if let Some(rank) = self.ranks.get_mut(&launches.pid) {
                    rank.add_sample(launches.ts_ns, "kernel launches", launches.n);
                }
            }
            Event::GpuOperation(operation) => {
                if let Some(rank) = self.ranks.get_mut(&operation.pid) {
                    rank.timeline.gpu.push(*operation);
                }
            }
            Event::CommState(state) => {
                if let Some(rank) = self.ranks.get_mut(&state.pid) {
                    let adopted = rank.table.adopt_state(state);
                    rank.continue_at(adopted.and_then(|comm| Some((comm.index, comm.next?))));
                }
            }
            Event::Delays(_)
            | Event::CallDurations(_)
            | Event::Stack(_)
            | Event::Entered(_)
            | Event::Lost(_)
            | Event::Ended(_) => {}
        }
    }

    fn host(&self) -> usize {
        let mut ranks = self.ranks.values();
        ranks.next().map_or(0, |rank| rank.timeline.host)
    }

    fn on_switch(&mut self, switch: &ContextSwitch) {
        self.away
            .insert(switch.prev_tid, (switch.ts_ns, switch.reason));
        if let Some((start_ns, reason)) = self.away.remove(&switch.next_tid) {
            self.absences.push(OffCpu {
                span: Span {
                    start_ns,
                    end_ns: switch.ts_ns,
                    tid: switch.next_tid,
                },
                is_preempted: reason == SwitchReason::Preempted,
            });
        }
    }

    /// Returns the ranks.
    pub(super) fn finish(mut self) -> Vec<RankTimeline> {
        // Only calls tell to which rank a thread belongs, and they may follow its first absence.
        for absence in self.absences {
            let owner = self.owners.get(&absence.span.tid);
            if let Some(rank) = owner.and_then(|pid| self.ranks.get_mut(pid)) {
                rank.timeline.off_cpu.push(absence);
            }
        }
        let ranks = self.ranks.into_values();
        ranks.map(|rank| rank.timeline).collect()
    }
}

impl RankBuilder {
    fn new(host: usize, process: Process) -> Self {
        Self {
            timeline: RankTimeline {
                host,
                process,
                collectives: Vec::new(),
                waits: Vec::new(),
                copies: Vec::new(),
                off_cpu: Vec::new(),
                samples: Vec::new(),
                gpu: Vec::new(),
            },
            table: CommTable::default(),
            next_seq: BTreeMap::new(),
            first_open: 0,
        }
    }

    fn on_call(&mut self, call: &Call) {
        let span = Span {
            start_ns: call.ts_ns,
            end_ns: call.return_ns(),
            tid: call.tid,
        };
        self.table.record_call(call);
        match call.kind {
            CallKind::CommInit(init) => self.table.record_init(call.tid, init),
            CallKind::CommDestroy { comm } => {
                let removed = comm.and_then(|pointer| self.table.remove(pointer));
                self.next_seq.retain(|index, _| Some(*index) != removed);
            }
            CallKind::Operation(operation) => self.add_collective(span, operation),
            CallKind::Synchronize => self.add_wait(span),
            CallKind::MemoryCopy(copy) => self.timeline.copies.push((span, copy.bytes)),
            CallKind::Other => {}
        }
    }

    fn continue_at(&mut self, position: Option<(CommIndex, u64)>) {
        self.next_seq.extend(position);
    }

    fn add_collective(&mut self, call: Span, operation: Operation) {
        if !operation.op.is_collective() {
            return;
        }
        let Some(index) = self.table.find(call.tid, operation.comm) else {
            return;
        };
        let Some(comm) = self.table.comms().get(index.position()).copied() else {
            return;
        };
        let next = self.next_seq.entry(index).or_default();
        let seq = operation.seq.unwrap_or(*next);
        *next = seq + 1;
        self.timeline.collectives.push(Collective {
            call,
            completed_ns: None,
            operation: CommOperation {
                comm: comm.id,
                comm_rank: comm.rank,
                comm_size: comm.nranks,
                seq,
                op: operation.op,
                count: operation.count,
            },
        });
    }

    /// A wait completes the collectives that were issued before it began.
    fn add_wait(&mut self, wait: Span) {
        let collectives = &mut self.timeline.collectives;
        let open = collectives.get_mut(self.first_open..).unwrap_or_default();
        let mut completed = 0;
        for collective in open {
            if collective.call.start_ns > wait.start_ns {
                break;
            }
            collective.completed_ns = Some(wait.end_ns);
            completed += 1;
        }
        self.first_open += completed;
        self.timeline.waits.push(wait);
    }

    fn add_sample(&mut self, ts_ns: u64, name: &'static str, value: u64) {
        self.timeline.samples.push(Sample { ts_ns, name, value });
    }

    fn add_samples(&mut self, ts_ns: u64, activity: &Activity) {
        let threads = activity.threads;
        let kernel = activity.kernel;
        let samples = [
            ("off CPU (us)", threads.map(|own| own.off_cpu_ns / 1000)),
            ("preempted (us)", threads.map(|own| own.preempted_ns / 1000)),
            ("page allocations", kernel.map(|own| own.page_allocations)),
            ("block I/O (us)", kernel.map(|own| own.block_io_ns / 1000)),
            ("TCP retransmits", activity.tcp_retransmits),
            ("RDMA errors", activity.rdma_errors),
            (
                "GPU clocks throttled (us)",
                activity.throttled_ns.map(|ns| ns / 1000),
            ),
            ("kernel launches", activity.launches),
        ];
        for (name, value) in samples {
            if let Some(value) = value {
                self.add_sample(ts_ns, name, value);
            }
        }
    }
}

impl RankTimeline {
    /// Moves all times of the rank.
    pub(super) fn shift(&mut self, by_ns: i64) {
        let moved = |ns: &mut u64| *ns = ns.saturating_add_signed(by_ns);
        let moved_span = |span: &mut Span| {
            moved(&mut span.start_ns);
            moved(&mut span.end_ns);
        };
        for collective in &mut self.collectives {
            moved_span(&mut collective.call);
            collective.completed_ns.iter_mut().for_each(moved);
        }
        self.waits.iter_mut().for_each(moved_span);
        for (span, _) in &mut self.copies {
            moved_span(span);
        }
        for absence in &mut self.off_cpu {
            moved_span(&mut absence.span);
        }
        for sample in &mut self.samples {
            moved(&mut sample.ts_ns);
        }
        for operation in &mut self.gpu {
            moved(&mut operation.ts_ns);
            moved(&mut operation.host_ns);
        }
    }
}
