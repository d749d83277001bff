//! Generated jobs: a shape, noise and a fault.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::fault::{Cause, Fault, Kind, truth};
use crate::machine::{Machine, Speed};
use crate::noise::Noise;
use crate::recording::Recording;
use crate::score::Truth;
use crate::shape::{Shape, family, pick, shape, world};

/// Generated job.
pub(crate) struct Generated {
    pub(crate) recording: Recording,
    pub(crate) truth: Truth,
    pub(crate) cause: Cause,
    /// Share of the time lost during the fault.
    pub(crate) loss: f64,
    /// GPU time lost by the fault, seconds.
    pub(crate) lost_gpu_s: f64,
    /// Begin of the fault, seconds.
    pub(crate) begin_s: f64,
    pub(crate) about: String,
}

/// Ranks with the fault.
fn faulty(kind: Kind, n: usize, rng: &mut ChaCha8Rng) -> Vec<usize> {
    let first = rng.random_range(0..n);
    let mut ranks = match kind {
        Kind::Uniform | Kind::Network => (0..n).collect(),
        Kind::Halves => (n / 2..n).collect(),
        Kind::TwoCulprits | Kind::Alternating => {
            vec![first, (first + 1 + rng.random_range(0..n - 1)) % n]
        }
        _ => vec![first],
    };
    ranks.sort_unstable();
    ranks
}

fn fault(kind: Kind, seed: u64, n: usize, rng: &mut ChaCha8Rng) -> Fault {
    let causes: &[Cause] = match kind {
        Kind::Pauses | Kind::Graphs => &[Cause::Sleep],
        Kind::Pipeline => &[Cause::Host, Cause::Gpu],
        Kind::Network => &[Cause::Gpu],
        _ => &[Cause::Sleep, Cause::Host, Cause::Gpu],
    };
    let begin = match kind {
        Kind::FirstStep => 0.0,
        Kind::Growing => 60.0,
        Kind::Small => 180.0,
        _ => rng.random_range(30.0..80.0),
    };
    let length = match kind {
        Kind::Growing | Kind::Small => 240.0,
        Kind::Intermittent => 72.0,
        _ => 60.0,
    };
    // Every second job with checkpoints is healthy.
    let is_healthy = kind == Kind::Checkpoint && !seed.is_multiple_of(2);
    let severity = match kind {
        Kind::Small => rng.random_range(0.04..0.3),
        _ => rng.random_range(0.2..1.2),
    };
    Fault {
        kind,
        ranks: faulty(kind, n, rng),
        cause: pick(rng, causes),
        severity: if is_healthy { 0.0 } else { severity },
        begin,
        end: begin + length,
    }
}

/// Generates a job; a healthy one of so many seconds where that is given.
pub(crate) fn generate(kind: Kind, seed: u64, healthy_s: Option<f64>) -> Generated {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ ((kind as u64) << 32));
    let mut shape = shape(kind, &mut rng);
    if matches!(kind, Kind::Halves | Kind::TwoCulprits | Kind::Alternating) {
        shape.n = pick(&mut rng, &[8, 16]);
        shape.families = vec![family(world(shape.n))];
        let nodes = if kind == Kind::Halves { 2 } else { 1 };
        shape.per_node = shape.n / nodes;
    }
    let mut fault = fault(kind, seed, shape.n, &mut rng);
    if healthy_s.is_some() {
        fault.severity = 0.0;
    }
    let until = healthy_s.unwrap_or(fault.end + 15.0);
    run(shape, &fault, until, &mut rng)
}

/// Step as the clock of the job sees it: begin, length, amount of work.
type Step = (f64, f64, f64);

/// Mean time per work between two instants, and the whole time, seconds.
fn pace(steps: &[Step], from: f64, to: f64) -> (f64, f64) {
    let within = steps.iter().filter(|step| step.0 >= from && step.0 < to);
    let (time, work) = within.fold((0.0, 0.0), |sum, step| (sum.0 + step.1, sum.1 + step.2));
    (time / work, time)
}

fn run(mut shape: Shape, fault: &Fault, until: f64, rng: &mut ChaCha8Rng) -> Generated {
    let n = shape.n;
    let first = shape.step(rng);
    let (healthy, per_rank) = shape.measure(&first);
    let seconds = rng.random_range(0.25..1.0);
    shape.set_blocks(&first, healthy, seconds);
    let mut noise = Noise::new(n, rng);
    let mut machine = Machine::new(shape.families.clone(), n, shape.per_node, shape.ahead);
    let every = (rng.random_range(20.0..40.0) / healthy) as u64;
    let saving = rng.random_range(0.3..1.2);
    let mut steps: Vec<Step> = Vec::new();
    for step in 0.. {
        let now = machine.now();
        if now >= until {
            break;
        }
        let base = (shape.host, healthy, per_rank);
        let mut speed = speed(base, &mut noise, rng);
        apply(fault, &mut speed, (now, step), base);
        if step % noise.extra.0 == noise.extra.0 - 1 {
            for pause in &mut speed.pause {
                *pause += noise.extra.1 * healthy;
            }
        }
        if fault.kind == Kind::Checkpoint && step % every == every - 1 {
            speed.pause[0] += saving;
        }
        let ops = shape.step(rng);
        machine.step(&ops, &speed);
        let work = if shape.ops.is_empty() { ops.len() } else { 1 };
        steps.push((now, machine.now() - now, work as f64));
    }
    finish(shape, fault, (machine, steps, until), &noise)
}

/// What the job's own clock says of the fault.
fn finish(
    shape: Shape,
    fault: &Fault,
    (machine, steps, until): (Machine, Vec<Step>, f64),
    noise: &Noise,
) -> Generated {
    let n = shape.n;
    let usual = if fault.kind == Kind::FirstStep {
        pace(&steps, fault.end + 2.0, until).0
    } else {
        pace(&steps, 5.0, fault.begin).0
    };
    let (current, time) = pace(&steps, fault.begin, fault.end);
    let has_fault = fault.severity > 0.0;
    let loss = if has_fault {
        1.0 - usual / current
    } else {
        0.0
    };
    Generated {
        recording: Recording {
            k: 0,
            items: machine.finish(),
            is_kept: false,
        },
        truth: truth(fault.kind, &fault.ranks, has_fault),
        cause: fault.cause,
        begin_s: fault.begin,
        loss,
        lost_gpu_s: n as f64 * time * loss,
        about: format!(
            "{} n={n} {:?} {:?} severity {:.2} loss {loss:.2} host {:.2} at {:.0}-{:.0} s, cv {:.3} rho {:.2} wander {:.3}",
            shape.name,
            fault.cause,
            fault.ranks,
            fault.severity,
            shape.host,
            fault.begin,
            fault.end,
            noise.cv,
            noise.rho,
            noise.wander.0
        ),
    }
}

/// Host share, length of a step and operations per rank in it.
type Base = (f64, f64, f64);

/// Speed of all ranks in a healthy step.
fn speed((host, healthy, per_rank): Base, noise: &mut Noise, rng: &mut ChaCha8Rng) -> Speed {
    let gpu = noise.step(healthy, rng);
    let each = host * healthy / per_rank;
    let hosts = noise.hosts(healthy, rng);
    Speed {
        pause: vec![0.0; gpu.len()],
        host: hosts.iter().map(|factor| factor * each).collect(),
        gpu,
        transfer: 1.0,
    }
}

/// Applies the fault at an instant and step. A host that was faster than its GPU first has to become
/// as slow.
fn apply(fault: &Fault, speed: &mut Speed, (now, step): (f64, u64), base: Base) {
    let (host, healthy, per_rank) = base;
    for rank in 0..speed.gpu.len() {
        let excess = fault.excess(now, step, rank);
        if excess <= 0.0 {
            continue;
        }
        let late = healthy * (excess + (1.0 - host).max(0.0));
        match fault.cause {
            _ if fault.kind == Kind::Network => speed.transfer = 8.0_f64.mul_add(excess, 1.0),
            Cause::Sleep => speed.pause[rank] = late,
            Cause::Host => speed.host[rank] += late / per_rank,
            Cause::Gpu => speed.gpu[rank] *= 1.0 + excess,
        }
    }
}
