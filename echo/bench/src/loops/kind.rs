//! Kinds of loops, and the parameters that a seed draws for one.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::random::{Purpose, stream};

/// A kind of loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Data parallel, gradients in buckets, the loss read back every step.
    Ddp,
    /// The same with the host a step ahead, and with log lines, evaluation and checkpoints.
    DdpLogging,
    /// Sharded parameters: all-gathers before the layers, reduce-scatters after them.
    Fsdp,
    /// Several micro steps per exchange of gradients.
    Accumulation,
    /// The same with a random number of micro steps.
    RandomAccumulation,
    /// An all-reduce of the norm before the optimizer, read back by the host.
    Clipping,
    /// Random sequence lengths for each step and rank.
    VariableWork,
    /// Stages that send and receive, one forward and one backward at a time.
    Pipeline,
    /// Two ranks whose hosts alternate, every few seconds, in being the slower one.
    HostBoundPair,
    /// Requests of random size: operations without a period.
    Inference,
    /// Each step is one CUDA graph: GPU rows, hardly any calls.
    Graphs,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 11] = [
        Self::Ddp,
        Self::DdpLogging,
        Self::Fsdp,
        Self::Accumulation,
        Self::RandomAccumulation,
        Self::Clipping,
        Self::VariableWork,
        Self::Pipeline,
        Self::HostBoundPair,
        Self::Inference,
        Self::Graphs,
    ];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ddp => "ddp",
            Self::DdpLogging => "ddp with logs and evaluation",
            Self::Fsdp => "fsdp",
            Self::Accumulation => "accumulation",
            Self::RandomAccumulation => "accumulation of random length",
            Self::Clipping => "gradient clipping",
            Self::VariableWork => "variable work",
            Self::Pipeline => "pipeline",
            Self::HostBoundPair => "host-bound pair",
            Self::Inference => "inference",
            Self::Graphs => "cuda graphs",
        }
    }
}

/// Parameters of a loop.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// Kind.
    pub kind: Kind,
    /// Ranks, or stages.
    pub n_ranks: u32,
    /// Approximate duration of a step, milliseconds.
    pub step_ms: f64,
    /// Exchanges in a step: buckets, layers or microbatches.
    pub n_ops: u32,
    /// Fewest and most micro steps in a step.
    pub micro_steps: (u32, u32),
    /// Coefficient of variation of each piece of work.
    pub noise: f64,
    /// Slowdown of the host whose turn it is, as a share; 0 for none.
    pub turns: f64,
    /// Steps between log lines; 0 for none.
    pub log_every: u32,
    /// Steps between evaluations; 0 for none.
    pub eval_every: u32,
    /// Steps between checkpoints; 0 for none.
    pub save_every: u32,
    /// Steps to warm up, each slower than the next.
    pub warm_up: u32,
    /// Random seed.
    pub seed: u64,
}

impl Shape {
    /// Draws the parameters of a loop.
    pub fn draw(kind: Kind, seed: u64) -> Self {
        let mut rng = stream(seed, Purpose::Shape);
        let rng = &mut rng;
        let (n_ranks, step_ms, n_ops) = size(kind, rng);
        let is_pair = kind == Kind::HostBoundPair;
        let is_long = kind == Kind::DdpLogging;
        let logs = !matches!(kind, Kind::Ddp | Kind::Inference | Kind::Graphs);
        let micro_steps = match kind {
            Kind::Accumulation => choose(rng, &[(4, 4), (2, 2), (8, 8)]),
            Kind::RandomAccumulation => Some((1, rng.random_range(3..=6))),
            _ => None,
        };
        let log_every = choose(rng, &[10, 25, 50]).filter(|_| logs);
        Self {
            kind,
            n_ranks,
            step_ms,
            n_ops,
            micro_steps: micro_steps.unwrap_or((1, 1)),
            noise: rng.random_range(0.005..0.04),
            turns: rng.random_range(0.05..0.25) * f64::from(u8::from(is_pair)),
            log_every: log_every.unwrap_or(0),
            eval_every: if is_long {
                rng.random_range(90..180)
            } else {
                0
            },
            save_every: if is_long {
                rng.random_range(120..240)
            } else {
                0
            },
            warm_up: rng.random_range(10..30),
            seed,
        }
    }
}

/// Ranks, duration of a step in milliseconds, and exchanges in it.
fn size(kind: Kind, rng: &mut ChaCha8Rng) -> (u32, f64, u32) {
    let n_ranks = match kind {
        Kind::HostBoundPair => Some(2),
        Kind::Pipeline => Some(rng.random_range(2..=4)),
        _ => choose(rng, &[2, 2, 4, 4, 8]),
    };
    let n_ranks = n_ranks.unwrap_or(2);
    let step_ms = match kind {
        Kind::HostBoundPair => rng.random_range(25.0..60.0),
        Kind::Fsdp => rng.random_range(40.0..400.0),
        Kind::Accumulation | Kind::RandomAccumulation | Kind::Pipeline => {
            rng.random_range(60.0..300.0)
        }
        _ => rng.random_range(20.0..250.0),
    };
    let n_ops = match kind {
        Kind::Fsdp | Kind::Pipeline => rng.random_range(4..=8),
        _ => rng.random_range(3..=10),
    };
    // Few operations in short steps of many ranks, or one case would take as long as all others.
    let is_fast = step_ms < 60.0 && n_ranks > 2;
    (n_ranks, step_ms, if is_fast { 3 } else { n_ops })
}

/// Picks one of the values at random.
pub fn choose<T: Copy>(rng: &mut ChaCha8Rng, values: &[T]) -> Option<T> {
    values
        .get(rng.random_range(0..values.len().max(1)))
        .copied()
}
