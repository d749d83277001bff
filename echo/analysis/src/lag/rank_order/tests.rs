use echo_core::model::detector_output::Signal;
use echo_core::model::event::StoredEvent;

use super::FEW_RANKS;
use crate::assembly::{Assembly, CohortBlock};
use crate::lag::{Lag, lags};
use crate::simulated::device::{Gpu, Gpus};
use crate::simulated::{Job, Measured};

fn lags_of(signal: Signal, events: &[StoredEvent]) -> Vec<Lag> {
    let mut assembly = Assembly::default();
    for event in events {
        assembly.add(event);
    }
    let blocks: Vec<CohortBlock> = assembly
        .closed(30_000.0)
        .into_iter()
        .map(|(_, block)| block)
        .collect();
    lags(signal, &blocks.iter().collect::<Vec<_>>())
        .unwrap()
        .ranks
}

fn by_gap(n_ranks: u32, measure: impl Fn(u64, u32) -> Measured) -> Vec<Lag> {
    lags_of(
        Signal::HostGap,
        &Job::with_ranks(n_ranks).events(4, measure),
    )
}

#[test]
fn a_rank_whose_every_sample_is_later_than_all_others_counts_once_for_each() {
    let found = by_gap(4, |_, rank| Measured {
        gap_ms: if rank == 2 { 9.0 } else { 4.0 },
        ..Measured::HEALTHY
    });
    let place = found[2].place.unwrap();
    assert!((place.rounds - 16.0).abs() < 1e-9 && (place.last_share - 1.0).abs() < 1e-9);
    assert!(place.z > 5.0, "{place:?}");
}

#[test]
fn a_rank_whose_samples_overlap_with_others_counts_once_for_each_block() {
    let found = by_gap(4, |_, rank| Measured {
        gap_ms: if rank == 2 { 9.0 } else { 4.0 },
        odd_gap_ms: (rank == 1).then_some(10.0),
        ..Measured::HEALTHY
    });
    assert!((found[2].place.unwrap().rounds - 4.0).abs() < 1e-9);
}

#[test]
fn ranks_that_are_last_in_turn_have_a_middle_place() {
    let found = by_gap(4, |block, rank| Measured {
        gap_ms: 4.0 + f64::from((u32::try_from(block).unwrap() + rank) % 4),
        ..Measured::HEALTHY
    });
    for lag in &found {
        let place = lag.place.unwrap();
        assert!(place.z.abs() < 1e-9 && (place.last_share - 0.25).abs() < 1e-9);
    }
}

#[test]
fn a_gpu_that_spends_least_inside_is_last() {
    let events = Gpus::alike(4).events(4, |_, rank| Gpu {
        inside_ms: if rank == 1 { 2.0 } else { 3.0 },
        ..Gpu::HEALTHY
    });
    let found = lags_of(Signal::DeviceWait, &events);
    assert!((found[1].place.unwrap().last_share - 1.0).abs() < 1e-9);
}

#[test]
fn many_ranks_have_a_scale_and_need_no_place() {
    let n_ranks = u32::try_from(FEW_RANKS).unwrap() + 1;
    let found = by_gap(n_ranks, |_, _| Measured::HEALTHY);
    assert!(found.iter().all(|lag| lag.place.is_none()));
}
