#![expect(
    clippy::suboptimal_flops,
    reason = "expectations read better as plain arithmetic"
)]

use echo_core::model::detector_output::{
    Baseline, ConditionKind, DetectorOutput, Finding, Incident, IncidentState,
};
use echo_core::model::event::StoredEvent;

use crate::detector::Detector;
use crate::settings::Settings;
use crate::simulated::{Job, Measured};

mod mishaps;

const HEALTHY: Measured = Measured::HEALTHY;

/// Rank 2 sleeps 8 ms in every iteration of blocks 10 to 19: its own gap grows, and the period of
/// all ranks.
fn sleeping(block: u64, rank: u32) -> Measured {
    let faulty = (10..20).contains(&block);
    let wobble = 0.1 * f64::from(u8::try_from((block * 7 + u64::from(rank) * 3) % 5).unwrap());
    Measured {
        gap_ms: if faulty && rank == 2 { 12.0 } else { 4.0 } + wobble,
        blocked_ms: if faulty && rank != 2 { 38.0 } else { 30.0 },
        period_ms: if faulty { 58.0 } else { 50.0 } + 0.05 * wobble,
        ..HEALTHY
    }
}

fn detect(events: &[StoredEvent]) -> DetectorOutput {
    Detector::new(Settings::default()).observe(events)
}

/// Returns the last state of each incident.
fn last_states(output: &DetectorOutput) -> Vec<Incident> {
    let mut last: Vec<Incident> = Vec::new();
    for incident in &output.incidents {
        last.retain(|known| known.id != incident.id);
        last.push(incident.clone());
    }
    last
}

fn culprit_rank(incident: &Incident) -> Option<u32> {
    match &incident.finding {
        Finding::Culprit(culprit) => Some(culprit.rank.value()),
        Finding::Condition(_) => None,
    }
}

fn kind(incident: &Incident) -> Option<ConditionKind> {
    match &incident.finding {
        Finding::Culprit(_) => None,
        Finding::Condition(condition) => Some(condition.kind),
    }
}

#[test]
fn a_rank_that_sleeps_is_named_alone_soon_and_cleared_soon() {
    let output = detect(&Job::with_ranks(4).events(40, sleeping));
    let incidents = last_states(&output);
    assert_eq!(incidents.len(), 1, "{incidents:#?}");
    let incident = &incidents[0];
    assert_eq!(culprit_rank(incident), Some(2));
    assert_eq!(incident.state, IncidentState::Cleared);
    assert!(
        (incident.first_iteration - 40.0).abs() < 1e-9,
        "{}",
        incident.first_iteration
    );
    assert!(incident.raised_iteration <= 40.0 + 30.0);
    assert!(incident.cleared_iteration.unwrap() <= 80.0 + 30.0);
    assert!(
        (incident.effect_ratio - 0.16).abs() < 0.01,
        "{}",
        incident.effect_ratio
    );
    assert!(matches!(incident.baseline, Baseline::History { .. }));
}

#[test]
fn the_lost_time_is_what_every_rank_waited_longer() {
    let output = detect(&Job::with_ranks(4).events(40, sleeping));
    let lost: f64 = output.lost.iter().map(|lost| lost.lost_gpu_ms).sum();
    let expected = 8.0 * 40.0 * 4.0;
    assert!(
        (lost / expected - 1.0).abs() < 0.05,
        "lost {lost} ms, expected {expected} ms"
    );
}

#[test]
fn the_order_of_reports_changes_nothing() {
    let events = Job::with_ranks(4).events(40, sleeping);
    let mut rank_by_rank = events.clone();
    rank_by_rank.sort_by_key(|stored| stored.event.origin.rank);
    let step_by_step: Vec<_> = {
        let mut detector = Detector::new(Settings::default());
        let parts = rank_by_rank.chunks(7).map(|chunk| detector.observe(chunk));
        parts.flat_map(|part| part.incidents).collect()
    };
    assert_eq!(detect(&events).incidents, step_by_step);
}

#[test]
fn skewed_clocks_change_times_but_no_verdict() {
    let mut job = Job::with_ranks(4);
    let straight = last_states(&detect(&job.events(40, sleeping)));
    job.clock_skew = |rank| (i64::from(rank) - 1) * 10_000_000_000;
    let skewed = last_states(&detect(&job.events(40, sleeping)));
    assert_eq!(straight[0].id, skewed[0].id);
    assert_eq!(
        straight[0].confidence.to_bits(),
        skewed[0].confidence.to_bits()
    );
}

#[test]
fn a_late_rank_that_costs_nothing_is_not_named() {
    let slack = |_, rank| Measured {
        gap_ms: if rank == 1 { 9.0 } else { 4.0 },
        ..HEALTHY
    };
    let from_block_20 = move |block, rank| {
        if block < 20 {
            HEALTHY
        } else {
            slack(block, rank)
        }
    };
    assert!(detect(&Job::with_ranks(4).events(60, from_block_20)).is_empty());
}

#[test]
fn one_stall_is_no_steady_lag() {
    let stall = |block, rank| Measured {
        odd_gap_ms: (block == 15 && rank == 1).then_some(84.0),
        period_ms: if block == 15 { 70.0 } else { 50.0 },
        ..HEALTHY
    };
    assert!(detect(&Job::with_ranks(4).events(40, stall)).is_empty());
}

#[test]
fn when_all_ranks_slow_down_no_rank_is_named() {
    let slow = |block, _| Measured {
        period_ms: if (10..20).contains(&block) {
            58.0
        } else {
            50.0
        },
        blocked_ms: if (10..20).contains(&block) {
            38.0
        } else {
            30.0
        },
        ..HEALTHY
    };
    let incidents = last_states(&detect(&Job::with_ranks(4).events(40, slow)));
    assert_eq!(incidents.len(), 1, "{incidents:#?}");
    assert_eq!(kind(&incidents[0]), Some(ConditionKind::UniformSlowdown));
    assert_eq!(incidents[0].state, IncidentState::Cleared);
}

#[test]
fn a_fault_from_the_first_iteration_is_named_without_a_baseline() {
    let always = |_, rank| Measured {
        gap_ms: if rank == 3 { 14.0 } else { 4.0 },
        period_ms: 60.0,
        ..HEALTHY
    };
    let incidents = last_states(&detect(&Job::with_ranks(4).events(20, always)));
    assert_eq!(incidents.len(), 1, "{incidents:#?}");
    assert_eq!(culprit_rank(&incidents[0]), Some(3));
    assert!(matches!(incidents[0].baseline, Baseline::None { .. }));
    assert!(incidents[0].confidence <= 0.7);
}

#[test]
fn a_fault_that_comes_and_goes_is_named() {
    // One iteration in four sleeps 20 ms, and every fifth block is spared: the median of the gaps
    // does not move, their mean does. It costs less than a tenth, so that the usual scatter must be
    // known first.
    let is_hit = |block: u64| block >= 60 && !block.is_multiple_of(5);
    let intermittent = |block, rank| Measured {
        odd_gap_ms: (is_hit(block) && rank == 0).then_some(24.0),
        period_ms: if is_hit(block) { 55.0 } else { 50.0 },
        ..HEALTHY
    };
    let incidents = last_states(&detect(&Job::with_ranks(4).events(90, intermittent)));
    assert_eq!(
        incidents
            .iter()
            .filter_map(culprit_rank)
            .collect::<Vec<_>>(),
        [0]
    );
}

#[test]
fn with_two_ranks_the_later_one_is_named_with_low_confidence() {
    let pair = |block, rank| Measured {
        gap_ms: if block >= 10 && rank == 1 { 12.0 } else { 4.0 },
        period_ms: if block >= 10 { 58.0 } else { 50.0 },
        ..HEALTHY
    };
    let incidents = last_states(&detect(&Job::with_ranks(2).events(40, pair)));
    assert_eq!(
        incidents
            .iter()
            .filter_map(culprit_rank)
            .collect::<Vec<_>>(),
        [1]
    );
    let named = incidents.iter().find(|one| culprit_rank(one).is_some());
    assert!(named.unwrap().confidence <= 0.6);
    let Finding::Culprit(culprit) = &named.unwrap().finding else {
        panic!("{incidents:#?}")
    };
    assert!((culprit.lag_ms - 8.0).abs() < 0.1, "{}", culprit.lag_ms);
}

#[test]
fn a_rank_that_never_waits_where_its_peers_do_is_named_by_its_wait() {
    let exhausted = |block, rank| {
        let faulty = block >= 10;
        Measured {
            n_syncs: if faulty && rank == 1 { 1 } else { 4 },
            blocked_ms: if faulty { 40.0 } else { 30.0 }
                - if rank == 1 && faulty { 39.0 } else { 0.0 },
            period_ms: if faulty { 60.0 } else { 50.0 },
            ..HEALTHY
        }
    };
    let incidents = last_states(&detect(&Job::with_ranks(4).events(40, exhausted)));
    assert_eq!(
        incidents
            .iter()
            .filter_map(culprit_rank)
            .collect::<Vec<_>>(),
        [1]
    );
}

#[test]
fn late_arrivals_name_a_rank_where_no_rank_synchronises_each_iteration() {
    // Only every fifth block holds a synchronisation, as in a job that logs its loss now and then.
    let rare = |block: u64, rank| {
        let faulty = (20..40).contains(&block);
        Measured {
            n_syncs: u64::from(block % 5 == 4),
            arrival_ms: if faulty && rank == 0 {
                160.0
            } else {
                80.0 + f64::from(rank)
            },
            period_ms: if faulty { 60.0 } else { 50.0 },
            ..HEALTHY
        }
    };
    let incidents = last_states(&detect(&Job::with_ranks(4).events(60, rare)));
    assert_eq!(
        incidents
            .iter()
            .filter_map(culprit_rank)
            .collect::<Vec<_>>(),
        [0]
    );
    assert_eq!(incidents[0].state, IncidentState::Cleared);
}

#[test]
fn a_slow_job_with_too_few_reporting_ranks_is_inconclusive() {
    let job = Job::with_ranks(4);
    let slow = |block, _| Measured {
        period_ms: if block >= 10 { 60.0 } else { 50.0 },
        ..HEALTHY
    };
    let mut events = job.events(40, slow);
    events.retain(|stored| {
        let seqs = stored
            .event
            .block
            .as_ref()
            .and_then(|block| block.seqs)
            .unwrap();
        let rank = stored.event.origin.rank.unwrap().rank().value();
        rank < 2 || seqs.first() < 320
    });
    // Ranks 2 and 3 fell silent: much later, their peers are evaluated without them.
    for (index, stored) in events.iter_mut().enumerate() {
        let n = i64::try_from(index).unwrap();
        stored.received = stored.received.offset(n * 2_000_000_000);
    }
    let incidents = last_states(&detect(&events));
    assert_eq!(incidents.len(), 1, "{incidents:#?}");
    assert!(
        kind(&incidents[0]) == Some(ConditionKind::Inconclusive),
        "{incidents:#?}"
    );
}

#[test]
fn the_same_fault_coming_back_is_the_same_incident() {
    let twice = |block: u64, rank: u32| {
        let shifted = if block >= 35 { block - 20 } else { block };
        sleeping(shifted.min(30), rank)
    };
    let again = move |block, rank| {
        if (30..35).contains(&block) {
            HEALTHY
        } else {
            twice(block, rank)
        }
    };
    let incidents = last_states(&detect(&Job::with_ranks(4).events(70, again)));
    assert_eq!(incidents.len(), 1, "{incidents:#?}");
    assert_eq!(incidents[0].occurrences, 2);
}

#[test]
fn the_slow_iterations_of_an_incident_that_ended_do_not_count_for_another_one() {
    // The job synchronises rarely: when the lag has gone, the last measured period is still that of
    // the fault.
    let rare = |block: u64, rank| {
        let faulty = (20..40).contains(&block);
        Measured {
            n_syncs: u64::from(block % 10 == 9),
            arrival_ms: if faulty && rank == 0 { 160.0 } else { 80.0 },
            period_ms: if faulty { 60.0 } else { 50.0 },
            ..HEALTHY
        }
    };
    let output = detect(&Job::with_ranks(4).events(70, rare));
    assert_eq!(last_states(&output).len(), 1, "{:#?}", last_states(&output));
}
