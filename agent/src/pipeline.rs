//! From the calls of one process to points: order, discovery, correlation, rhythm, roll-up. Pure: no clock but the events'.
//!
//! Until the rhythm of the process is known, observations are held; then they are rolled up from
//! the first one on, so that nothing of a job's start is lost.

use std::collections::BTreeMap;

use crate::activity::{Activity, ActivityTracker};
use crate::block_size::{exponent, iteration_ns};
use crate::correlate::{Completion, Completions, Correlator, Observation};
use crate::discover::{CommIndex, CommTable};
use crate::event::{Call, ContextSwitch, Process};
use crate::order::{Step, StepQueue};
use crate::policy::Settings;
use crate::progress::Progress;
use crate::rhythm::Rhythm;
use crate::rollup::{Rollup, View};
use crate::signal::{CommId, Point};

/// Observations after which rolling up begins without knowing what the process repeats.
const MAX_HELD: usize = 16_384;
/// The same in time of the events: a slow job must not stay unseen, and with so few operations
/// its blocks are small whatever is measured.
const MAX_HELD_NS: u64 = 30_000_000_000;
const RECONSIDER_EVERY: u64 = 256;

/// How blocks are cut.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockRule {
    /// How long a block should last, nanoseconds.
    pub target_ns: f64,
    /// The operator's own choice as an exponent of two.
    pub exponent: Option<u32>,
}

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
    progress: Progress,
    rhythm: Rhythm,
    job: Option<CommId>,
    issued: u64,
    state: State,
    closed_blocks: u64,
    points: Vec<Point>,
}

#[derive(Debug)]
enum State {
    Learning {
        held: Vec<Observation>,
        since_ns: Option<u64>,
    },
    Rolling(Rollup),
}

impl State {
    fn learning() -> Self {
        Self::Learning {
            held: Vec::new(),
            since_ns: None,
        }
    }
}

impl Pipeline {
    /// Starts to follow `process`.
    pub fn new(process: Process, rule: BlockRule) -> Self {
        Self {
            process,
            rule,
            settings: Settings::default(),
            queue: StepQueue::default(),
            table: CommTable::default(),
            correlator: Correlator::default(),
            activity: ActivityTracker::default(),
            progress: Progress::default(),
            rhythm: Rhythm::default(),
            job: None,
            issued: 0,
            state: State::learning(),
            closed_blocks: 0,
            points: Vec::new(),
        }
    }

    /// Takes the next call of the process, in order of entry.
    pub fn call(&mut self, call: &Call) {
        let mut steps = Vec::new();
        self.queue.push(call, &mut steps);
        for step in steps {
            self.step(step);
        }
        // After the steps: a call that closes a block is itself part of the next one.
        self.activity.call(call);
    }

    /// Takes kernel launches of the process.
    pub fn launched(&mut self, n: u64) {
        self.activity.launched(n);
    }

    /// Takes a context switch of the host; only those of the process's own threads count.
    pub fn switched(&mut self, switch: &ContextSwitch) {
        self.activity.switched(switch);
    }

    /// Tells how far the process has come, when that is due at `now_ns` of the source's clock.
    ///
    /// A source calls this whether or not the process does anything: silence is what a hang looks like.
    pub fn beat(&mut self, now_ns: u64) {
        if !self.progress.is_due(now_ns) {
            return;
        }
        let profile = self.rhythm.profile();
        let role = profile.map(|profile| profile.role);
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
        let mut steps = Vec::new();
        self.queue.finish(&mut steps);
        for step in steps {
            self.step(step);
        }
        self.active();
        match ending {
            Ending::Complete => self.flush(),
            Ending::Cut if matches!(self.state, State::Learning { .. }) => self.start(),
            Ending::Cut => {}
        }
    }

    /// Sets what a policy asks of this process.
    pub fn apply(&mut self, settings: Settings) {
        self.settings = settings;
        let exponent = self.rule.exponent.or(settings.block_exponent);
        if let (State::Rolling(rollup), Some(exponent)) = (&mut self.state, exponent) {
            rollup.resize(exponent);
        }
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
            State::Learning { .. } => 0,
        };
        self.closed_blocks + rolling
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
                if !operation.op.is_collective() {
                    return;
                }
                let comm = self.table.comms().get(index.position());
                let nranks = comm.map_or(0, |comm| comm.nranks);
                self.active();
                self.correlator.issued(index, nranks, operation, entry_ns)
            }
            Step::WaitBegan { tid } => self.correlator.wait_began(tid),
            Step::WaitEnded {
                tid,
                entry_ns,
                return_ns,
            } => self.correlator.wait_ended(tid, entry_ns, return_ns),
        };
        self.observe(observation);
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
            State::Learning { held, since_ns } => {
                let now_ns = instant_ns(&observation);
                if matches!(observation, Observation::Issued(_)) {
                    *since_ns = since_ns.or(now_ns);
                }
                // What a process waits for before its first collective is of no interest.
                if since_ns.is_some() {
                    held.push(observation);
                    self.try_start(now_ns);
                }
            }
            State::Rolling(_) => self.roll(&observation),
        }
    }

    fn try_start(&mut self, now_ns: Option<u64>) {
        let State::Learning { held, since_ns } = &self.state else {
            return;
        };
        let full = held.len() >= MAX_HELD
            || now_ns
                .zip(*since_ns)
                .is_some_and(|(now, since)| now.saturating_sub(since) > MAX_HELD_NS);
        // Only a completion adds to what is known of durations.
        let completed = matches!(held.last(), Some(Observation::Waited(_)));
        if full || (completed && self.exponents().is_some()) {
            self.start();
        }
    }

    fn start(&mut self) {
        let Some(primary) = self.rhythm.primary() else {
            return;
        };
        let exponents = self
            .exponents()
            .unwrap_or_else(|| self.fallback_exponents(primary));
        let rollup = Rollup::new(primary, exponents);
        let State::Learning { held, .. } =
            std::mem::replace(&mut self.state, State::Rolling(rollup))
        else {
            return;
        };
        self.apply(self.settings);
        for observation in held {
            self.roll(&observation);
        }
    }

    fn roll(&mut self, observation: &Observation) {
        let State::Rolling(rollup) = &mut self.state else {
            return;
        };
        let view = view(&self.table, &self.rhythm, self.settings);
        rollup.observe(observation, view);
        self.points.append(&mut rollup.take_points());
    }

    fn flush(&mut self) {
        if matches!(self.state, State::Learning { .. }) {
            self.start();
        }
        if let State::Rolling(mut rollup) = std::mem::replace(&mut self.state, State::learning()) {
            let view = view(&self.table, &self.rhythm, self.settings);
            rollup.finish(view);
            self.closed_blocks += rollup.blocks();
            self.points.append(&mut rollup.take_points());
        }
    }

    /// Block sizes of all communicators of the iteration, once its duration is known.
    fn exponents(&self) -> Option<BTreeMap<CommIndex, u32>> {
        let State::Learning { held, .. } = &self.state else {
            return None;
        };
        let (primary, pattern) = (self.rhythm.primary()?, self.rhythm.pattern());
        let (period, start) = (pattern.period()?, pattern.pattern_start()?);
        let mut completions = Completions::new(primary);
        let seen = held
            .iter()
            .filter_map(|observation| completions.observe(observation));
        let in_pattern: Vec<Completion> = seen.filter(|seen| seen.seq + 1 >= start).collect();
        let iteration_ns = iteration_ns(&in_pattern, period)?;
        let ops = &self.rhythm.profile()?.ops;
        // Echo looks back on iterations: of long ones, a block has to hold a good part.
        let target_ns = self.rule.target_ns.max(iteration_ns / 2.0);
        let size =
            |(comm, ops): (&CommIndex, &f64)| (*comm, exponent(target_ns, iteration_ns / ops));
        Some(ops.iter().map(size).collect())
    }

    /// Block size of the busiest communicator from the rate at which its operations were issued.
    fn fallback_exponents(&self, primary: CommIndex) -> BTreeMap<CommIndex, u32> {
        let State::Learning { held, .. } = &self.state else {
            return BTreeMap::new();
        };
        let entries = held.iter().filter_map(|observation| match observation {
            Observation::Issued(issued) if issued.at.comm == primary => Some(issued.entry_ns),
            _ => None,
        });
        let rate = mean_interval_ns(entries);
        rate.map(|ns| (primary, exponent(self.rule.target_ns, ns)))
            .into_iter()
            .collect()
    }
}

fn view<'a>(table: &'a CommTable, rhythm: &'a Rhythm, settings: Settings) -> View<'a> {
    View {
        comms: table.comms(),
        rhythm,
        sample_mod: settings.sample_mod,
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "held operations span less than 2^53 ns"
)]
fn mean_interval_ns(entries: impl Iterator<Item = u64>) -> Option<f64> {
    let entries: Vec<u64> = entries.collect();
    let (first, last) = (entries.first()?, entries.last()?);
    (entries.len() > 1).then(|| last.saturating_sub(*first) as f64 / (entries.len() - 1) as f64)
}

fn instant_ns(observation: &Observation) -> Option<u64> {
    match observation {
        Observation::Issued(issued) => Some(issued.entry_ns),
        Observation::Waited(waited) => Some(waited.return_ns),
        Observation::WaitBegan { .. } | Observation::Active(_) => None,
    }
}

#[cfg(test)]
mod tests;
