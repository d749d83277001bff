//! Operations that never end.

use std::sync::Arc;

use echo_core::ids::{CommId, Rank};
use echo_core::model::detector_output::{ConditionKind, Incident, IncidentState, LostTime};
use echo_core::model::event::StoredEvent;
use fleet_proto::attribute;

use crate::detector::Detector;
use crate::settings::Settings;
use crate::simulated::outcome::{condition, kinds};
use crate::simulated::{Job, Measured, instant};

pub(super) const N_RANKS: u32 = 8;

/// Reports of all ranks every second from `from_s` to `to_s`: six have entered operation 99, ranks
/// 2 and 5 have not.
fn two_ranks_missing(from_s: u32, to_s: u32) -> Vec<StoredEvent> {
    reports(
        from_s,
        to_s,
        |rank| {
            if rank == 2 || rank == 5 { 99 } else { 100 }
        },
    )
}

pub(super) fn reports(from_s: u32, to_s: u32, issued: impl Fn(u32) -> u64) -> Vec<StoredEvent> {
    let job = Job::with_ranks(N_RANKS);
    let all = (from_s..to_s).flat_map(|second| (0..N_RANKS).map(move |rank| (second, rank)));
    all.map(|(second, rank)| job.issued(rank, issued(rank), f64::from(second) * 1e3))
        .collect()
}

pub(super) fn detector() -> Detector {
    Detector::new(Settings::default())
}

fn last(detector: &mut Detector, events: &[StoredEvent]) -> Option<Incident> {
    detector.observe(events).incidents.pop()
}

#[test]
fn the_ranks_missing_from_an_operation_that_does_not_end_are_listed() {
    let incident = last(&mut detector(), &two_ranks_missing(0, 40)).unwrap();
    let found = condition(&incident).unwrap();
    let missing: Vec<u32> = found.ranks.iter().map(|rank| rank.value()).collect();
    assert_eq!((found.kind, missing), (ConditionKind::Hang, vec![2, 5]));
    assert!(found.detail.contains("operation 99"), "{}", found.detail);
    assert_eq!(incident.state, IncidentState::Open);
}

#[test]
fn a_hang_is_one_incident_however_often_it_is_checked() {
    let found = detector().observe(&two_ranks_missing(0, 60)).incidents;
    assert!(found.windows(2).all(|pair| pair[0].id == pair[1].id));
    assert!(found.iter().all(|incident| incident.occurrences == 1));
}

#[test]
fn a_job_that_hangs_in_several_communicators_is_one_incident_with_all_missing_ranks() {
    let mut events = two_ranks_missing(0, 60);
    let mut others = reports(0, 60, |rank| 50 + u64::from(rank != 7));
    for stored in &mut others {
        if let Some(block) = &mut stored.event.block {
            block.comm = CommId::new(77);
        }
    }
    events.extend(others);
    events.sort_by_key(|event| event.received);
    let found = detector().observe(&events).incidents;
    let incident = found.last().unwrap();
    let ranks = condition(incident).unwrap().ranks.clone();
    assert_eq!(ranks, [2, 5, 7].map(Rank::new));
    assert!(found.iter().all(|one| one.id == incident.id));
    let why = "missing ranks 2, 5; missing in other communicators: rank 7";
    assert!(incident.reason.contains(why), "{}", incident.reason);
}

#[test]
fn a_hang_clears_when_the_missing_ranks_continue() {
    let mut detector = detector();
    let raised = last(&mut detector, &two_ranks_missing(0, 40)).unwrap();
    let cleared = last(&mut detector, &reports(40, 42, |_| 110)).unwrap();
    assert_eq!(cleared.id, raised.id);
    assert_eq!(cleared.state, IncidentState::Cleared);
    assert!(cleared.cleared_at.is_some());
}

#[test]
fn no_hang_is_reported_before_thirty_seconds() {
    assert!(detector().observe(&two_ranks_missing(0, 30)).is_empty());
}

#[test]
fn no_hang_is_reported_before_twenty_periods() {
    // Iterations of 3 s: an operation may take a minute.
    let mut healthy = Job::with_ranks(N_RANKS).events(14, |_, _| Measured::HEALTHY);
    for stored in &mut healthy {
        let ms = stored.event.timestamp.millis_since(instant(0.0));
        stored.event.timestamp = instant(60.0 * ms);
    }
    let mut detector = detector();
    assert!(detector.observe(&healthy).is_empty());
    assert!(detector.observe(&two_ranks_missing(0, 58)).is_empty());
    assert_eq!(
        kinds(&detector.observe(&two_ranks_missing(58, 70)).incidents)[0],
        ConditionKind::Hang
    );
}

#[test]
fn a_job_whose_ranks_are_all_silent_has_ended_and_does_not_hang() {
    let mut detector = detector();
    detector.observe(&two_ranks_missing(0, 2));
    assert!(detector.end_silent_jobs(instant(50_000.0)).is_empty());
    assert!(detector.end_silent_jobs(instant(700_000.0)).is_empty());
}

/// The given reports without those of one rank from `silent_s` on.
fn without(rank: u32, silent_s: u32, events: Vec<StoredEvent>) -> Vec<StoredEvent> {
    let silent = instant(f64::from(silent_s) * 1e3);
    let is_of = |event: &StoredEvent| event.event.origin.rank.unwrap().rank().value() == rank;
    let mut events = events;
    events.retain(|event| event.received < silent || !is_of(event));
    events
}

#[test]
fn a_rank_whose_agent_died_is_not_missing_from_a_pause_of_the_job() {
    // The job continues for twenty seconds after the last report of rank 2, and then pauses.
    let mut events = reports(0, 40, |_| 99);
    events.extend(reports(40, 60, |_| 200));
    events.extend(reports(60, 120, |_| 300));
    assert!(detector().observe(&without(2, 40, events)).is_empty());
}

#[test]
fn a_rank_that_does_not_report_is_distinguished_from_missing_ranks() {
    let mut events = reports(0, 20, |_| 50);
    events.extend(two_ranks_missing(20, 60));
    let incident = last(&mut detector(), &without(2, 5, events)).unwrap();
    let found = condition(&incident).unwrap();
    let missing: Vec<u32> = found.ranks.iter().map(|rank| rank.value()).collect();
    assert_eq!(missing, [5]);
    assert!(found.detail.starts_with("6 of 7 ranks"), "{}", found.detail);
    let why = "missing rank 5; not counted, silent since before then: rank 2";
    assert!(found.detail.ends_with(why), "{}", found.detail);
}

#[test]
fn a_rank_that_fell_silent_when_all_ranks_stopped_is_missing_and_silent() {
    let mut events = reports(0, 20, |_| 50);
    events.extend(two_ranks_missing(20, 60));
    let incident = last(&mut detector(), &without(2, 19, events)).unwrap();
    let found = condition(&incident).unwrap();
    assert_eq!(found.ranks.len(), 2);
    let why = "missing ranks 2, 5; silent since then: rank 2";
    assert!(found.detail.ends_with(why), "{}", found.detail);
}

#[test]
fn a_report_of_any_signal_keeps_a_rank_among_the_missing() {
    let mut events = without(2, 5, reports(0, 20, |_| 50));
    // Blocks of rank 2 that closed meanwhile, and no heartbeat.
    let mut blocks = Job::with_ranks(N_RANKS).events(4, |_, _| Measured::HEALTHY);
    for block in &mut blocks {
        block.received = instant(15_000.0);
    }
    events.extend(blocks);
    events.extend(without(2, 0, two_ranks_missing(20, 60)));
    events.sort_by_key(|event| event.received);
    let found = detector().observe(&events).incidents;
    let hang = found.iter().find_map(condition).unwrap();
    assert_eq!(hang.ranks.len(), 2, "{}", hang.detail);
}

#[test]
fn a_hang_ends_with_its_job() {
    let mut detector = detector();
    assert!(last(&mut detector, &two_ranks_missing(0, 40)).is_some());
    let mut ended = detector.end_silent_jobs(instant(700_000.0)).incidents;
    let last = ended.pop().unwrap();
    assert_eq!(last.state, IncidentState::Cleared);
}

#[test]
fn a_job_that_progresses_slowly_does_not_hang() {
    let slow = (0..100).flat_map(|second| {
        reports(second, second + 1, move |rank| {
            100 + u64::from(second / 20) + u64::from(rank % 2)
        })
    });
    assert!(detector().observe(&slow.collect::<Vec<_>>()).is_empty());
}

#[test]
fn waiting_ranks_that_are_a_minority_are_no_hang() {
    // Three of eight ranks are ahead: the others may not take part in the operation.
    let ahead = reports(0, 60, |rank| if rank < 3 { 100 } else { 99 });
    assert!(detector().observe(&ahead).is_empty());
}

#[test]
fn ranks_at_the_same_operation_do_not_hang_unless_they_wait_for_their_gpus() {
    assert!(detector().observe(&reports(0, 90, |_| 100)).is_empty());
}

/// Reports of ranks that have all issued operation 99 and make no progress from `since_s` on. All
/// ranks except rank 3 are blocked.
fn standstill(since_s: u32, to_s: u32) -> Vec<StoredEvent> {
    let mut events = reports(0, since_s, |_| 50);
    events.extend(blocked(since_s, reports(since_s, to_s, |_| 100)));
    events
}

/// The same reports, but all ranks except rank 3 report that they have been blocked since then.
pub(super) fn blocked(since_s: u32, mut events: Vec<StoredEvent>) -> Vec<StoredEvent> {
    let since = instant(f64::from(since_s) * 1e3);
    for stored in &mut events {
        let is_other = stored.event.origin.rank.unwrap().rank().value() != 3;
        let ms = if is_other {
            stored.received.millis_since(since)
        } else {
            0.0
        };
        stored.event.attrs = Arc::from(format!(r#"{{"{}":{ms}}}"#, attribute::WAITING_MS));
    }
    events
}

#[test]
fn ranks_that_all_entered_an_operation_and_wait_for_their_gpus_hang() {
    let incident = last(&mut detector(), &standstill(5, 45)).unwrap();
    let found = condition(&incident).unwrap();
    let ranks: Vec<u32> = found.ranks.iter().map(|rank| rank.value()).collect();
    assert_eq!((found.kind, ranks), (ConditionKind::Hang, vec![3]));
    let why = "7 of 8 ranks wait for their GPUs; not waiting: rank 3";
    assert!(found.detail.ends_with(why), "{}", found.detail);
}

#[test]
fn a_standstill_is_a_stall_before_it_is_a_hang() {
    let mut detector = detector();
    detector.observe(&Job::with_ranks(N_RANKS).events(14, |_, _| Measured::HEALTHY));
    let begin_s = 100;
    let moved = reports(begin_s, begin_s + 1, |_| 99);
    detector.observe(&moved);
    let events = blocked(begin_s + 1, reports(begin_s + 1, begin_s + 10, |_| 100));
    let incident = last(&mut detector, &events).unwrap();
    assert_eq!(condition(&incident).unwrap().kind, ConditionKind::Stall);
    let cleared = last(&mut detector, &reports(begin_s + 10, begin_s + 12, |_| 200)).unwrap();
    assert_eq!(
        (cleared.id, cleared.state),
        (incident.id, IncidentState::Cleared)
    );
}

#[test]
fn a_stopped_process_does_not_wait_although_it_was_stopped_while_it_waited() {
    let mut events = standstill(5, 45);
    for stored in &mut events {
        if stored.event.origin.rank.unwrap().rank().value() == 5 {
            let of = (attribute::WAITING_MS, attribute::STOPPED);
            stored.event.attrs = Arc::from(format!(r#"{{"{}":40000.0,"{}":true}}"#, of.0, of.1));
        }
    }
    let incident = last(&mut detector(), &events).unwrap();
    let why = "6 of 8 ranks wait for their GPUs; not waiting: ranks 3, 5; stopped by a signal or a debugger: rank 5";
    assert!(incident.reason.ends_with(why), "{}", incident.reason);
}

#[test]
fn a_rank_that_fell_silent_in_a_standstill_is_named_as_silent() {
    let incident = last(&mut detector(), &without(3, 6, standstill(5, 60))).unwrap();
    let why = "silent since then: rank 3";
    assert!(incident.reason.ends_with(why), "{}", incident.reason);
}

#[test]
fn progress_on_another_communicator_is_no_standstill() {
    let job = Job::with_ranks(N_RANKS);
    let events = (0..60_u32).flat_map(|second| {
        let at_ms = f64::from(second) * 1e3;
        let n = 100 + u64::from(second);
        let idle = (0..N_RANKS).map(move |rank| (rank, 100, at_ms));
        idle.chain((0..N_RANKS).map(move |rank| (rank, n, at_ms)))
    });
    let mut events: Vec<StoredEvent> = events
        .map(|(rank, n, at_ms)| {
            let mut stored = job.issued(rank, n, at_ms);
            if let Some(block) = stored.event.block.as_mut().filter(|_| n == 100) {
                block.comm = CommId::new(77);
            }
            stored
        })
        .collect();
    events = blocked(0, events);
    assert!(detector().observe(&events).is_empty());
}

#[test]
fn ranks_that_mostly_do_not_wait_are_no_standstill() {
    let mut events = standstill(5, 60);
    for stored in &mut events {
        if stored.event.origin.rank.unwrap().rank().value() < 5 {
            stored.event.attrs = Arc::from("{}");
        }
    }
    assert!(detector().observe(&events).is_empty());
}

#[test]
fn a_long_list_of_missing_ranks_is_counted_not_spelt_out() {
    let job = Job::with_ranks(32);
    let all = (0..40_u32).flat_map(|second| (0..32).map(move |rank| (second, rank)));
    let events: Vec<_> = all
        .map(|(second, rank)| job.issued(rank, 99 + u64::from(rank >= 12), f64::from(second) * 1e3))
        .collect();
    let incident = last(&mut detector(), &events).unwrap();
    assert!(
        incident.reason.ends_with("and 4 more"),
        "{}",
        incident.reason
    );
}

#[test]
fn a_hang_continues_after_a_restart_and_one_that_ended_meanwhile_is_cleared() {
    let raised = last(&mut detector(), &two_ranks_missing(0, 40)).unwrap();
    let known = || vec![raised.clone()];

    let mut again = detector();
    again.observe(&two_ranks_missing(5, 40));
    assert!(
        again
            .restore(known(), instant(40_000.0), 1_000.0)
            .is_empty()
    );
    let later = last(&mut again, &two_ranks_missing(40, 90)).unwrap();
    assert_eq!((later.id, later.raised_at), (raised.id, raised.raised_at));

    let mut moved = detector();
    moved.observe(&two_ranks_missing(5, 40));
    moved.restore(known(), instant(40_000.0), 1_000.0);
    let cleared = last(&mut moved, &reports(40, 42, |_| 110)).unwrap();
    assert_eq!(
        (cleared.id, cleared.state),
        (raised.id, IncidentState::Cleared)
    );
}

#[test]
fn a_hang_is_not_ended_by_the_first_report_after_a_long_absence_of_echo() {
    let raised = last(&mut detector(), &two_ranks_missing(0, 40)).unwrap();
    let mut again = detector();
    again.observe(&two_ranks_missing(5, 40));
    again.restore(vec![raised.clone()], instant(600_000.0), 120_000.0);
    let first = again.observe(&two_ranks_missing(600, 601));
    assert!(first.is_empty(), "{first:?}");
    let later = last(&mut again, &two_ranks_missing(601, 760)).unwrap();
    assert_eq!((later.id, later.state), (raised.id, IncidentState::Open));
    assert_eq!(later.raised_at, raised.raised_at);
}

#[test]
fn a_hang_of_a_job_that_has_ended_is_cleared() {
    let raised = last(&mut detector(), &two_ranks_missing(0, 40)).unwrap();
    let mut empty = detector();
    assert!(
        empty
            .restore(vec![raised.clone()], instant(0.0), 0.0)
            .is_empty()
    );
    let gone = empty.end_silent_jobs(instant(120_000.0)).incidents;
    assert_eq!(
        (gone[0].id, gone[0].state),
        (raised.id, IncidentState::Cleared)
    );
}

#[test]
fn a_hang_costs_every_rank_its_whole_duration_once() {
    let mut detector = detector();
    let seconds = (0..60).map(|second| {
        detector
            .observe(&two_ranks_missing(second, second + 1))
            .lost
    });
    let lost: Vec<LostTime> = seconds.flatten().collect();
    let total: f64 = lost.iter().map(|row| row.lost_gpu_ms).sum();
    let waited: f64 = lost.iter().filter_map(|row| row.peer_wait_gpu_ms).sum();
    let seconds = (total / 8e3, waited / 6e3);
    assert!((seconds.0 - 59.0).abs() < 1e-6, "{seconds:?}");
    assert!((seconds.1 - 59.0).abs() < 1e-6, "{seconds:?}");
}
