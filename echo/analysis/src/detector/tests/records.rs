//! Fields of an incident, and the inputs of its decision.

#![expect(
    clippy::suboptimal_flops,
    reason = "expectations read better as plain arithmetic"
)]

use echo_core::model::detector_output::{ConditionKind, Incident, IncidentState, Severity};
use echo_core::model::event::StoredEvent;
use echo_core::model::inputs::Inputs;

use crate::simulated::outcome::{detect, incidents, kinds, named};
use crate::simulated::{Job, Measured};

const HEALTHY: Measured = Measured::HEALTHY;

/// Rank 1 is late by `lag_ms` in every iteration of those blocks from 10 on that `hits` picks.
fn late(n_ranks: u32, lag_ms: f64, hits: fn(u64) -> bool) -> Vec<StoredEvent> {
    Job::with_ranks(n_ranks).events(60, |block, rank| {
        let lost = if block >= 10 && hits(block) {
            lag_ms
        } else {
            0.0
        };
        Measured {
            gap_ms: 4.0 + if rank == 1 { lost } else { 0.0 },
            period_ms: 50.0 + lost,
            ..HEALTHY
        }
    })
}

fn only(events: &[StoredEvent]) -> Incident {
    let mut found = incidents(events);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(named(&found), [1]);
    found.remove(0)
}

#[test]
fn severity_follows_the_share_of_the_period_that_is_lost() {
    // A rank with a small loss is named once the usual scatter is known.
    let severity = |lag_ms| only(&late(8, lag_ms, |block| block >= 45)).severity;
    assert_eq!(severity(2.0), Severity::Info);
    assert_eq!(severity(4.0), Severity::Warn);
    assert_eq!(severity(8.0), Severity::Critical);
}

#[test]
fn a_fault_that_never_pauses_is_stable() {
    assert!((only(&late(8, 8.0, |_| true)).stability - 1.0).abs() < 1e-9);
}

#[test]
fn a_fault_that_pauses_is_less_stable() {
    let incident = only(&late(8, 12.0, |block| block % 4 != 0));
    assert!(
        (incident.stability - 0.75).abs() < 0.05,
        "{}",
        incident.stability
    );
}

#[test]
fn an_incident_that_ended_has_its_end_time() {
    let incident = only(&late(8, 8.0, |block| block < 25));
    assert_eq!(incident.state, IncidentState::Cleared);
    assert!(incident.cleared_at.unwrap() >= incident.last_seen);
    assert!(incident.first_seen < incident.raised_at);
    assert!(incident.raised_at < incident.cleared_at.unwrap());
    assert!(incident.cleared_iteration.unwrap() > incident.raised_iteration);
}

#[test]
fn an_incident_that_comes_back_is_reopened_and_counted() {
    let incident = only(&late(8, 8.0, |block| !(22..38).contains(&block)));
    assert_eq!(
        (incident.state, incident.occurrences, incident.cleared_at),
        (IncidentState::Open, 2, None)
    );
}

#[test]
fn an_incident_keeps_the_inputs_of_its_decision() {
    let inputs = only(&late(32, 8.0, |_| true)).inputs.unwrap();
    assert_eq!((inputs.n_ranks, inputs.lags.len()), (32, Inputs::MAX_LAGS));
    assert_eq!(inputs.lags[0].rank.value(), 1);
    assert!(
        inputs
            .lags
            .windows(2)
            .all(|pair| pair[0].lag_ms >= pair[1].lag_ms)
    );
    assert!(inputs.lags[0].z >= inputs.critical_z);
    assert!((inputs.healthy_ms.unwrap() - 50.0).abs() < 1e-9);
    assert!((inputs.coverage - 1.0).abs() < 1e-9);
}

/// The events with the operations of the ranks from `first` on unnumbered: their agents were
/// started while the job was running.
fn attached_late(mut events: Vec<StoredEvent>, first: u32) -> Vec<StoredEvent> {
    for stored in &mut events {
        let rank = stored.event.origin.rank.unwrap().rank().value();
        if rank >= first {
            stored.event.block.as_mut().unwrap().seqs = None;
        }
    }
    events
}

#[test]
fn ranks_without_sequence_numbers_delay_no_other_rank() {
    let incident = only(&attached_late(late(10, 8.0, |_| true), 9));
    let inputs = incident.inputs.unwrap();
    assert_eq!(inputs.n_ranks, 9);
    assert!((inputs.coverage - 0.9).abs() < 1e-9);
}

#[test]
fn with_too_few_numbered_ranks_no_rank_is_named() {
    let found = incidents(&attached_late(late(10, 8.0, |_| true), 7));
    assert!(named(&found).is_empty());
    assert_eq!(kinds(&found), [ConditionKind::Inconclusive]);
}

#[test]
fn a_rank_that_becomes_numbered_is_compared() {
    let events = late(10, 8.0, |_| true);
    let n_early = events.len() / 6;
    let (early, rest) = events.split_at(n_early);
    let mut events = attached_late(early.to_vec(), 7);
    events.extend_from_slice(rest);
    assert_eq!(only(&events).inputs.unwrap().n_ranks, 10);
}

#[test]
fn every_late_iteration_is_lost_on_every_rank() {
    let lost: f64 = detect(&late(8, 8.0, |block| block < 25))
        .lost
        .iter()
        .map(|lost| lost.lost_gpu_ms)
        .sum();
    let expected = 8.0 * 4.0 * 15.0 * 8.0;
    assert!((lost / expected - 1.0).abs() < 0.05, "{lost} of {expected}");
}

/// Few ranks that were never healthy: rank 0 is late by `lag_ms` from the first iteration on, in
/// all blocks or every other one.
fn few(n_ranks: u32, always: bool) -> Vec<StoredEvent> {
    Job::with_ranks(n_ranks).events(16, move |block, rank| {
        let is_late = if always || block % 2 == 0 {
            rank == 0
        } else {
            rank == 1
        };
        Measured {
            gap_ms: if is_late { 14.0 } else { 4.0 } + 0.1 * f64::from(rank),
            period_ms: 60.0,
            ..HEALTHY
        }
    })
}

#[test]
fn among_few_ranks_without_a_history_the_one_that_is_always_last_is_named() {
    for n_ranks in 2..=4 {
        assert_eq!(named(&incidents(&few(n_ranks, true))), [0], "of {n_ranks}");
    }
}

#[test]
fn among_few_ranks_that_are_last_in_turn_none_is_named() {
    for n_ranks in 2..=4 {
        assert!(
            named(&incidents(&few(n_ranks, false))).is_empty(),
            "of {n_ranks}"
        );
    }
}

#[test]
fn a_lag_within_the_usual_scatter_names_no_rank() {
    // Lags of 6 ms in either direction are usual here. Then one rank is late by 8 ms, and so is the
    // job.
    let used_to = |spread: f64| {
        Job::with_ranks(8).events(60, move |block, rank| {
            let faulty = block >= 40;
            let turn = (block / 4 * 3 + u64::from(rank) * 5) % 8;
            let usual = spread * (f64::from(u32::try_from(turn).unwrap()) - 3.5) / 3.5;
            Measured {
                gap_ms: 14.0 + usual + if faulty && rank == 1 { 8.0 } else { 0.0 },
                period_ms: if faulty { 58.0 } else { 50.0 },
                ..HEALTHY
            }
        })
    };
    assert_eq!(named(&incidents(&used_to(0.5))), [1]);
    assert!(named(&incidents(&used_to(9.0))).is_empty());
}
