//! Timeline of hosts and GPUs: hosts run ahead of their GPUs; ranks leave an operation together.

use std::collections::{BTreeMap, VecDeque};

use super::fault::LoopFault;
use super::step::{Action, Function, Operation};

/// Host time of a library call, milliseconds.
const CALL_MS: f64 = 0.03;

/// Observation of the agent. Times are milliseconds of the loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Observation {
    /// An operation was called and ran.
    Ran {
        /// The operation.
        op: Operation,
        /// Sequence number in its communicator.
        seq: u64,
        /// Time of the call.
        called: f64,
        /// Start and end on the GPU.
        gpu: (f64, f64),
    },
    /// The host waited for its GPU.
    Waited {
        /// Start and end.
        host: (f64, f64),
        /// True for an event, false for the whole stream.
        is_event: bool,
    },
    /// A graph was launched.
    Launched(f64),
}

/// Rendezvous: of all ranks in one operation, or of two ranks in one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Meeting {
    All(u64),
    Pair { from: u32, to: u32, nth: u64 },
}

#[derive(Debug, Default)]
struct Arrivals {
    n: usize,
    latest: f64,
    left: usize,
}

#[derive(Debug)]
struct Group {
    called: f64,
    after_kernels: bool,
    parts: Vec<(Operation, u64, Meeting)>,
    started: Option<f64>,
}

#[derive(Debug)]
enum Queued {
    Kernel { enqueued: f64, work_ms: f64 },
    Group(Group),
    Join,
    Mark,
}

#[derive(Debug, Default)]
struct Rank {
    host: f64,
    compute: f64,
    comm: f64,
    todo: VecDeque<Action>,
    queue: VecDeque<Queued>,
    marks: Vec<f64>,
    n_marked: usize,
    seq: u64,
    n_collectives: u64,
    n_sent: BTreeMap<(u32, u32), u64>,
    seen: Vec<Observation>,
}

/// Simulation of all ranks.
#[derive(Debug)]
pub struct Timeline {
    ranks: Vec<Rank>,
    n_ranks: usize,
    meetings: BTreeMap<Meeting, Arrivals>,
    fault: Option<LoopFault>,
}

impl Timeline {
    /// Creates ranks that have done nothing yet.
    pub fn new(n_ranks: u32, fault: Option<LoopFault>) -> Self {
        let ranks: Vec<Rank> = (0..n_ranks).map(|_| Rank::default()).collect();
        Self {
            n_ranks: ranks.len(),
            ranks,
            meetings: BTreeMap::new(),
            fault,
        }
    }

    /// Runs a step; returns the end of the last host, milliseconds.
    pub fn step(&mut self, programs: Vec<Vec<Action>>) -> f64 {
        for (rank, program) in self.ranks.iter_mut().zip(programs) {
            rank.todo.extend(program);
        }
        let mut ranks = std::mem::take(&mut self.ranks);
        loop {
            let mut moved = false;
            for (rank, number) in ranks.iter_mut().zip(0..) {
                moved |= self.advance(rank, number);
            }
            if !moved {
                break;
            }
        }
        debug_assert!(
            ranks
                .iter()
                .all(|rank| rank.todo.is_empty() && rank.queue.is_empty()),
            "ranks wait for each other"
        );
        self.ranks = ranks;
        self.ranks.iter().map(|rank| rank.host).fold(0.0, f64::max)
    }

    /// Number of operations that each rank has called so far.
    pub fn seqs(&self) -> Vec<u64> {
        self.ranks.iter().map(|rank| rank.seq).collect()
    }

    /// Takes the observations of each rank since the last call.
    pub fn take_observations(&mut self) -> Vec<Vec<Observation>> {
        self.ranks
            .iter_mut()
            .map(|rank| std::mem::take(&mut rank.seen))
            .collect()
    }

    /// Advances a rank as far as possible; returns true when it moved.
    fn advance(&mut self, rank: &mut Rank, number: u32) -> bool {
        let mut moved = false;
        loop {
            let ran = self.run_gpu(rank, number);
            let acted = self.run_host(rank, number);
            moved |= ran | acted;
            if !ran && !acted {
                return moved;
            }
        }
    }

    fn run_host(&self, rank: &mut Rank, number: u32) -> bool {
        let fault = self.fault.as_ref();
        let mut moved = false;
        while let Some(action) = rank.todo.pop_front() {
            match action {
                Action::Host(ms) => {
                    rank.host += fault.map_or(ms, |fault| fault.host_ms(number, rank.host, ms));
                }
                Action::Load(ms) => {
                    rank.host += fault.map_or(ms, |fault| fault.load_ms(number, rank.host, ms));
                }
                Action::Kernel(work_ms) => {
                    let enqueued = rank.host;
                    rank.queue.push_back(Queued::Kernel { enqueued, work_ms });
                }
                Action::Exchange { ops, after_kernels } => {
                    let group = rank.call(number, ops, after_kernels);
                    let call_ms =
                        fault.map_or(CALL_MS, |fault| fault.host_ms(number, rank.host, CALL_MS));
                    rank.host += call_ms;
                    rank.queue.push_back(Queued::Group(group));
                }
                Action::Join => rank.queue.push_back(Queued::Join),
                Action::LaunchGraph => rank.seen.push(Observation::Launched(rank.host)),
                Action::Synchronize => {
                    if !rank.queue.is_empty() {
                        rank.todo.push_front(Action::Synchronize);
                        return moved;
                    }
                    let idle = rank.compute.max(rank.comm);
                    rank.wait(idle, false, fault.map(|fault| (fault, number)));
                }
                Action::MarkStep => {
                    rank.queue.push_back(Queued::Mark);
                    rank.n_marked += 1;
                }
                Action::AwaitStep(ago) => {
                    let wanted = rank.n_marked.checked_sub(ago + 1);
                    match wanted.map(|wanted| rank.marks.get(wanted).copied()) {
                        None => {}
                        Some(Some(mark)) => {
                            rank.wait(mark, true, fault.map(|fault| (fault, number)));
                        }
                        Some(None) => {
                            rank.todo.push_front(Action::AwaitStep(ago));
                            return moved;
                        }
                    }
                }
            }
            moved = true;
        }
        moved
    }

    fn run_gpu(&mut self, rank: &mut Rank, number: u32) -> bool {
        let mut moved = false;
        while let Some(queued) = rank.queue.pop_front() {
            match queued {
                Queued::Kernel { enqueued, work_ms } => {
                    let start = rank.compute.max(enqueued);
                    let ms = self
                        .fault
                        .as_ref()
                        .map_or(work_ms, |fault| fault.kernel_ms(number, start, work_ms));
                    rank.compute = start + ms;
                }
                Queued::Join => rank.compute = rank.compute.max(rank.comm),
                Queued::Mark => rank.marks.push(rank.compute.max(rank.comm)),
                Queued::Group(mut group) => {
                    moved |= group.started.is_none();
                    if let Some(end) = self.meet(rank, &mut group) {
                        rank.leave(&group, end);
                    } else {
                        rank.queue.push_front(Queued::Group(group));
                        return moved;
                    }
                }
            }
            moved = true;
        }
        moved
    }

    /// Returns the end of a group's operations once all participants have arrived.
    fn meet(&mut self, rank: &Rank, group: &mut Group) -> Option<f64> {
        let n_ranks = self.n_ranks;
        let start = group.started.unwrap_or_else(|| {
            let kernels = if group.after_kernels {
                rank.compute
            } else {
                0.0
            };
            rank.comm.max(kernels).max(group.called)
        });
        if group.started.replace(start).is_none() {
            for (_, _, meeting) in &group.parts {
                let arrivals = self.meetings.entry(*meeting).or_default();
                arrivals.n += 1;
                arrivals.latest = arrivals.latest.max(start);
            }
        }
        let size = |meeting: &Meeting| {
            if matches!(meeting, Meeting::All(_)) {
                n_ranks
            } else {
                2
            }
        };
        let mut end = start;
        for (op, _, meeting) in &group.parts {
            let arrivals = self
                .meetings
                .get(meeting)
                .filter(|arrivals| arrivals.n == size(meeting))?;
            let latest = arrivals.latest;
            let ms = self.fault.as_ref().map_or(op.transfer_ms, |fault| {
                fault.transfer_ms(latest, op.transfer_ms)
            });
            end = end.max(latest + ms);
        }
        for (_, _, meeting) in &group.parts {
            if let Some(arrivals) = self.meetings.get_mut(meeting) {
                arrivals.left += 1;
                if arrivals.left == size(meeting) {
                    self.meetings.remove(meeting);
                }
            }
        }
        Some(end)
    }
}

impl Rank {
    fn call(&mut self, number: u32, ops: Vec<Operation>, after_kernels: bool) -> Group {
        let mut parts = Vec::new();
        for op in ops {
            let pair = match op.function {
                Function::Send => Some((number, op.peer)),
                Function::Recv => Some((op.peer, number)),
                _ => None,
            };
            let meeting = if let Some((from, to)) = pair {
                let nth = self.n_sent.entry((from, to)).or_default();
                *nth += 1;
                Meeting::Pair {
                    from,
                    to,
                    nth: *nth,
                }
            } else {
                self.n_collectives += 1;
                Meeting::All(self.n_collectives)
            };
            parts.push((op, self.seq, meeting));
            self.seq += 1;
        }
        let called = self.host;
        Group {
            called,
            after_kernels,
            parts,
            started: None,
        }
    }

    fn leave(&mut self, group: &Group, end: f64) {
        let start = group.started.unwrap_or(end);
        self.comm = end;
        self.seen
            .extend(group.parts.iter().map(|(op, seq, _)| Observation::Ran {
                op: *op,
                seq: *seq,
                called: group.called,
                gpu: (start, end),
            }));
    }

    fn wait(&mut self, until: f64, is_event: bool, fault: Option<(&LoopFault, u32)>) {
        let from = self.host;
        let back = until.max(from + CALL_MS / 2.0);
        self.host = fault.map_or(back, |(fault, number)| fault.resumes(number, back, 0.0));
        self.seen.push(Observation::Waited {
            host: (from, self.host),
            is_event,
        });
    }
}
