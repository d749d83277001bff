//! A loop with what happens to it and how it is watched.

use std::ops::Range;

use super::fault::{LoopFault, LoopFaultKind};
use super::kind::{Kind, Shape};
use super::lines::{Attach, Lines, host_ns};
use super::program::Programs;
use super::timeline::Timeline;
use super::verdict::{Expected, Truth};

/// How long a fault lasts, milliseconds.
const FAULT_MS: f64 = 20_000.0;

/// How long the loop goes on behind it, milliseconds.
const AFTER_MS: f64 = 10_000.0;

/// From when to when the fault of a rehearsal lasts, milliseconds.
const REHEARSAL: Range<f64> = 4_000.0..16_000.0;

/// How far a strength is looked for, and how exactly.
const MAX_STRENGTH_FACTOR: f64 = 1024.0;
const BISECTIONS: usize = 7;

/// Below this share of the healthy pace a fault costs too little for anybody to have to see it.
const MIN_SHARE_LOST: f64 = 0.05;

/// A loop to be judged.
#[derive(Debug, Clone, PartialEq)]
pub struct LoopCase {
    /// The loop.
    pub shape: Shape,
    /// What goes wrong, `healthy_ms` after the agent came.
    pub fault: Option<LoopFault>,
    /// How the agent came.
    pub attach: Attach,
    /// When it came, milliseconds of the loop.
    pub attach_ms: f64,
    /// How long it sees the loop healthy before the fault, milliseconds.
    pub healthy_ms: f64,
    /// How long a block should last, milliseconds.
    pub block_ms: f64,
    /// The rank that each simulated one is called.
    pub labels: Vec<u32>,
}

/// A loop that ran.
#[derive(Debug, Clone)]
pub struct Generated {
    /// The recording.
    pub bytes: Vec<u8>,
    /// What was wrong.
    pub truth: Truth,
}

/// When each step was over, milliseconds.
type Clock = Vec<f64>;

impl LoopCase {
    /// Its name.
    pub fn name(&self) -> String {
        let Shape {
            kind,
            n_ranks,
            step_ms,
            seed,
            ..
        } = &self.shape;
        let fault = self
            .fault
            .as_ref()
            .map_or_else(|| "healthy".to_owned(), ToString::to_string);
        let (attach, block) = (self.attach, self.block_ms);
        format!(
            "{}, {n_ranks} ranks, {step_ms:.0} ms, {fault}, {attach:?}, blocks of {block:.0} ms, seed {seed}",
            kind.name()
        )
    }

    /// The same with a fault that costs plain steps what it is meant to cost, by rehearsals. Evaluation may suffer more.
    #[must_use]
    pub fn calibrated(mut self) -> Self {
        let Some(mut fault) = self.fault.take() else {
            return self;
        };
        fault.when = REHEARSAL;
        if fault.trouble != LoopFaultKind::Pulses {
            let warm = Shape {
                warm_up: 0,
                eval_every: 0,
                save_every: 0,
                ..self.shape.clone()
            };
            fault.strength = strength_that_costs(&warm, &fault);
        }
        let start = self.attach_ms + self.healthy_ms;
        fault.when = start..start + FAULT_MS;
        self.fault = Some(fault);
        self
    }

    /// Runs it, and its healthy twin for what was lost.
    pub fn generate(&self) -> std::io::Result<Generated> {
        let start = self.attach_ms + self.healthy_ms;
        let end = start + FAULT_MS + AFTER_MS;
        let (clock, lines) = self.play(self.fault.as_ref(), end);
        let bytes = lines.into_bytes(&self.name())?;
        let origin = host_ns(self.first_ms(&clock));
        let when =
            [start, start + FAULT_MS].map(|at| u64::try_from(host_ns(at) - origin).unwrap_or(0));
        let mut truth = Truth::healthy();
        truth.is_uneven = self.shape.kind == Kind::VariableWork;
        if let Some(fault) = &self.fault {
            let twin = twin(&self.shape, clock.len());
            let last = |clock: &Clock| clock.last().copied().unwrap_or(0.0);
            let lost_ms = (last(&clock) - last(&twin)).max(0.0);
            truth.lost_gpu_s = Some(f64::from(self.shape.n_ranks) * lost_ms / 1e3);
            truth.expected = self.expected(fault, lost_ms / (FAULT_MS - lost_ms).max(1.0));
            truth.when_ns = when[0]..when[1];
        }
        Ok(Generated { bytes, truth })
    }

    fn expected(&self, fault: &LoopFault, cost: f64) -> Expected {
        let label = usize::try_from(fault.rank)
            .ok()
            .and_then(|rank| self.labels.get(rank));
        let rank = label.copied().unwrap_or(fault.rank);
        match fault.trouble {
            _ if cost < MIN_SHARE_LOST => Expected::Harmless(rank),
            LoopFaultKind::Loader | LoopFaultKind::Core | LoopFaultKind::Neighbour => {
                Expected::Rank(rank)
            }
            LoopFaultKind::Pulses => Expected::RankOrCondition(rank),
            LoopFaultKind::Uniform | LoopFaultKind::Network => Expected::Condition,
        }
    }

    /// When the recording begins: with the creation of the communicator, or with what the agent saw first.
    fn first_ms(&self, clock: &Clock) -> f64 {
        let came = clock.iter().copied().find(|at| *at >= self.attach_ms);
        match self.attach {
            Attach::FromStart => -6_000.0,
            Attach::TakenOver => came.unwrap_or(self.attach_ms) - 6_000.0,
            Attach::Late => came.unwrap_or(self.attach_ms),
        }
    }

    /// Runs the loop until `end`.
    fn play(&self, fault: Option<&LoopFault>, end: f64) -> (Clock, Lines) {
        let mut timeline = Timeline::new(self.shape.n_ranks, fault.cloned());
        let mut programs = Programs::new(self.shape.clone());
        let mut lines = Lines::new(
            self.labels.clone(),
            self.attach,
            self.shape.kind == Kind::Graphs,
        );
        let mut clock = Clock::new();
        let mut now = 0.0;
        let mut is_watched = self.attach == Attach::FromStart;
        if is_watched {
            lines.begin(0.0, timeline.seqs());
        }
        while now < end {
            now = timeline.step(programs.next_step());
            clock.push(now);
            let seen = timeline.take_observations();
            if is_watched {
                lines.add(seen);
            } else if now >= self.attach_ms {
                is_watched = true;
                lines.begin(now, timeline.seqs());
            }
        }
        (clock, lines)
    }
}

/// When the steps of a loop are over until `end`.
fn steps(shape: &Shape, fault: Option<&LoopFault>, end: f64) -> Clock {
    let mut timeline = Timeline::new(shape.n_ranks, fault.cloned());
    let mut programs = Programs::new(shape.clone());
    let mut clock = Clock::new();
    let mut now = 0.0;
    while now < end {
        now = timeline.step(programs.next_step());
        clock.push(now);
    }
    clock
}

/// When so many steps of the healthy loop are over.
fn twin(shape: &Shape, n_steps: usize) -> Clock {
    let mut timeline = Timeline::new(shape.n_ranks, None);
    let mut programs = Programs::new(shape.clone());
    (0..n_steps)
        .map(|_| timeline.step(programs.next_step()))
        .collect()
}

/// More than this does not happen: a core is shared by ten at most, another process on the GPU takes three quarters of it.
const fn max_strength(trouble: LoopFaultKind) -> f64 {
    match trouble {
        LoopFaultKind::Core => 9.0,
        LoopFaultKind::Neighbour | LoopFaultKind::Uniform => 3.0,
        LoopFaultKind::Network => 50.0,
        LoopFaultKind::Loader | LoopFaultKind::Pulses => f64::INFINITY,
    }
}

/// How strong a fault has to be to cost what it is meant to cost: doubled until it costs enough, then by bisection. It costs
/// nothing at all while the hosts run ahead of it.
fn strength_that_costs(shape: &Shape, fault: &LoopFault) -> f64 {
    let healthy = steps(shape, None, REHEARSAL.end);
    let is_enough = |strength: f64| {
        let fault = LoopFault {
            strength,
            ..fault.clone()
        };
        let faulty = steps(shape, Some(&fault), REHEARSAL.end);
        share_lost(&healthy, &faulty) >= fault.severity
    };
    let max_strength = max_strength(fault.trouble);
    let (mut low, mut high) = (0.0, fault.strength);
    while high < max_strength && high < MAX_STRENGTH_FACTOR * fault.strength && !is_enough(high) {
        (low, high) = (high, (2.0 * high).min(max_strength));
    }
    for _ in 0..BISECTIONS {
        let middle = f64::midpoint(low, high);
        if is_enough(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

/// What the fault of a rehearsal cost, as a share of the healthy time of the steps that it hit.
fn share_lost(healthy: &Clock, faulty: &Clock) -> f64 {
    let Some((n, _)) = (0..).zip(faulty).find(|(_, at)| **at >= REHEARSAL.end) else {
        return 0.0;
    };
    let first = healthy
        .iter()
        .copied()
        .find(|at| *at >= REHEARSAL.start)
        .unwrap_or(0.0);
    let at = |clock: &Clock| clock.get::<usize>(n).copied().unwrap_or(0.0);
    let (with, without) = (at(faulty), at(healthy));
    (with - without) / (without - first).max(1.0)
}
