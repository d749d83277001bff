//! Faulty telemetry and unusual jobs, which must not mislead the detector.

use echo_core::ids::CommId;
use echo_core::model::detector_output::IncidentState;
use echo_core::model::event::SeqRange;

use super::{HEALTHY, culprit_rank, detect, last_states, sleeping};
use crate::detector::Detector;
use crate::settings::Settings;
use crate::simulated::{Job, Measured, OPS_PER_BLOCK};

#[test]
fn ranks_that_cut_their_blocks_differently_are_compared_over_the_larger_ones() {
    let mut events = Job::with_ranks(4).events(12, |_, _| HEALTHY);
    for stored in &mut events {
        let rank = stored.event.origin.rank.unwrap().rank().value();
        let block = stored.event.block.as_mut().unwrap();
        let number = block.seqs.unwrap().first() / OPS_PER_BLOCK;
        // Ranks 0 and 1 report blocks of 32 operations, ranks 2 and 3 blocks of 64, half as many.
        let size = if rank < 2 { 32 } else { 64 };
        block.seqs = SeqRange::new(number * size, (number + 1) * size - 1);
    }
    let mut detector = Detector::new(Settings::default());
    detector.observe(&events);
    let compared: Vec<_> = detector
        .policy_inputs()
        .map(|(_, policy_input)| (policy_input.n_ranks, policy_input.quorum_met))
        .collect();
    assert_eq!(compared, [(4, true)]);
}

#[test]
fn a_job_that_restarts_under_its_old_name_is_analysed_again() {
    let mut events = Job::with_ranks(4).events(20, |_, _| HEALTHY);
    let mut again = Job::with_ranks(4).events(40, sleeping);
    for stored in &mut again {
        stored.event.block.as_mut().unwrap().comm = CommId::new(2);
    }
    events.append(&mut again);
    let incidents = last_states(&detect(&events));
    assert_eq!(
        incidents
            .iter()
            .filter_map(culprit_rank)
            .collect::<Vec<_>>(),
        [2]
    );
}

#[test]
fn an_unusual_block_changes_no_number() {
    let mut events = Job::with_ranks(4).events(40, sleeping);
    for stored in &mut events {
        let block = stored.event.block.as_mut().unwrap();
        if block.seqs.unwrap().first() == 13 * OPS_PER_BLOCK {
            block.iterations = None;
        }
    }
    let incidents = last_states(&detect(&events));
    assert_eq!(
        incidents
            .iter()
            .filter_map(culprit_rank)
            .collect::<Vec<_>>(),
        [2]
    );
    assert!(incidents[0].culprit_lag_ms().unwrap().is_finite());
}

#[test]
fn a_rank_is_not_named_only_because_it_is_never_blocked() {
    let busy = |_, rank| Measured {
        n_syncs: if rank == 3 { 0 } else { 4 },
        ..HEALTHY
    };
    assert!(detect(&Job::with_ranks(4).events(40, busy)).is_empty());
}

#[test]
fn a_culprit_that_falls_silent_has_not_recovered() {
    let mut events = Job::with_ranks(8).events(60, |block, rank| {
        if block < 10 {
            HEALTHY
        } else {
            sleeping(12, rank)
        }
    });
    events.retain(|stored| {
        let seqs = stored
            .event
            .block
            .as_ref()
            .and_then(|block| block.seqs)
            .unwrap();
        stored.event.origin.rank.unwrap().rank().value() != 2 || seqs.first() < 20 * OPS_PER_BLOCK
    });
    for (index, stored) in events.iter_mut().enumerate() {
        let n = i64::try_from(index).unwrap();
        stored.received = stored.received.offset(n * 200_000_000);
    }
    let incidents = last_states(&detect(&events));
    assert_eq!(incidents.len(), 1, "{incidents:#?}");
    assert_eq!(culprit_rank(&incidents[0]), Some(2));
    assert_eq!(incidents[0].state, IncidentState::Open);
}

#[test]
fn a_lost_block_of_one_rank_changes_no_verdict() {
    let mut events = Job::with_ranks(4).events(40, sleeping);
    events.retain(|stored| {
        let seqs = stored
            .event
            .block
            .as_ref()
            .and_then(|block| block.seqs)
            .unwrap();
        stored.event.origin.rank.unwrap().rank().value() != 1 || seqs.first() != 11 * OPS_PER_BLOCK
    });
    let incidents = last_states(&detect(&events));
    assert_eq!(incidents.len(), 1, "{incidents:#?}");
    assert_eq!(culprit_rank(&incidents[0]), Some(2));
}
