//! Slow jobs without a culprit.

use echo_core::model::detector_output::{ConditionKind, IncidentState};
use echo_core::model::event::StoredEvent;

use crate::simulated::device::{Gpu, Gpus};
use crate::simulated::outcome::{detect, incidents, kinds, last_states, named};

fn slow_transfers() -> Vec<StoredEvent> {
    Gpus::alike(8).events(40, |block, rank| {
        let slow = (12..24).contains(&block);
        let wobble = 0.01 * f64::from(u32::try_from(block).unwrap() * 7 % 5 + rank % 3);
        Gpu {
            inside_ms: if slow { 4.0 } else { 3.0 } + wobble,
            blocked_ms: Some(if slow { 40.0 } else { 30.0 }),
            period_ms: if slow { 60.0 } else { 50.0 },
            ..Gpu::HEALTHY
        }
    })
}

#[test]
fn transfers_that_are_slow_for_all_ranks_are_a_network_fault() {
    let found = incidents(&slow_transfers());
    assert_eq!(kinds(&found), [ConditionKind::Network], "{found:#?}");
    assert!(named(&found).is_empty());
}

#[test]
fn a_network_that_recovers_is_cleared() {
    let found = incidents(&slow_transfers());
    assert_eq!(found[0].state, IncidentState::Cleared);
    assert!(found[0].cleared_at.is_some());
}

#[test]
fn a_job_that_slows_down_while_its_transfers_do_not_is_a_uniform_slowdown() {
    let events = Gpus::alike(8).events(40, |block, _| Gpu {
        period_ms: if block >= 12 { 60.0 } else { 50.0 },
        ..Gpu::HEALTHY
    });
    assert_eq!(kinds(&incidents(&events)), [ConditionKind::UniformSlowdown]);
}

/// The last rank changes in every iteration; it is late by 4 ms in one operation.
fn uneven_data() -> Vec<StoredEvent> {
    fn inside(iteration: u64, rank: u32) -> f64 {
        let last = iteration * 5 % 8;
        if u64::from(rank) == last { 2.0 } else { 6.0 }
    }
    Gpus::alike(8).events(40, |_, _| Gpu {
        sampled_ms: Some(inside),
        ..Gpu::HEALTHY
    })
}

#[test]
fn a_last_rank_that_changes_every_time_is_a_data_imbalance() {
    let found = incidents(&uneven_data());
    assert_eq!(kinds(&found), [ConditionKind::DataImbalance], "{found:#?}");
    assert!(named(&found).is_empty());
}

#[test]
fn a_data_imbalance_costs_nothing_against_a_history_that_had_it() {
    assert!(detect(&uneven_data()).lost.is_empty());
}

#[test]
fn a_rank_that_is_last_every_time_is_no_data_imbalance() {
    fn inside(_: u64, rank: u32) -> f64 {
        if rank == 3 { 2.0 } else { 6.0 }
    }
    let events = Gpus::alike(8).events(40, |_, _| Gpu {
        sampled_ms: Some(inside),
        ..Gpu::HEALTHY
    });
    assert!(kinds(&incidents(&events)).is_empty());
}

#[test]
fn a_tiny_distance_of_the_last_rank_does_not_hide_a_late_rank() {
    // As recorded: one GPU is late at every other sampled operation. At the others the last rank
    // is behind by a negligible time.
    fn inside(iteration: u64, rank: u32) -> f64 {
        let is_late = iteration.is_multiple_of(2) || iteration % 16 == 1;
        match (rank, is_late) {
            (3, true) => 2.0,
            (_, false) if u64::from(rank) == iteration % 3 => 9.99,
            _ => 10.0,
        }
    }
    let events = Gpus::alike(4).events(40, |_, _| Gpu {
        sampled_ms: Some(inside),
        ..Gpu::HEALTHY
    });
    let found = incidents(&events);
    assert!(kinds(&found).is_empty(), "{found:#?}");
}

#[test]
fn a_data_imbalance_does_not_hide_a_late_rank() {
    fn inside(iteration: u64, rank: u32) -> f64 {
        if u64::from(rank) == iteration * 5 % 8 {
            2.0
        } else {
            6.0
        }
    }
    let events = Gpus::alike(8).events(60, |block, rank| {
        let slow = block >= 30;
        let gpu = Gpu {
            sampled_ms: Some(inside),
            period_ms: if slow { 60.0 } else { 50.0 },
            ..Gpu::HEALTHY
        };
        if slow && rank == 3 {
            gpu.late_by(10.0)
        } else {
            gpu
        }
    });
    let found = last_states(&detect(&events));
    assert_eq!(named(&found), [3], "{found:#?}");
}
