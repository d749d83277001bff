//! The generated loops of a seed: every kind healthy and with every fault that it can have.

use rand::Rng;

use super::case::LoopCase;
use super::fault::{LoopFault, LoopFaultKind};
use super::kind::{Kind, Shape, choose};
use super::lines::Attach;
use crate::random::{Purpose, stream};

/// How long blocks should last, milliseconds.
pub const BLOCKS_MS: [f64; 3] = [250.0, 1_000.0, 5_000.0];

/// What faults are meant to cost, as shares of the healthy pace.
const SEVERITIES: [f64; 4] = [0.1, 0.2, 0.5, 1.5];

/// All cases of a seed whose name contains `filter`, their faults as strong as they are meant to be.
pub fn cases(seed: u64, filter: &str) -> Vec<LoopCase> {
    let drawn = Kind::ALL.into_iter().flat_map(|kind| of_kind(kind, seed));
    let wanted = drawn.filter(|case| case.name().contains(filter));
    wanted.map(LoopCase::calibrated).collect()
}

fn of_kind(kind: Kind, seed: u64) -> Vec<LoopCase> {
    let can_have =
        |trouble: &LoopFaultKind| !(kind == Kind::Graphs && *trouble == LoopFaultKind::Core);
    let troubles = LoopFaultKind::ALL.into_iter().filter(can_have).map(Some);
    let draw = |(trouble, number)| case(kind, trouble, seed * 1_000 + number);
    [None, None]
        .into_iter()
        .chain(troubles)
        .zip(0..)
        .map(draw)
        .collect()
}

/// A loop of a kind with a fault, everything else drawn.
pub fn case(kind: Kind, trouble: Option<LoopFaultKind>, seed: u64) -> LoopCase {
    let seed = xxhash_rust::xxh64::xxh64(kind.name().as_bytes(), seed) >> 16;
    let shape = Shape::draw(kind, seed);
    let mut rng = stream(seed, Purpose::Telemetry);
    let attach = match rng.random_range(0..6) {
        0 => Attach::Late,
        1..=3 => Attach::TakenOver,
        _ => Attach::FromStart,
    };
    let attach_ms = if attach == Attach::FromStart {
        0.0
    } else {
        rng.random_range(5_000.0..15_000.0)
    };
    let block_ms = choose(&mut rng, &BLOCKS_MS);
    let severity = choose(&mut rng, &SEVERITIES).unwrap_or(0.2);
    let rank = rng.random_range(0..shape.n_ranks);
    // Only the first stage of a pipeline loads.
    let is_first = kind == Kind::Pipeline && trouble == Some(LoopFaultKind::Loader);
    let rank = if is_first { 0 } else { rank };
    let severity = match trouble {
        Some(LoopFaultKind::Pulses) => severity.min(0.4),
        _ => severity,
    };
    let fault = trouble.map(|trouble| LoopFault {
        trouble,
        rank,
        severity,
        strength: first_guess(trouble, severity, shape.step_ms),
        when: 0.0..0.0,
    });
    LoopCase {
        labels: (0..shape.n_ranks).collect(),
        fault,
        attach,
        attach_ms,
        healthy_ms: rng.random_range(40_000.0..60_000.0),
        block_ms: block_ms.unwrap_or(1_000.0),
        shape,
    }
}

/// A strength to begin the calibration with.
fn first_guess(trouble: LoopFaultKind, severity: f64, step_ms: f64) -> f64 {
    match trouble {
        LoopFaultKind::Loader => severity * step_ms,
        LoopFaultKind::Core => severity * 3.0,
        LoopFaultKind::Neighbour | LoopFaultKind::Uniform | LoopFaultKind::Pulses => severity,
        LoopFaultKind::Network => severity * 10.0,
    }
}
