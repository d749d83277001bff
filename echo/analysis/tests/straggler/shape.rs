//! Shapes of training loops: communicators, and the operations of a step.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::fault::Kind;
use crate::machine::{Family, Op};

/// Shape of a loop.
pub(crate) struct Shape {
    pub(crate) families: Vec<Family>,
    pub(crate) n: usize,
    pub(crate) per_node: usize,
    /// Steps that hosts run ahead at most.
    pub(crate) ahead: usize,
    /// Operations of a step; empty where each step is different.
    pub(crate) ops: Vec<Op>,
    /// Host time of a step as a share of the GPU's.
    pub(crate) host: f64,
    pub(crate) name: String,
}

/// What a kind of loop is made of.
struct Parts {
    families: Vec<Family>,
    ops: Vec<Op>,
    n: usize,
}

pub(crate) fn world(n: usize) -> Vec<Vec<usize>> {
    vec![(0..n).collect()]
}

pub(crate) fn family(groups: Vec<Vec<usize>>) -> Family {
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

pub(crate) fn pick<T: Copy>(rng: &mut ChaCha8Rng, of: &[T]) -> T {
    of[rng.random_range(0..of.len())]
}

/// `count` equal operations in a step of `seconds`, of which `share` is computation.
fn equal(count: u32, seconds: f64, share: f64) -> Vec<Op> {
    let each = seconds / f64::from(count);
    let one = op(0, share * each, (1.0 - share) * each, false);
    vec![one; count as usize]
}

/// `data` groups of `inner` ranks, and `inner` groups of `data` ranks across them.
fn mesh(inner: usize, data: usize) -> (Family, Family) {
    let within = (0..data).map(|d| (0..inner).map(|i| d * inner + i).collect());
    let across = (0..inner).map(|i| (0..data).map(|d| d * inner + i).collect());
    (family(within.collect()), family(across.collect()))
}

fn tensor(step: f64, rng: &mut ChaCha8Rng) -> Parts {
    let (inner, data) = (pick(rng, &[2, 4]), pick(rng, &[2, 4]));
    let (within, across) = mesh(inner, data);
    let mut ops = equal(rng.random_range(8..40), 0.95 * step, 0.95);
    let buckets = rng.random_range(1..6);
    for bucket in 0..buckets {
        let at = ops.len() - ops.len() * bucket / (2 * buckets);
        ops.insert(at, op(1, 0.0, 0.05 * step / buckets as f64, true));
    }
    Parts {
        families: vec![within, across],
        ops,
        n: inner * data,
    }
}

/// Forward and backward of all microbatches, hop by hop; only the first and the last transfer of a
/// stage is not grouped.
fn pipeline(step: f64, rng: &mut ChaCha8Rng) -> Parts {
    let (stages, data) = (pick(rng, &[2, 3, 4]), pick(rng, &[2, 4]));
    let hops = stages - 1;
    let pair = |d: usize, s: usize| vec![d * stages + s, d * stages + s + 1];
    let pairs = (0..data).flat_map(|d| (0..hops).map(move |s| pair(d, s)));
    let mut transfers = family(pairs.collect());
    transfers.is_transfer = true;
    let micro: u32 = pick(rng, &[4, 8]);
    let part = step / (2.0 * f64::from(micro));
    let mut ops = Vec::new();
    for forward in [true, false] {
        for number in 0..micro {
            let single = if forward { 0 } else { micro - 1 };
            for hop in 0..hops {
                let s = if forward { hop } else { hops - 1 - hop };
                ops.extend((0..data).map(|d| Op {
                    group: Some(d * hops + s),
                    is_fused: number != single,
                    ..op(0, part, 0.02 * part, false)
                }));
            }
        }
    }
    ops.push(op(1, 0.02 * step, 0.03 * step, false));
    Parts {
        families: vec![transfers, mesh(stages, data).1],
        ops,
        n: stages * data,
    }
}

fn parts(kind: Kind, step: f64, n: usize, rng: &mut ChaCha8Rng) -> Parts {
    let flat = |ops: Vec<Op>, n: usize| Parts {
        families: vec![family(world(n))],
        ops,
        n,
    };
    match kind {
        Kind::LocalSgd => {
            let steps = pick(rng, &[8.0, 16.0, 32.0]);
            flat(vec![op(0, steps * step, 0.004, false)], n)
        }
        Kind::Experts => {
            let n = pick(rng, &[4, 8]);
            let count = rng.random_range(60..160);
            flat(equal(count, rng.random_range(0.04..0.08), 0.8), n)
        }
        Kind::Tensor => tensor(step, rng),
        Kind::Pipeline => pipeline(step, rng),
        Kind::Reinforcement => {
            let data = pick(rng, &[2, 4]);
            Parts {
                families: vec![mesh(2, data).0, family(world(2 * data))],
                ops: Vec::new(),
                n: 2 * data,
            }
        }
        Kind::Fsdp => flat(equal(rng.random_range(16..60), step, 0.85), n),
        _ => {
            let count = rng.random_range(4..24);
            let each = step / f64::from(count);
            let mut ops = vec![op(0, 0.35 * step, 0.1 * each, true)];
            ops.extend(vec![
                op(0, 0.65 * each, 0.3 * each, true);
                count as usize - 1
            ]);
            flat(ops, n)
        }
    }
}

/// Shape for a kind of loop; kinds of faults run in one of the plain loops.
pub(crate) fn shape(kind: Kind, rng: &mut ChaCha8Rng) -> Shape {
    let plain = pick(rng, &[Kind::Ddp, Kind::Fsdp, Kind::Graphs]);
    let kind = if kind.is_loop() { kind } else { plain };
    let step = rng.random_range(0.02..0.2);
    let ahead = pick(rng, &[1, 2, 3]);
    let n = pick(rng, &[2, 4, 8, 16]);
    let most = if kind == Kind::Pipeline { 0.7 } else { 1.15 };
    let host = rng.random_range(0.3..most);
    let Parts { families, ops, n } = parts(kind, step, n, rng);
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
        let own: f64 = tokens * rng.random_range(0.9..1.1);
        let one = Op {
            group: Some(group),
            ..op(0, 0.003, 0.0003, false)
        };
        ops.extend(vec![one; own as usize]);
    }
    ops.extend(vec![op(1, 0.02, 0.004, true); 12]);
    ops
}

impl Shape {
    /// Operations of the next step.
    pub(crate) fn step(&self, rng: &mut ChaCha8Rng) -> Vec<Op> {
        if self.ops.is_empty() {
            rollout(self, rng)
        } else {
            self.ops.clone()
        }
    }

    /// Share of the ranks that take part in an operation.
    fn part(&self, op: &Op) -> f64 {
        let groups = self.families[op.family].groups.len() as f64;
        if op.group.is_some() {
            1.0 / groups
        } else {
            1.0
        }
    }

    /// Length of these operations without any fault, and their number per rank.
    pub(crate) fn measure(&self, ops: &[Op]) -> (f64, f64) {
        let seconds = ops
            .iter()
            .map(|op| self.part(op) * (op.compute + op.transfer));
        let count = ops.iter().map(|op| self.part(op));
        (seconds.sum(), count.sum())
    }

    /// Sets block lengths so that a block lasts about `seconds`.
    pub(crate) fn set_blocks(&mut self, ops: &[Op], step: f64, seconds: f64) {
        for index in 0..self.families.len() {
            let own = ops.iter().filter(|op| op.family == index);
            let count: f64 = own.map(|op| self.part(op)).sum();
            let length = (count / step * seconds).log2().floor().max(0.0);
            self.families[index].k = length as u32;
        }
    }
}
