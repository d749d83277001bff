//! Programs of the ranks, step by step, drawn once: a loop with a fault and its healthy twin do the
//! same work.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::kind::{Kind, Shape};
use super::pipeline;
use super::step::{Action, Function};
use super::writer::Writer;
use crate::random::{Purpose, stream};

/// Elements of a gradient bucket.
const BUCKET: u64 = 7_087_872;

/// Writes the programs of a loop, step by step.
#[derive(Debug)]
pub struct Programs {
    shape: Shape,
    step: u32,
    /// Random numbers shared by all ranks.
    job: ChaCha8Rng,
    /// Random numbers of each rank.
    own: Vec<ChaCha8Rng>,
    /// Rank whose host is the slow one, and the step at which that ends.
    turn: (u32, u32),
}

/// Part of a step that all ranks share.
#[derive(Debug, Clone)]
struct Common {
    micro_steps: u32,
    scale: f64,
    counts: Vec<u64>,
    turn: u32,
}

impl Programs {
    /// Creates the programs of a loop.
    pub fn new(shape: Shape) -> Self {
        let own = |rank: u32| {
            stream(
                shape.seed.wrapping_add(u64::from(rank) << 32),
                Purpose::Work,
            )
        };
        Self {
            step: 0,
            job: stream(shape.seed, Purpose::Schedule),
            own: (0..shape.n_ranks).map(own).collect(),
            turn: (0, 0),
            shape,
        }
    }

    /// Returns the next step of each rank.
    pub fn next_step(&mut self) -> Vec<Vec<Action>> {
        let common = self.common();
        let step = self.step;
        self.step += 1;
        let shape = &self.shape;
        let write = |(rng, rank): (&mut ChaCha8Rng, u32)| {
            let mut writer = Writer::new(shape, rng, rank, step);
            if shape.turns > 0.0 {
                writer.take_turn(rank == common.turn);
            }
            match shape.kind {
                Kind::Fsdp => writer.sharded(),
                Kind::Pipeline => pipeline::write(&mut writer),
                Kind::Inference => writer.request(&common),
                Kind::Graphs => writer.graph(),
                _ => writer.replicated(&common),
            }
            writer.extras();
            writer.actions
        };
        self.own.iter_mut().zip(0..).map(write).collect()
    }

    fn common(&mut self) -> Common {
        let shape = &self.shape;
        let (fewest, most) = shape.micro_steps;
        let micro_steps = self.job.random_range(fewest..=most);
        let sizes = [4_096, 65_536, 131_072, 1_048_576, BUCKET];
        let n_ops = self.job.random_range(2..=shape.n_ops.max(3));
        let draw = |_| {
            sizes
                .get(self.job.random_range(0..sizes.len()))
                .copied()
                .unwrap_or(BUCKET)
        };
        let counts = (0..n_ops).map(draw).collect();
        let scale = self.job.random_range(0.5..1.5);
        let turn_s: f64 = self.job.random_range(2.0..6.0);
        let alternates = self.job.random_bool(0.8);
        let (mut turn, mut until) = self.turn;
        if self.step >= until {
            turn = (turn + u32::from(alternates)) % shape.n_ranks;
            let mut steps = 0;
            while f64::from(steps) * shape.step_ms < turn_s * 1e3 {
                steps += 1;
            }
            until = self.step + steps;
        }
        self.turn = (turn, until);
        Common {
            micro_steps,
            scale,
            counts,
            turn,
        }
    }
}

impl Writer<'_> {
    fn share_of_host(&self) -> f64 {
        if self.shape.kind == Kind::HostBoundPair {
            0.8
        } else {
            0.3
        }
    }

    /// Writes a step of replicas that add up their gradients in one or more micro steps.
    fn replicated(&mut self, common: &Common) {
        let shape = self.shape;
        let (fewest, most) = shape.micro_steps;
        let usual = f64::from(fewest + most) / 2.0;
        let length = if shape.kind == Kind::VariableWork {
            self.length()
        } else {
            1.0
        };
        let gpu = length / usual
            * if shape.kind == Kind::HostBoundPair {
                0.4
            } else {
                0.9
            };
        let host = self.share_of_host() / usual;
        for micro in 1..=common.micro_steps {
            self.load(0.15 * host);
            self.host(0.35 * host);
            self.kernel(0.3 * gpu);
            if micro < common.micro_steps {
                self.host(0.4 * host);
                self.kernel(0.6 * gpu);
                self.push(Action::Synchronize);
                continue;
            }
            let n = f64::from(shape.n_ops);
            for bucket in 0..shape.n_ops {
                self.host(0.4 * host / n);
                self.kernel(0.6 * gpu / n);
                let count = if bucket == 0 { BUCKET / 3 } else { BUCKET };
                self.exchange(Function::AllReduce, count, 0.08 / n);
            }
        }
        self.push(Action::Join);
        if shape.kind == Kind::Clipping {
            self.exchange(Function::AllReduce, 1, 0.001);
            self.push(Action::Join);
            self.push(Action::Synchronize);
        }
        self.host(0.1 * host);
        self.kernel(0.08 * gpu);
        self.end();
    }

    /// Writes a step with sharded parameters, gathered one layer ahead.
    fn sharded(&mut self) {
        let layers = self.shape.n_ops;
        let n = f64::from(layers);
        self.load(0.04);
        for pass in [0.3, 0.55] {
            self.operation(Function::AllGather, BUCKET / 2, 0.03 / n, false);
            for layer in 0..layers {
                self.push(Action::Join);
                self.host(0.12 / n);
                if layer + 1 < layers {
                    self.operation(Function::AllGather, BUCKET / 2, 0.03 / n, false);
                }
                self.kernel(pass / n);
                if pass > 0.5 {
                    self.exchange(Function::ReduceScatter, BUCKET / 2, 0.03 / n);
                }
            }
        }
        self.push(Action::Join);
        self.exchange(Function::AllReduce, 100, 0.001);
        self.push(Action::Join);
        self.kernel(0.05);
        self.end();
    }

    /// Writes an inference request, or one token of it.
    fn request(&mut self, common: &Common) {
        let n = f64::from(self.shape.n_ops);
        self.load(0.1);
        for count in &common.counts {
            self.host(0.1 / n);
            self.kernel(0.8 * common.scale / n);
            self.exchange(Function::AllReduce, *count, 0.1 / n);
            self.push(Action::Join);
        }
        self.push(Action::Synchronize);
    }

    /// Writes a step that is one CUDA graph.
    fn graph(&mut self) {
        let n = f64::from(self.shape.n_ops);
        self.load(0.05);
        self.push(Action::LaunchGraph);
        self.kernel(0.3);
        for _ in 0..self.shape.n_ops {
            self.kernel(0.5 / n);
            self.exchange(Function::AllReduce, BUCKET, 0.08 / n);
        }
        self.push(Action::Join);
        self.kernel(0.08);
        self.push(Action::Synchronize);
    }

    /// Writes the end of a step: the host reads the loss, or runs one step ahead.
    fn end(&mut self) {
        self.push(Action::MarkStep);
        let is_ahead = matches!(self.shape.kind, Kind::DdpLogging | Kind::HostBoundPair);
        self.push(if is_ahead {
            Action::AwaitStep(1)
        } else {
            Action::Synchronize
        });
    }

    /// Writes log lines, evaluation and checkpoints.
    fn extras(&mut self) {
        if self.is_every(self.shape.log_every) {
            self.exchange(Function::AllGather, 2, 0.0);
            self.push(Action::Synchronize);
            self.push(Action::Host(1.5));
        }
        if self.is_every(self.shape.eval_every) {
            for _ in 0..12 {
                self.load(0.05);
                self.host(0.1);
                self.kernel(0.3);
                self.exchange(Function::AllGather, 16, 0.0);
                self.exchange(Function::AllGather, 2, 0.0);
                self.push(Action::Synchronize);
            }
        }
        if self.is_every(self.shape.save_every) {
            self.push(Action::Synchronize);
            if self.rank == 0 {
                self.push(Action::Host(300.0));
            }
            self.exchange(Function::Broadcast, 268, 0.0);
            self.push(Action::Synchronize);
        }
    }
}
