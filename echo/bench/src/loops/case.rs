//! A loop with its fault and its observation.

use std::ops::Range;

use super::fault::{LoopFault, LoopFaultKind};
use super::kind::{Kind, Shape};
use super::lines::{Attach, Lines, host_ns};
use super::program::Programs;
use super::timeline::Timeline;
use super::verdict::{Expected, Truth};

/// Duration of a fault, milliseconds.
const FAULT_MS: f64 = 20_000.0;

/// Duration of the loop after the fault, milliseconds.
const AFTER_MS: f64 = 10_000.0;

/// Span of the fault in a rehearsal, milliseconds.
const REHEARSAL: Range<f64> = 4_000.0..16_000.0;

/// Limit of the search for a strength, as a multiple of the first guess.
const MAX_STRENGTH_FACTOR: f64 = 1024.0;

/// Steps of the search for a strength.
const BISECTIONS: usize = 7;

/// Smallest cost that a method has to detect, as a share of the healthy pace.
const MIN_SHARE_LOST: f64 = 0.05;

/// A loop to be judged.
#[derive(Debug, Clone, PartialEq)]
pub struct LoopCase {
    /// The loop.
    pub shape: Shape,
    /// Fault, which starts `healthy_ms` after the agent attached.
    pub fault: Option<LoopFault>,
    /// Attachment of the agent.
    pub attach: Attach,
    /// Time of the attachment, milliseconds of the loop.
    pub attach_ms: f64,
    /// Healthy time that the agent observes before the fault, milliseconds.
    pub healthy_ms: f64,
    /// Target duration of a block, milliseconds.
    pub block_ms: f64,
    /// Rank number reported for each simulated rank.
    pub labels: Vec<u32>,
}

/// Result of running a loop.
#[derive(Debug, Clone)]
pub struct Generated {
    /// The recording.
    pub bytes: Vec<u8>,
    /// Ground truth.
    pub truth: Truth,
}

/// End of each step, milliseconds.
type Clock = Vec<f64>;

impl LoopCase {
    /// Name in tables.
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

    /// Sets the fault's strength by rehearsal, so that plain steps lose the target cost.
    #[must_use]
    pub fn calibrated(mut self) -> Self {
        let Some(mut fault) = self.fault.take() else {
            return self;
        };
        fault.when = REHEARSAL;
        if fault.kind != LoopFaultKind::Pulses {
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

    /// Runs the loop, and its healthy twin to compute the cost.
    pub fn generate(&self) -> std::io::Result<Generated> {
        let start = self.attach_ms + self.healthy_ms;
        let end = start + FAULT_MS + AFTER_MS;
        let (clock, lines) = self.play(self.fault.as_ref(), end);
        let bytes = lines.into_bytes(&self.name())?;
        let origin = host_ns(self.first_ms(&clock));
        let when =
            [start, start + FAULT_MS].map(|at| u64::try_from(host_ns(at) - origin).unwrap_or(0));
        let mut truth = Truth::healthy();
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
        match fault.kind {
            _ if cost < MIN_SHARE_LOST => Expected::Harmless(rank),
            LoopFaultKind::Loader | LoopFaultKind::Core | LoopFaultKind::Neighbour => {
                Expected::Rank(rank)
            }
            LoopFaultKind::Pulses => Expected::RankOrCondition(rank),
            LoopFaultKind::Uniform | LoopFaultKind::Network => Expected::Condition,
        }
    }

    /// Start of the recording: the creation of the communicator, or the agent's first observation.
    fn first_ms(&self, clock: &Clock) -> f64 {
        let attached = clock.iter().copied().find(|at| *at >= self.attach_ms);
        match self.attach {
            Attach::FromStart => -6_000.0,
            Attach::TakenOver => attached.unwrap_or(self.attach_ms) - 6_000.0,
            Attach::Late => attached.unwrap_or(self.attach_ms),
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

/// Returns the end of each step of a loop until `end`.
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

/// Returns the ends of the first `n_steps` steps of the healthy loop.
fn twin(shape: &Shape, n_steps: usize) -> Clock {
    let mut timeline = Timeline::new(shape.n_ranks, None);
    let mut programs = Programs::new(shape.clone());
    (0..n_steps)
        .map(|_| timeline.step(programs.next_step()))
        .collect()
}

/// Realistic maximum: ten processes share a core; another process takes 3/4 of the GPU.
const fn max_strength(kind: LoopFaultKind) -> f64 {
    match kind {
        LoopFaultKind::Core => 9.0,
        LoopFaultKind::Neighbour | LoopFaultKind::Uniform => 3.0,
        LoopFaultKind::Network => 50.0,
        LoopFaultKind::Loader | LoopFaultKind::Pulses => f64::INFINITY,
    }
}

/// Finds the strength at which a fault costs its severity: doubles it until it costs enough, then
/// bisects. A fault costs nothing while the hosts run ahead of it.
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
    let max_strength = max_strength(fault.kind);
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

/// Cost of the fault in a rehearsal, as a share of the healthy time of the affected steps.
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
