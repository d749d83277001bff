//! Kinds of training loops, with noise and faults.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

use crate::machine::{Family, Machine, Op, Speed};
use crate::recording::Recording;
use crate::score::Truth;

/// Kind of a loop or of its fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Ddp,
    Fsdp,
    LocalSgd,
    Experts,
    Pipeline,
    Tensor,
    Reinforcement,
    Graphs,
    Halves,
    Intermittent,
    Pauses,
    FirstStep,
    Growing,
    Checkpoint,
    TwoCulprits,
    Alternating,
    Uniform,
    Network,
}

pub(crate) const KINDS: [Kind; 18] = [
    Kind::Ddp,
    Kind::Fsdp,
    Kind::LocalSgd,
    Kind::Experts,
    Kind::Pipeline,
    Kind::Tensor,
    Kind::Reinforcement,
    Kind::Graphs,
    Kind::Halves,
    Kind::Intermittent,
    Kind::Pauses,
    Kind::FirstStep,
    Kind::Growing,
    Kind::Checkpoint,
    Kind::TwoCulprits,
    Kind::Alternating,
    Kind::Uniform,
    Kind::Network,
];

/// Cause of the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The data loader is late.
    Sleep,
    /// The host is slow at everything.
    Host,
    /// The GPU is slow.
    Gpu,
}

/// Generated job.
#[derive(Debug)]
pub(crate) struct Generated {
    pub(crate) recording: Recording,
    pub(crate) truth: Truth,
    pub(crate) cause: Cause,
    /// Share of the time lost during the fault.
    pub(crate) loss: f64,
    /// GPU time lost by the fault, seconds.
    pub(crate) lost_gpu_s: f64,
    /// Begin and end of the fault, seconds.
    pub(crate) fault: (f64, f64),
    pub(crate) about: String,
}

/// Noise of all ranks.
struct Noise {
    cv: f64,
    rho: f64,
    states: Vec<f64>,
    biases: Vec<f64>,
    /// Wander of the whole job: standard deviation, time constant in seconds, state.
    wander: (f64, f64, f64),
    pauses: f64,
    /// Wander of each host: standard deviation, time constant in seconds, states. Where hosts set the
    /// pace, ranks are last by turns.
    turns: (f64, f64, Vec<f64>),
    /// Every so many steps all ranks do something else, for so many steps: logging, evaluation.
    extra: (u64, f64),
}

fn normal(rng: &mut ChaCha8Rng) -> f64 {
    StandardNormal.sample(rng)
}

impl Noise {
    fn new(n: usize, rng: &mut ChaCha8Rng) -> Self {
        let bias = rng.random_range(0.003..0.01);
        Self {
            cv: rng.random_range(0.005..0.03),
            rho: rng.random_range(0.0..0.9),
            states: (0..n).map(|_| normal(rng)).collect(),
            biases: (0..n).map(|_| bias * normal(rng)).collect(),
            wander: (
                rng.random_range(0.0..0.02),
                rng.random_range(5.0..30.0),
                0.0,
            ),
            pauses: rng.random_range(0.0..0.005),
            turns: (
                rng.random_range(0.0..0.06),
                rng.random_range(2.0..12.0),
                (0..n).map(|_| normal(rng)).collect(),
            ),
            extra: (rng.random_range(50..400), rng.random_range(0.0..3.0)),
        }
    }

    /// Factor of each host in a step of this length.
    fn hosts(&mut self, seconds: f64, rng: &mut ChaCha8Rng) -> Vec<f64> {
        let (sd, tau, states) = &mut self.turns;
        let keep = (-seconds / *tau).exp();
        let sd = *sd;
        let states = states.iter_mut();
        states
            .map(|state| {
                *state = keep * *state + (1.0 - keep * keep).sqrt() * normal(rng);
                (sd * *state).exp()
            })
            .collect()
    }

    /// Factor of each rank in a step of this length.
    fn step(&mut self, seconds: f64, rng: &mut ChaCha8Rng) -> Vec<f64> {
        let (sd, tau, state) = &mut self.wander;
        let keep = (-seconds / *tau).exp();
        *state = keep * *state + (1.0 - keep * keep).sqrt() * normal(rng);
        let common = *sd * *state;
        let (rho, cv, pauses) = (self.rho, self.cv, self.pauses);
        let ranks = self.states.iter_mut().zip(&self.biases);
        ranks
            .map(|(state, bias)| {
                *state = rho * *state + (1.0 - rho * rho).sqrt() * normal(rng);
                let pause = if rng.random_bool(pauses) {
                    rng.random_range(0.0..0.4)
                } else {
                    0.0
                };
                (common + bias + cv * *state).exp() + pause
            })
            .collect()
    }
}

/// Shape of a loop: communicators, operations of a step, and hosts.
struct Shape {
    families: Vec<Family>,
    n: usize,
    per_node: usize,
    ahead: usize,
    /// Operations of a step; `None` where each step is different.
    ops: Vec<Op>,
    /// Host time of a step as a share of the GPU's.
    host: f64,
    name: String,
}

fn world(n: usize) -> Vec<Vec<usize>> {
    vec![(0..n).collect()]
}

fn family(groups: Vec<Vec<usize>>) -> Family {
    Family {
        groups,
        is_transfer: false,
        k: 0,
    }
}

fn op(family: usize, compute: f64, transfer: f64, overlaps: bool) -> Op {
    Op {
        family,
        compute,
        transfer,
        overlaps,
        is_fused: false,
        group: None,
    }
}

fn pick<T: Copy>(rng: &mut ChaCha8Rng, of: &[T]) -> T {
    of[rng.random_range(0..of.len())]
}

/// Shape for a kind of loop; kinds of faults run in one of the plain loops.
fn shape(kind: Kind, rng: &mut ChaCha8Rng) -> Shape {
    let loops = [Kind::Ddp, Kind::Fsdp, Kind::Graphs];
    let kind = match kind {
        Kind::Ddp
        | Kind::Fsdp
        | Kind::LocalSgd
        | Kind::Experts
        | Kind::Pipeline
        | Kind::Tensor
        | Kind::Reinforcement
        | Kind::Graphs => kind,
        _ => pick(rng, &loops),
    };
    let step = rng.random_range(0.02..0.2);
    let ahead = pick(rng, &[1, 2, 3]);
    let mut n = pick(rng, &[2, 4, 8, 16]);
    let mut host = rng.random_range(0.3..1.15);
    let (families, ops) = match kind {
        Kind::LocalSgd => {
            let steps = pick(rng, &[8, 16, 32]);
            (
                vec![family(world(n))],
                vec![op(0, steps as f64 * step, 0.004, false)],
            )
        }
        Kind::Experts => {
            n = pick(rng, &[4, 8]);
            let count = rng.random_range(60..160);
            let step = rng.random_range(0.04..0.08);
            let ops = (0..count).map(|_| {
                op(
                    0,
                    0.8 * step / f64::from(count),
                    0.2 * step / f64::from(count),
                    false,
                )
            });
            (vec![family(world(n))], ops.collect())
        }
        Kind::Tensor => {
            let tensor = pick(rng, &[2, 4]);
            let data = pick(rng, &[2, 4]);
            n = tensor * data;
            let across = (0..data).map(|d| (0..tensor).map(|t| d * tensor + t).collect());
            let along = (0..tensor).map(|t| (0..data).map(|d| d * tensor + t).collect());
            let families = vec![family(across.collect()), family(along.collect())];
            let count = rng.random_range(8..40);
            let mut ops: Vec<Op> = (0..count)
                .map(|_| {
                    op(
                        0,
                        0.9 * step / f64::from(count),
                        0.05 * step / f64::from(count),
                        false,
                    )
                })
                .collect();
            let buckets = rng.random_range(1..6);
            for bucket in 0..buckets {
                let at = ops.len() - ops.len() * bucket / (2 * buckets);
                ops.insert(at, op(1, 0.0, 0.05 * step / buckets as f64, true));
            }
            (families, ops)
        }
        Kind::Pipeline => {
            let stages = pick(rng, &[2, 3, 4]);
            let data = pick(rng, &[2, 4]);
            n = stages * data;
            host = rng.random_range(0.3..0.7);
            let id = |d: usize, s: usize| d * stages + s;
            let mut pairs = Vec::new();
            for d in 0..data {
                for s in 0..stages - 1 {
                    pairs.push(vec![id(d, s), id(d, s + 1)]);
                }
            }
            let along = (0..stages).map(|s| (0..data).map(|d| id(d, s)).collect());
            let mut transfers = family(pairs);
            transfers.is_transfer = true;
            let micro = pick(rng, &[4, 8]);
            let part = step / (2.0 * micro as f64);
            let mut ops = Vec::new();
            let per_pipe = stages - 1;
            for forward in [true, false] {
                for number in 0..micro {
                    let is_single = if forward {
                        number == 0
                    } else {
                        number + 1 == micro
                    };
                    for hop in 0..per_pipe {
                        let s = if forward { hop } else { per_pipe - 1 - hop };
                        for d in 0..data {
                            let mut one = op(0, part, 0.02 * part, false);
                            one.group = Some(d * per_pipe + s);
                            one.is_fused = !is_single;
                            ops.push(one);
                        }
                    }
                }
            }
            ops.push(op(1, 0.02 * step, 0.03 * step, false));
            (vec![transfers, family(along.collect())], ops)
        }
        Kind::Reinforcement => {
            let tensor = 2;
            let data = pick(rng, &[2, 4]);
            n = tensor * data;
            let across = (0..data).map(|d| (0..tensor).map(|t| d * tensor + t).collect());
            (vec![family(across.collect()), family(world(n))], Vec::new())
        }
        Kind::Fsdp => {
            let count = rng.random_range(16..60);
            let ops = (0..count).map(|_| {
                op(
                    0,
                    0.85 * step / f64::from(count),
                    0.15 * step / f64::from(count),
                    false,
                )
            });
            (vec![family(world(n))], ops.collect())
        }
        _ => {
            let count = rng.random_range(4..24);
            let mut ops = vec![op(0, 0.35 * step, 0.1 * step / f64::from(count), true)];
            ops.extend((1..count).map(|_| {
                op(
                    0,
                    0.65 * step / f64::from(count),
                    0.3 * step / f64::from(count),
                    true,
                )
            }));
            (vec![family(world(n))], ops)
        }
    };
    Shape {
        families,
        n,
        per_node: n,
        ahead,
        ops,
        host,
        name: format!("{kind:?}"),
    }
}

/// Operations of one step of reinforcement learning: generation of random length, then training.
fn rollout(shape: &Shape, rng: &mut ChaCha8Rng) -> Vec<Op> {
    let mut ops = Vec::new();
    let tokens = rng.random_range(60.0..180.0);
    for group in 0..shape.families[0].groups.len() {
        let own = tokens * rng.random_range(0.9..1.1);
        for _ in 0..own as usize {
            let mut one = op(0, 0.003, 0.0003, false);
            one.group = Some(group);
            ops.push(one);
        }
    }
    for _ in 0..12 {
        ops.push(op(1, 0.02, 0.004, true));
    }
    ops
}

fn exponent(rate: f64, seconds: f64) -> u32 {
    (rate * seconds).log2().floor().max(0.0) as u32
}

/// Fault of a job, as it is at each time.
struct Fault {
    kind: Kind,
    cause: Cause,
    ranks: Vec<usize>,
    /// Share of the healthy step that it adds.
    severity: f64,
    begin: f64,
    end: f64,
}

impl Fault {
    /// Excess of each rank at an instant, as a share of the step.
    fn excess(&self, now: f64, step: u64, rank: usize) -> f64 {
        if now < self.begin || now >= self.end {
            return 0.0;
        }
        let since = now - self.begin;
        let at = self.ranks.iter().position(|one| *one == rank);
        let Some(at) = at else {
            return 0.0;
        };
        match self.kind {
            Kind::Intermittent if since % 12.0 >= 4.0 => 0.0,
            Kind::Pauses if step % 10 != 3 => 0.0,
            Kind::Pauses => 10.0 * self.severity,
            Kind::Growing => self.severity * (since / (self.end - self.begin)),
            Kind::Alternating if (since / 3.0) as usize % self.ranks.len() != at => 0.0,
            _ => self.severity,
        }
    }
}

fn truth(kind: Kind, ranks: &[usize], has_fault: bool) -> Truth {
    if !has_fault {
        return Truth::Nothing;
    }
    match kind {
        Kind::Halves => Truth::Node(1),
        Kind::FirstStep => Truth::Late(ranks[0] as u32),
        Kind::Uniform | Kind::Network => Truth::Uniform,
        Kind::TwoCulprits | Kind::Alternating => {
            let ranks: Vec<u32> = ranks.iter().map(|rank| *rank as u32).collect();
            Truth::Ranks(ranks.leak())
        }
        _ => Truth::Rank(ranks[0] as u32),
    }
}

/// Generates a job. Checkpoint jobs have a fault in every second seed.
pub(crate) fn generate(kind: Kind, seed: u64, healthy: Option<f64>) -> Generated {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ (kind as u64) << 32);
    let mut shape = shape(kind, &mut rng);
    if matches!(kind, Kind::Halves | Kind::TwoCulprits | Kind::Alternating) {
        shape.n = pick(&mut rng, &[8, 16]);
        shape.families = vec![family(world(shape.n))];
        shape.per_node = shape.n;
        if kind == Kind::Halves {
            shape.per_node = shape.n / 2;
        }
    }
    let n = shape.n;
    let causes = match kind {
        Kind::Pauses | Kind::Graphs => vec![Cause::Sleep],
        Kind::Pipeline => vec![Cause::Host, Cause::Gpu],
        _ => vec![Cause::Sleep, Cause::Host, Cause::Gpu],
    };
    let begin = match kind {
        Kind::FirstStep => 0.0,
        Kind::Growing => 60.0,
        _ => rng.random_range(30.0..80.0),
    };
    let length = match kind {
        Kind::Growing => 240.0,
        Kind::Intermittent => 72.0,
        _ => 60.0,
    };
    let first = rng.random_range(0..n);
    let ranks = match kind {
        Kind::Uniform | Kind::Network => (0..n).collect(),
        Kind::Halves => (n / 2..n).collect(),
        Kind::TwoCulprits | Kind::Alternating => {
            vec![first, (first + 1 + rng.random_range(0..n - 1)) % n]
        }
        _ => vec![first],
    };
    let mut ranks: Vec<usize> = ranks;
    ranks.sort_unstable();
    ranks.dedup();
    let has_fault = healthy.is_none() && (kind != Kind::Checkpoint || seed % 2 == 0);
    let fault = Fault {
        kind,
        cause: if kind == Kind::Network {
            Cause::Gpu
        } else {
            pick(&mut rng, &causes)
        },
        ranks,
        severity: if has_fault {
            rng.random_range(0.2..1.2)
        } else {
            0.0
        },
        begin,
        end: begin + length,
    };
    let until = healthy.unwrap_or(fault.end + 15.0);
    run(kind, &mut shape, &fault, until, &mut rng)
}

fn run(
    kind: Kind,
    shape: &mut Shape,
    fault: &Fault,
    until: f64,
    rng: &mut ChaCha8Rng,
) -> Generated {
    let has_fault = fault.severity > 0.0;
    let n = shape.n;
    let ops = if shape.ops.is_empty() {
        rollout(shape, rng)
    } else {
        shape.ops.clone()
    };
    let healthy: f64 = ops.iter().map(|op| op.compute + op.transfer).sum::<f64>()
        / if kind == Kind::Pipeline || shape.name == "Reinforcement" {
            shape.families[0].groups.len() as f64
        } else {
            1.0
        };
    let seconds = rng.random_range(0.25..1.0);
    for index in 0..shape.families.len() {
        let groups = shape.families[index].groups.len();
        let own = ops.iter().filter(|op| op.family == index);
        let count: f64 = own
            .map(|op| {
                if op.group.is_some() {
                    1.0 / groups as f64
                } else {
                    1.0
                }
            })
            .sum();
        shape.families[index].k = exponent(count / healthy, seconds);
    }
    let per_rank = ops.iter().filter(|op| op.group.is_none()).count() as f64
        + ops.iter().filter(|op| op.group.is_some()).count() as f64
            / shape.families[0].groups.len() as f64;
    let mut noise = Noise::new(n, rng);
    let mut machine = Machine::new(shape.families.clone(), n, shape.per_node, shape.ahead);
    let checkpoint = (rng.random_range(20.0..40.0) / healthy) as u64;
    let saving = rng.random_range(0.3..1.2);
    let (mut step, mut before) = (0, 0.0);
    let mut paces: Vec<(f64, f64, f64)> = Vec::new();
    while machine.now() < until {
        let now = machine.now();
        let factors = noise.step(healthy, rng);
        let hosts = noise.hosts(healthy, rng);
        let each = shape.host * healthy / per_rank;
        let mut speed = Speed {
            gpu: factors.clone(),
            host: hosts.iter().map(|factor| factor * each).collect(),
            pause: vec![0.0; n],
            transfer: 1.0,
        };
        for rank in 0..n {
            let excess = fault.excess(now, step, rank);
            match fault.cause {
                _ if kind == Kind::Network => speed.transfer = 1.0 + 8.0 * excess,
                Cause::Sleep => {
                    let idle = if excess > 0.0 {
                        (1.0 - shape.host).max(0.0)
                    } else {
                        0.0
                    };
                    speed.pause[rank] = healthy * (excess + idle);
                }
                Cause::Host => {
                    let idle = if excess > 0.0 {
                        (1.0 - shape.host).max(0.0)
                    } else {
                        0.0
                    };
                    speed.host[rank] += healthy * (excess + idle) / per_rank;
                }
                Cause::Gpu => speed.gpu[rank] *= 1.0 + excess,
            }
        }
        if step % noise.extra.0 == noise.extra.0 - 1 {
            for pause in &mut speed.pause {
                *pause += noise.extra.1 * healthy;
            }
        }
        if kind == Kind::Checkpoint && step % checkpoint == checkpoint - 1 {
            speed.pause[0] += saving;
        }
        let ops = if shape.ops.is_empty() {
            rollout(shape, rng)
        } else {
            shape.ops.clone()
        };
        machine.step(&ops, &speed);
        let work: f64 = if shape.ops.is_empty() {
            ops.len() as f64
        } else {
            1.0
        };
        paces.push((now, machine.now() - before, work));
        before = machine.now();
        step += 1;
    }
    let rate = |from: f64, to: f64| {
        let steps = paces.iter().filter(|pace| pace.0 >= from && pace.0 < to);
        let (time, work) = steps.fold((0.0, 0.0), |sum, pace| (sum.0 + pace.1, sum.1 + pace.2));
        (time / work, time)
    };
    let (usual, _) = if kind == Kind::FirstStep {
        rate(fault.end + 2.0, until)
    } else {
        rate(5.0, fault.begin)
    };
    let (current, time) = rate(fault.begin, fault.end);
    let loss = if has_fault {
        1.0 - usual / current
    } else {
        0.0
    };
    Generated {
        recording: Recording {
            k: 0,
            items: machine.finish(),
        },
        truth: truth(kind, &fault.ranks, has_fault),
        cause: fault.cause,
        loss,
        lost_gpu_s: n as f64 * time * loss,
        fault: (fault.begin, fault.end),
        about: format!(
            "{} n={n} {:?} {:?} severity {:.2} loss {loss:.2} step {:.0} ms host {:.2} at {:.0}-{:.0} s, cv {:.3} rho {:.2} wander {:.3}",
            shape.name,
            fault.cause,
            fault.ranks,
            fault.severity,
            healthy * 1e3,
            shape.host,
            fault.begin,
            fault.end,
            noise.cv,
            noise.rho,
            noise.wander.0
        ),
    }
}
