//! From the calls of one process to points: order, discovery, correlation, rhythm, roll-up. Pure: no clock but the events'.
//!
//! Until the rhythm of the process is known, observations are held; then they are rolled up from
//! the first one on, so that nothing of a job's start is lost.

mod attach;
mod gpu_times;
mod no_sync;
mod pending;
mod replays;
mod rolling;
mod row_order;
mod transfers;

use std::collections::BTreeSet;

use crate::activity::ActivityTracker;
pub use crate::block_size::BlockRule;
use crate::correlate::{Correlator, Observation, Scope};
use crate::discover::{CommIndex, CommTable};
use crate::event::{Activity, Call, ContextSwitch, Entered, Operation, Process};
use crate::iteration_pattern::Rhythm;
use crate::order::{BLOCKING_NS, Step, StepQueue};
use crate::pipeline::gpu_times::GpuTimes;
use crate::pipeline::no_sync::Unwaited;
use crate::pipeline::pending::Held;
use crate::pipeline::transfers::Transfers;
use crate::policy::Settings;
use crate::progress::Progress;
use crate::rollup::Rollup;
use crate::signal::{CommId, Point};

const RECONSIDER_EVERY: u64 = 256;

/// How the events of a process end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The process ended, as its peers did: blocks still open are closed where they are.
    Complete,
    /// The events stop in the middle: a block still open has no equal on another rank, so it is dropped.
    Cut,
}

/// Follows one process.
#[derive(Debug)]
pub struct Pipeline {
    process: Process,
    rule: BlockRule,
    settings: Settings,
    queue: StepQueue,
    table: CommTable,
    correlator: Correlator,
    activity: ActivityTracker,
    gpu: GpuTimes,
    transfers: Transfers,
    /// Communicators whose rows stand for calls.
    replaying: BTreeSet<CommIndex>,
    progress: Progress,
    rhythm: Rhythm,
    unwaited: Unwaited,
    job: Option<CommId>,
    adopted_job: Option<(u32, u64)>,
    issued: u64,
    state: State,
    closed_blocks: u64,
    broken_blocks: u64,
    points: Vec<Point>,
}

#[derive(Debug)]
enum State {
    Learning(Held),
    Rolling(Box<Rollup>),
}

impl Pipeline {
    /// Starts to follow `process`.
    pub fn new(process: Process, rule: BlockRule) -> Self {
        Self {
            process,
            rule: rule.of_job(process.world_size),
            settings: Settings::default(),
            queue: StepQueue::default(),
            table: CommTable::default(),
            correlator: Correlator::default(),
            activity: ActivityTracker::default(),
            gpu: GpuTimes::default(),
            transfers: Transfers::default(),
            replaying: BTreeSet::new(),
            progress: Progress::default(),
            rhythm: Rhythm::default(),
            unwaited: Unwaited::default(),
            job: None,
            adopted_job: None,
            issued: 0,
            state: State::Learning(Held::default()),
            closed_blocks: 0,
            broken_blocks: 0,
            points: Vec::new(),
        }
    }

    /// Takes the next call of the process, in order of entry.
    pub fn call(&mut self, call: &Call) {
        self.table.called(call);
        self.advance(|queue, steps| queue.push(call, steps));
        // After the steps: a call that closes a block is itself part of the next one.
        self.activity.call(call);
    }

    /// Takes the entry of a call that has not returned yet.
    pub fn entered(&mut self, entered: &Entered) {
        self.table.entered(entered);
        self.advance(|queue, steps| queue.entered(entered, steps));
    }

    /// Takes the return of a call whose entry was told before.
    pub fn returned(&mut self, call: &Call) {
        self.table.returned(call);
        self.advance(|queue, steps| queue.returned(call, steps));
    }

    /// Takes what the source has summed up of the process.
    pub fn measured(&mut self, activity: &Activity) {
        self.activity.measured(activity);
    }

    /// Gives up what may lack events that were lost.
    pub fn lost(&mut self) {
        self.transfers.give_up();
        self.table.lost();
        match &mut self.state {
            State::Learning(held) => *held = Held::default(),
            State::Rolling(rollup) => rollup.lost(),
        }
    }

    /// Takes kernel launches of the process.
    pub fn launched(&mut self, n: u64) {
        self.activity.launched(n);
    }

    /// Takes a context switch of the host; only those of the process's own threads count.
    pub fn switched(&mut self, switch: &ContextSwitch) {
        self.activity.switched(switch);
    }

    /// Takes whether the process is stopped, by a signal or a debugger.
    pub fn set_stopped(&mut self, is_stopped: bool) {
        self.progress.set_stopped(is_stopped);
    }

    /// Tells how far the process has come, when that is due at `now_ns` of the source's clock.
    ///
    /// A source calls this whether or not the process does anything: silence is what a hang looks like.
    pub fn beat(&mut self, now_ns: u64) {
        self.release_rows(now_ns);
        if self.progress.is_due(now_ns) {
            self.tell_progress(now_ns);
        }
    }

    fn tell_progress(&mut self, now_ns: u64) {
        let profile = self.rhythm.profile();
        let role = self.rhythm.role();
        for (index, comm) in self.table.indexed() {
            let is_told = Some(comm.id) == self.job
                || Some(index) == self.rhythm.primary()
                || profile.is_some_and(|profile| profile.ops.contains_key(&index));
            if is_told {
                self.points
                    .extend(self.progress.point(index, comm, role, now_ns));
            }
        }
    }

    /// Ends the process.
    pub fn finish(&mut self, ending: Ending) {
        self.advance(StepQueue::finish);
        self.release_rows(u64::MAX);
        self.active();
        if let Some(last_ns) = self.progress.last_ns() {
            self.tell_progress(last_ns);
        }
        match ending {
            Ending::Complete => self.flush(),
            Ending::Cut if matches!(self.state, State::Learning(_)) => self.start(),
            Ending::Cut => {}
        }
    }

    /// Sets what a policy asks of this process.
    pub const fn apply(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// The points since the last call.
    pub fn take_points(&mut self) -> Vec<Point> {
        std::mem::take(&mut self.points)
    }

    /// The process.
    pub fn process(&self) -> Process {
        self.process
    }

    /// The first communicator that spans the whole job: what tells one job from the next.
    pub fn job(&self) -> Option<CommId> {
        self.job
    }

    /// What the process repeats.
    pub fn rhythm(&self) -> &Rhythm {
        &self.rhythm
    }

    /// Operations on communicators that were made before tracing began.
    pub fn unknown_comm_ops(&self) -> u64 {
        self.table.unknown()
    }

    /// Blocks closed so far.
    pub fn blocks(&self) -> u64 {
        let rolling = match &self.state {
            State::Rolling(rollup) => rollup.blocks(),
            State::Learning(_) => 0,
        };
        self.closed_blocks + rolling
    }

    /// Blocks left out so far, because something of them was not seen.
    pub fn broken_blocks(&self) -> u64 {
        let rolling = match &self.state {
            State::Rolling(rollup) => rollup.broken(),
            State::Learning(_) => 0,
        };
        self.broken_blocks + rolling
    }

    fn advance(&mut self, push: impl FnOnce(&mut StepQueue, &mut Vec<Step>)) {
        let mut steps = Vec::new();
        self.queue.take_short(self.unwaited.is_long(&self.rhythm));
        push(&mut self.queue, &mut steps);
        for step in steps {
            self.step(step);
        }
    }

    fn step(&mut self, step: Step) {
        let observation = match step {
            Step::CommReady { tid, init } => {
                self.table.made(tid, init);
                if init.nranks == self.process.world_size && init.nranks > 1 {
                    self.job = self.job.or_else(|| Some(CommId::new(init.unique_id)));
                }
                return;
            }
            Step::CommGone { comm } => {
                if let Some(index) = comm.and_then(|pointer| self.table.gone(pointer)) {
                    // How far it came in all, so that what was seen can be compared with what was done.
                    if let Some(last_ns) = self.progress.last_ns() {
                        self.tell_progress(last_ns);
                    }
                    self.progress.gone(index);
                }
                return;
            }
            Step::Issued {
                tid,
                entry_ns,
                operation,
            } => {
                let Some(index) = self.table.find(tid, operation.comm) else {
                    return;
                };
                let Some(issued) = self.issued(index, operation, entry_ns) else {
                    return;
                };
                issued
            }
            Step::WaitBegan { tid, entry_ns } => {
                self.progress.wait_began(tid, entry_ns);
                self.correlator.wait_began(tid)
            }
            Step::WaitEnded {
                tid,
                entry_ns,
                return_ns,
            } => {
                self.progress.wait_ended(tid);
                if return_ns.saturating_sub(entry_ns) > BLOCKING_NS {
                    self.unwaited.waited();
                }
                self.correlator.wait_ended(tid, entry_ns, return_ns)
            }
        };
        self.observe(observation);
    }

    /// What follows from an operation on a communicator; nothing from a transfer that cannot be followed.
    fn issued(
        &mut self,
        comm: CommIndex,
        operation: Operation,
        entry_ns: u64,
    ) -> Option<Observation> {
        let is_collective = operation.op.is_collective();
        if is_collective && self.replaying.contains(&comm) {
            return None;
        }
        let (index, scope, operation) = if is_collective {
            let operation = self.table.numbered(operation)?;
            let nranks = self.table.comms().get(comm.position())?.nranks;
            (comm, Scope::from(nranks), operation)
        } else {
            let transfers = &self.transfers;
            let (index, scope) = transfers.channel(&mut self.table, comm, operation)?;
            (index, scope, operation)
        };
        self.active();
        let observation = self.correlator.issued(index, scope, operation, entry_ns);
        if let Observation::Issued(issued) = observation
            && !is_collective
        {
            self.transfers.issued(comm, issued.at, entry_ns);
        }
        Some(observation)
    }

    /// Passes on what the process did on its host, before the next collective may cut a block.
    fn active(&mut self) {
        let activity = self.activity.take();
        if activity != Activity::default() {
            self.observe(Observation::Active(activity));
        }
    }

    fn observe(&mut self, observation: Observation) {
        if let Observation::Issued(issued) = observation {
            self.progress.issued(&issued);
            self.rhythm.observe(issued, self.table.comms());
            self.issued += 1;
            self.unwaited.issued();
            if self.issued.is_multiple_of(RECONSIDER_EVERY) {
                self.rhythm.reconsider();
            }
        }
        if let State::Rolling(rollup) = &self.state
            && self.rhythm.primary() != Some(rollup.primary())
        {
            self.flush();
        }
        match &mut self.state {
            State::Learning(held) => {
                held.take(observation);
                if let Observation::Issued(issued) = observation {
                    self.try_start(issued);
                }
            }
            State::Rolling(_) => self.roll(&observation),
        }
    }
}

#[cfg(test)]
mod tests;
