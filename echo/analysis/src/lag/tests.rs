mod symmetry;

use echo_core::model::detector_output::Signal;

use crate::assembly::{Assembly, CohortBlock};
use crate::lag::{Lags, lags, suited_signal};
use crate::simulated::{Job, Measured};

const HEALTHY: Measured = Measured::HEALTHY;

fn blocks(n_ranks: u32, measure: impl Fn(u64, u32) -> Measured) -> Vec<CohortBlock> {
    let mut assembly = Assembly::default();
    for event in Job::with_ranks(n_ranks).events(4, measure) {
        assembly.add(&event);
    }
    assembly
        .closed(30_000.0)
        .into_iter()
        .map(|(_, block)| block)
        .collect()
}

fn lags_of(blocks: &[CohortBlock]) -> Lags {
    let window: Vec<&CohortBlock> = blocks.iter().collect();
    lags(suited_signal(&window), &window).unwrap()
}

fn mean_lags(lags: &Lags) -> Vec<f64> {
    lags.ranks
        .iter()
        .map(|lag| (lag.mean_ms * 1e9).round() / 1e9)
        .collect()
}

#[test]
fn the_late_rank_has_the_injected_lag_and_its_peers_none() {
    let late = |_, rank| Measured {
        gap_ms: if rank == 2 { 12.0 } else { 4.0 },
        ..HEALTHY
    };
    let lags = lags_of(&blocks(4, late));
    assert_eq!(mean_lags(&lags), [0.0, 0.0, 8.0, 0.0]);
    assert_eq!(lags.signal, Signal::HostGap);
}

#[test]
fn with_one_peer_the_lag_is_the_whole_difference() {
    let late = |_, rank| Measured {
        gap_ms: if rank == 1 { 12.0 } else { 4.0 },
        ..HEALTHY
    };
    assert_eq!(mean_lags(&lags_of(&blocks(2, late))), [0.0, 8.0]);
}

#[test]
fn two_synchronisations_in_an_iteration_add_up() {
    let twice = |_, rank| Measured {
        n_syncs: 8,
        gap_ms: if rank == 0 { 6.0 } else { 4.0 },
        ..HEALTHY
    };
    assert_eq!(mean_lags(&lags_of(&blocks(4, twice))), [4.0, 0.0, 0.0, 0.0]);
}

#[test]
fn a_job_that_rarely_synchronises_is_compared_by_arrivals() {
    let rare = |block, rank| Measured {
        n_syncs: u64::from(block == 3),
        arrival_ms: if rank == 3 { 120.0 } else { 80.0 },
        ..HEALTHY
    };
    let lags = lags_of(&blocks(4, rare));
    assert_eq!(lags.signal, Signal::Arrival);
    assert_eq!(mean_lags(&lags), [0.0, 0.0, 0.0, 40.0]);
}

#[test]
fn arrivals_on_clocks_that_start_at_different_completions_are_not_compared() {
    let mut blocks = blocks(4, |_, _| Measured {
        n_syncs: 0,
        ..HEALTHY
    });
    for (member, seq) in blocks
        .iter_mut()
        .flat_map(|block| &mut block.members)
        .zip(0..)
    {
        if let Some(arrival) = &mut member.arrival {
            arrival.anchor_seq = seq;
        }
    }
    let window: Vec<&CohortBlock> = blocks.iter().collect();
    assert_eq!(lags(Signal::Arrival, &window), None);
}
