//! Pipeline from the calls of one process to points: ordering, discovery, correlation, iteration
//! pattern, rollup. Pure: the only clock is that of the events.
//!
//! Until the iteration pattern of the process is known, observations are buffered; then they are
//! rolled up from the first one on, so that nothing of a job's start is lost.

mod attach;
mod gpu_clock;
mod gpu_times;
mod host_waits;
mod no_sync;
mod pending;
mod replays;
mod reporting;
mod rolling;
mod row_order;
mod transfers;

use std::collections::BTreeSet;

use crate::activity::ActivityTracker;
pub use crate::block_size::BlockRule;
use crate::correlate::{Correlator, Observation, Scope};
use crate::discover::{CommIndex, CommTable};
use crate::event::{Activity, Call, ContextSwitch, Entered, Exit, Operation, Process};
use crate::iteration_pattern::IterationPattern;
use crate::operation_sums::OperationSums;
use crate::operation_sums::host_waits::HostWaits;
use crate::order::{BLOCKING_NS, Step, StepQueue};
use crate::pipeline::gpu_times::GpuTimes;
use crate::pipeline::no_sync::NoSyncDetector;
use crate::pipeline::pending::PendingObservations;
use crate::pipeline::transfers::Transfers;
use crate::policy::Settings;
use crate::progress::Progress;
use crate::rollup::Rollup;
use crate::signal::{CommId, Point};

const RECONSIDER_EVERY: u64 = 256;

/// End of a process's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The process ended, as its peers did: open blocks are closed as they are.
    Complete,
    /// The events stop in the middle: an open block has no counterpart on another rank, so it is
    /// dropped.
    Cut,
}

/// Pipeline of one process.
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
    operation_sums: OperationSums,
    host_waits: HostWaits,
    transfers: Transfers,
    /// Communicators whose rows stand for calls.
    replaying: BTreeSet<CommIndex>,
    progress: Progress,
    iteration_pattern: IterationPattern,
    no_sync: NoSyncDetector,
    job: Option<CommId>,
    adopted_job: Option<(u32, u64)>,
    transfer_job: Option<(u32, u64)>,
    job_unsettled_ns: Option<u64>,
    issued: u64,
    state: State,
    closed_blocks: u64,
    broken_blocks: u64,
    points: Vec<Point>,
}

#[derive(Debug)]
enum State {
    Learning(PendingObservations),
    Rolling(Box<Rollup>),
}

impl Pipeline {
    /// Creates a pipeline for `process`.
    pub fn new(process: Process, rule: BlockRule) -> Self {
        Self {
            process,
            rule: rule.for_world_size(process.world_size),
            settings: Settings::default(),
            queue: StepQueue::default(),
            table: CommTable::default(),
            correlator: Correlator::default(),
            activity: ActivityTracker::default(),
            gpu: GpuTimes::default(),
            operation_sums: OperationSums::default(),
            host_waits: HostWaits::default(),
            transfers: Transfers::default(),
            replaying: BTreeSet::new(),
            progress: Progress::default(),
            iteration_pattern: IterationPattern::default(),
            no_sync: NoSyncDetector::default(),
            job: None,
            adopted_job: None,
            transfer_job: None,
            job_unsettled_ns: None,
            issued: 0,
            state: State::Learning(PendingObservations::default()),
            closed_blocks: 0,
            broken_blocks: 0,
            points: Vec::new(),
        }
    }

    /// Processes the next call of the process, in order of entry.
    pub fn on_call(&mut self, call: &Call) {
        self.table.record_call(call);
        self.advance(|queue, steps| queue.push(call, steps));
        // After the steps: a call that closes a block itself belongs to the next one.
        self.activity.record_call(call);
    }

    /// Processes the entry of a call that has not returned yet.
    pub fn on_entry(&mut self, entered: &Entered) {
        self.table.record_entry(entered);
        self.advance(|queue, steps| queue.push_entry(entered, steps));
    }

    /// Processes the return of a call whose entry was processed before.
    pub fn on_return(&mut self, call: &Call) {
        self.table.record_return(call);
        self.advance(|queue, steps| queue.push_return(call, steps));
    }

    /// Invalidates all state that may lack lost events.
    pub fn on_loss(&mut self) {
        self.transfers.disable();
        self.host_waits.on_loss();
        self.table.invalidate_adopted();
        match &mut self.state {
            State::Learning(pending) => *pending = PendingObservations::default(),
            State::Rolling(rollup) => rollup.on_loss(),
        }
    }

    /// Adds kernel launches of the process.
    pub fn on_launches(&mut self, n: u64) {
        self.activity.record_launches(n);
    }

    /// Processes a context switch of the host; only those of the process's own threads count.
    pub fn on_context_switch(&mut self, switch: &ContextSwitch) {
        self.activity.record_switch(switch);
    }

    /// Ends the pipeline of a process that has ended.
    pub fn end(&mut self, exit: Option<Exit>) {
        self.progress.set_exit(exit);
        self.finish(Ending::Complete);
    }

    /// Ends the pipeline.
    pub fn finish(&mut self, ending: Ending) {
        self.advance(StepQueue::finish);
        self.release_rows(u64::MAX);
        self.operation_sums.finish();
        self.host_waits.finish();
        self.flush_activity();
        if let Some(end_ns) = self.progress.end_ns() {
            self.report_progress(end_ns);
        }
        match ending {
            Ending::Complete => self.flush(),
            Ending::Cut => {
                if matches!(self.state, State::Learning(_)) {
                    self.start();
                }
                self.report_samples();
            }
        }
    }

    /// Applies the settings of a policy.
    pub const fn apply_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Returns the points since the last call.
    pub fn take_points(&mut self) -> Vec<Point> {
        self.points.extend(self.operation_sums.take_points());
        self.points.extend(self.host_waits.take_points());
        std::mem::take(&mut self.points)
    }

    /// Returns whether the process has joined a communicator of this size with this rank.
    pub fn has_comm(&self, rank: u32, size: u32) -> bool {
        let comms = self.table.comms();
        comms
            .iter()
            .any(|comm| (comm.rank, comm.nranks) == (rank, size))
    }

    /// Returns the process.
    pub fn process(&self) -> Process {
        self.process
    }

    /// Returns the iteration pattern of the process.
    pub fn iteration_pattern(&self) -> &IterationPattern {
        &self.iteration_pattern
    }

    /// Returns the number of operations on communicators that were created before tracing began, without
    /// transfers that the profiler plugin records.
    pub fn unknown_comm_ops(&self) -> u64 {
        self.table.unknown_ops()
    }

    /// Returns the number of closed blocks.
    pub fn blocks(&self) -> u64 {
        let rolling = match &self.state {
            State::Rolling(rollup) => rollup.blocks(),
            State::Learning(_) => 0,
        };
        self.closed_blocks + rolling
    }

    /// Returns the number of blocks discarded because a part of them was not seen.
    pub fn broken_blocks(&self) -> u64 {
        let rolling = match &self.state {
            State::Rolling(rollup) => rollup.broken(),
            State::Learning(_) => 0,
        };
        self.broken_blocks + rolling
    }

    fn advance(&mut self, push: impl FnOnce(&mut StepQueue, &mut Vec<Step>)) {
        let mut steps = Vec::new();
        self.queue
            .count_short_waits(self.no_sync.is_detected(&self.iteration_pattern));
        push(&mut self.queue, &mut steps);
        for step in steps {
            self.step(step);
        }
    }

    fn step(&mut self, step: Step) {
        let observation = match step {
            Step::CommReady { tid, init } => {
                self.table.record_init(tid, init);
                if init.nranks == self.process.world_size && init.nranks > 1 {
                    self.job = self.job.or_else(|| Some(CommId::new(init.unique_id)));
                }
                return;
            }
            Step::CommGone { comm } => {
                if let Some(index) = comm.and_then(|pointer| self.table.remove(pointer)) {
                    // Reports the final progress, so that seen and executed operations can be
                    // compared.
                    if let Some(last_ns) = self.progress.last_entry_ns() {
                        self.report_progress(last_ns);
                    }
                    self.progress.forget_comm(index);
                }
                return;
            }
            Step::Issued {
                tid,
                entry_ns,
                operation,
            } => {
                let Some(index) = self.table.find(tid, operation.comm) else {
                    self.table.count_unknown(&operation);
                    return;
                };
                let Some(issued) = self.issue(index, operation, entry_ns) else {
                    return;
                };
                issued
            }
            Step::WaitBegan { tid, entry_ns } => {
                self.progress.begin_wait(tid, entry_ns);
                self.correlator.begin_wait(tid)
            }
            Step::WaitEnded {
                tid,
                entry_ns,
                return_ns,
            } => {
                self.progress.end_wait(tid);
                if return_ns.saturating_sub(entry_ns) > BLOCKING_NS {
                    self.no_sync.record_wait();
                }
                self.correlator.end_wait(tid, entry_ns, return_ns)
            }
        };
        self.observe(observation);
    }

    /// Returns the observation of an operation on a communicator; `None` for a transfer that cannot
    /// be tracked.
    fn issue(
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
            let operation = self.table.assign_seq(operation)?;
            let nranks = self.table.comms().get(comm.position())?.nranks;
            (comm, Scope::from(nranks), operation)
        } else {
            let transfers = &self.transfers;
            let (index, scope) = transfers.channel(&mut self.table, comm, operation)?;
            (index, scope, operation)
        };
        self.flush_activity();
        let observation = self.correlator.issue(index, scope, operation, entry_ns);
        if let Observation::Issued(issued) = observation
            && !is_collective
        {
            self.transfers.record_issued(comm, issued.at, entry_ns);
        }
        Some(observation)
    }

    /// Passes on the host activity of the process before the next collective may close a block.
    fn flush_activity(&mut self) {
        let activity = self.activity.take_activity();
        if activity != Activity::default() {
            self.observe(Observation::Active(activity));
        }
    }

    fn observe(&mut self, observation: Observation) {
        self.sum_waits(&observation);
        if let Observation::Issued(issued) = observation {
            self.progress.record_issued(&issued);
            self.iteration_pattern.observe(issued, self.table.comms());
            self.issued += 1;
            self.no_sync.record_collective();
            if self.issued.is_multiple_of(RECONSIDER_EVERY) {
                self.iteration_pattern.reconsider();
            }
        }
        if let State::Rolling(rollup) = &self.state
            && self.iteration_pattern.primary() != Some(rollup.primary())
        {
            self.flush();
        }
        match &mut self.state {
            State::Learning(pending) => {
                pending.push(observation);
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
