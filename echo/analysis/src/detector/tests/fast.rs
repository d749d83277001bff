//! Time until an incident is reported: immediately for severe faults, late for rare stalls, never
//! for random lags.

#![expect(
    clippy::suboptimal_flops,
    reason = "expectations read better as plain arithmetic"
)]

use echo_core::model::detector_output::{Incident, IncidentState};
use echo_core::model::event::StoredEvent;

use crate::detector::Detector;
use crate::settings::Settings;
use crate::simulated::outcome::{incidents, named};
use crate::simulated::{Job, Measured};

const HEALTHY: Measured = Measured::HEALTHY;
const FAULT: u64 = 12;

/// Rank 2 of eight is late by `lag_ms` in every iteration of the blocks `FAULT..to`.
fn late(lag_ms: f64, to: u64, n_blocks: u64) -> Vec<StoredEvent> {
    Job::with_ranks(8).events(n_blocks, |block, rank| {
        let lost = if (FAULT..to).contains(&block) {
            lag_ms
        } else {
            0.0
        };
        let wobble = f64::from(u32::try_from(block).unwrap() * 7 % 5 + rank % 3);
        Measured {
            gap_ms: 4.0 + 0.05 * wobble + if rank == 2 { lost } else { 0.0 },
            blocked_ms: 30.0 + if rank == 2 { 0.0 } else { lost },
            period_ms: 50.0 + lost,
            ..HEALTHY
        }
    })
}

fn states(events: &[StoredEvent], settings: Settings) -> Vec<Incident> {
    Detector::new(settings).observe(events).incidents
}

#[test]
fn a_rank_that_is_late_by_a_third_is_named_before_it_has_persisted() {
    let events = late(15.0, 30, 30);
    let at_once = &states(&events, Settings::default())[0];
    let patient = Settings {
        fast_gate: f64::INFINITY,
        ..Settings::default()
    };
    let in_time = &states(&events, patient)[0];
    assert!(at_once.is_provisional && !in_time.is_provisional);
    assert_eq!(
        (
            named(std::slice::from_ref(at_once)),
            named(std::slice::from_ref(in_time))
        ),
        (vec![2], vec![2])
    );
    assert!(at_once.raised_iteration < in_time.raised_iteration);
}

#[test]
fn a_provisional_incident_is_confirmed_when_it_persists() {
    let all = states(&late(15.0, 30, 30), Settings::default());
    assert!(all[0].is_provisional && !all.last().unwrap().is_provisional);
    assert!(all.iter().all(|state| state.id == all[0].id));
}

#[test]
fn a_rank_that_is_late_by_a_tenth_is_not_named_at_once() {
    let all = states(&late(6.0, 30, 30), Settings::default());
    assert_eq!(named(&all[..1]), [2]);
    assert!(all.iter().all(|state| !state.is_provisional));
}

#[test]
fn two_pauses_in_one_window_name_no_rank() {
    let pauses = |block, rank| {
        let pauses = block == 15 || block == 17;
        Measured {
            odd_gap_ms: (pauses && rank == 1).then_some(84.0),
            period_ms: if pauses { 70.0 } else { 50.0 },
            ..HEALTHY
        }
    };
    assert!(named(&incidents(&Job::with_ranks(8).events(60, pauses))).is_empty());
}

/// Once in 32 iterations rank 1 stalls for 96 ms, from block 16 on.
fn rare_stalls(n_blocks: u64) -> Vec<StoredEvent> {
    Job::with_ranks(8).events(n_blocks, |block, rank| {
        let stalls = block >= 16 && block % 8 == 0;
        let wobble = f64::from(u32::try_from(block).unwrap() * 7 % 5 + rank % 3);
        Measured {
            gap_ms: 4.0 + 0.05 * wobble,
            odd_gap_ms: (stalls && rank == 1).then_some(100.0),
            period_ms: if stalls { 74.0 } else { 50.0 },
            ..HEALTHY
        }
    })
}

#[test]
fn stalls_that_are_rare_and_add_up_are_named_by_the_long_window() {
    assert_eq!(named(&incidents(&rare_stalls(90))), [1]);
}

#[test]
fn rare_stalls_are_not_named_by_the_short_window() {
    let all = states(&rare_stalls(90), Settings::default());
    assert!(all[0].raised_iteration > 16.0 * 4.0 + 64.0, "{:#?}", all[0]);
}

#[test]
fn one_rare_stall_is_not_reported() {
    assert!(named(&incidents(&rare_stalls(24))).is_empty());
}

#[test]
fn a_fault_that_has_cleared_is_not_raised_again_from_the_long_window() {
    let found = incidents(&late(20.0, 30, 150));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(
        (found[0].state, found[0].occurrences),
        (IncidentState::Cleared, 1)
    );
    assert!(found[0].cleared_iteration.unwrap() <= 30.0 * 4.0 + 25.0);
}
