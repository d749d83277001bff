//! The generated loops of a seed: every kind, healthy and with every applicable fault.

use rand::Rng;

use super::case::LoopCase;
use super::fault::{LoopFault, LoopFaultKind};
use super::kind::{Kind, Shape, choose};
use super::lines::Attach;
use crate::random::{Purpose, stream};

/// Target durations of blocks, milliseconds.
pub const BLOCKS_MS: [f64; 3] = [250.0, 1_000.0, 5_000.0];

/// Target costs of faults, as shares of the healthy pace.
const SEVERITIES: [f64; 4] = [0.1, 0.2, 0.5, 1.5];

/// All cases of a seed whose name contains `filter`, with calibrated faults.
pub fn cases(seed: u64, filter: &str) -> Vec<LoopCase> {
    let drawn = Kind::ALL.into_iter().flat_map(|kind| draw_kind(kind, seed));
    let wanted = drawn.filter(|case| case.name().contains(filter));
    wanted.map(LoopCase::calibrated).collect()
}

fn draw_kind(kind: Kind, seed: u64) -> Vec<LoopCase> {
    let is_applicable =
        |fault: &LoopFaultKind| !(kind == Kind::Graphs && *fault == LoopFaultKind::Core);
    let faults = LoopFaultKind::ALL
        .into_iter()
        .filter(is_applicable)
        .map(Some);
    let draw = |(fault, number)| case(kind, fault, seed * 1_000 + number);
    [None, None]
        .into_iter()
        .chain(faults)
        .zip(0..)
        .map(draw)
        .collect()
}

/// Draws a loop of a kind with a fault.
pub fn case(kind: Kind, fault: Option<LoopFaultKind>, seed: u64) -> LoopCase {
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
    let is_first = kind == Kind::Pipeline && fault == Some(LoopFaultKind::Loader);
    let rank = if is_first { 0 } else { rank };
    let severity = match fault {
        Some(LoopFaultKind::Pulses) => severity.min(0.4),
        _ => severity,
    };
    let fault = fault.map(|kind| LoopFault {
        kind,
        rank,
        severity,
        strength: first_guess(kind, severity, shape.step_ms),
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

/// First strength of the calibration.
fn first_guess(kind: LoopFaultKind, severity: f64, step_ms: f64) -> f64 {
    match kind {
        LoopFaultKind::Loader => severity * step_ms,
        LoopFaultKind::Core => severity * 3.0,
        LoopFaultKind::Neighbour | LoopFaultKind::Uniform | LoopFaultKind::Pulses => severity,
        LoopFaultKind::Network => severity * 10.0,
    }
}
