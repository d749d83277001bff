//! Processes that end while their peers run.

use std::sync::Arc;

use echo_core::ids::{CommId, Rank};
use echo_core::model::detector_output::{ConditionKind, Incident, IncidentState};
use echo_core::model::event::{Reading, StoredEvent};
use fleet_proto::attribute;

use crate::detector::tests::hangs::{N_RANKS, detector, reports};
use crate::simulated::outcome::{condition, kinds};
use crate::simulated::{Job, instant};

const IDLE: CommId = CommId::new(77);
const KILLED: (&str, u32) = (attribute::EXIT_SIGNAL, 9);
const ABORTED: (&str, u32) = (attribute::EXIT_SIGNAL, 6);
const ASKED: (&str, u32) = (attribute::EXIT_SIGNAL, 15);
const RETURNED: (&str, u32) = (attribute::EXIT_CODE, 0);
const FAILED: (&str, u32) = (attribute::EXIT_CODE, 1);

/// Reports of ranks that run until second 20 and then wait, until they end: rank, time in milliseconds,
/// and how. They have issued nothing on another communicator since they began.
fn job_in_which(ends: &[(u32, f64, (&str, u32))]) -> Vec<StoredEvent> {
    let has_ended = |stored: &StoredEvent| {
        let rank = stored.event.origin.rank.unwrap().rank().value();
        let mut ends = ends.iter();
        ends.any(|(of, at_ms, _)| *of == rank && instant(*at_ms) <= stored.event.timestamp)
    };
    let used = |second: u32| reports(second, second + 1, |_| 100 + u64::from(second.min(20)));
    let mut events: Vec<StoredEvent> = (0..60).flat_map(used).collect();
    events.extend(on(IDLE, reports(0, 60, |_| 7)));
    events.retain(|stored| !has_ended(stored));
    let job = Job::with_ranks(N_RANKS);
    for (rank, at_ms, (attribute, number)) in ends {
        let mut last = vec![job.issued(*rank, 120, *at_ms)];
        last.extend(on(IDLE, vec![job.issued(*rank, 7, *at_ms)]));
        for stored in &mut last {
            stored.event.attrs = Arc::from(format!(r#"{{"{attribute}":{number}}}"#));
        }
        events.extend(last);
    }
    events.sort_by_key(|stored| stored.received);
    events
}

/// The same reports about another communicator.
fn on(comm: CommId, mut events: Vec<StoredEvent>) -> Vec<StoredEvent> {
    for stored in &mut events {
        stored.event.block.as_mut().unwrap().comm = comm;
    }
    events
}

fn found(ends: &[(u32, f64, (&str, u32))]) -> Vec<Incident> {
    found_in(&job_in_which(ends))
}

fn found_in(events: &[StoredEvent]) -> Vec<Incident> {
    let mut detector = detector();
    let mut found = detector.observe(events).incidents;
    found.extend(detector.find_ended_jobs(instant(100_000.0)).incidents);
    found
}

/// Asserts that the crash names no rank, because another end may have been the first.
fn assert_names_no_rank(events: &[StoredEvent], why: &str) {
    let incident = found_in(events).pop().unwrap();
    let why = format!("it may not be the first: {why}");
    assert!(ranks(&incident).is_empty(), "{}", incident.reason);
    assert!(incident.reason.ends_with(&why), "{}", incident.reason);
}

fn last(ends: &[(u32, f64, (&str, u32))]) -> Incident {
    found(ends).pop().unwrap()
}

fn ranks(incident: &Incident) -> Vec<u32> {
    let ranks = &condition(incident).unwrap().ranks;
    ranks.iter().map(|rank| rank.value()).collect()
}

/// The launcher ends all ranks but one shortly after that one.
fn launcher_ends_all_but(first: u32, from_ms: f64) -> Vec<(u32, f64, (&'static str, u32))> {
    let others = (0..N_RANKS).filter(|rank| *rank != first);
    others
        .map(|rank| (rank, f64::from(rank).mul_add(10.0, from_ms), ASKED))
        .collect()
}

#[test]
fn the_first_rank_that_ends_by_a_signal_is_named_though_its_job_ends_at_once() {
    let mut ends = launcher_ends_all_but(3, 20_150.0);
    ends.push((3, 20_100.0, KILLED));
    let incident = last(&ends);
    assert_eq!(condition(&incident).unwrap().kind, ConditionKind::Crash);
    assert_eq!(
        (ranks(&incident), incident.first_seen),
        (vec![3], instant(20_100.0))
    );
    let why = "the process of rank 3 ended by SIGKILL, then rank 0 by SIGTERM, rank 1 by SIGTERM";
    assert!(incident.reason.starts_with(why), "{}", incident.reason);
}

#[test]
fn it_is_open_six_seconds_after_the_end_was_reported_and_before_a_hang_would_be() {
    let events = job_in_which(&[(3, 20_100.0, FAILED)]);
    let until = |ms: f64| {
        events
            .iter()
            .filter(move |stored| stored.received < instant(ms))
            .cloned()
    };
    let mut detector = detector();
    assert!(
        detector
            .observe(&until(25_000.0).collect::<Vec<_>>())
            .is_empty()
    );
    let rest: Vec<StoredEvent> = until(28_000.0)
        .filter(|one| one.received >= instant(25_000.0))
        .collect();
    let output = detector.observe(&rest);
    assert_eq!(kinds(&output.incidents)[0], ConditionKind::Crash);
    assert_eq!(ranks(&output.incidents[0]), [3]);
    assert!(
        output.incidents[0]
            .reason
            .ends_with("ended with exit code 1")
    );
}

#[test]
fn the_peers_lose_the_time_until_they_are_killed() {
    let mut ends = launcher_ends_all_but(3, 50_000.0);
    ends.push((3, 20_100.0, KILLED));
    let mut detector = detector();
    let lost = detector.observe(&job_in_which(&ends)).lost;
    let lost_s: f64 = lost.iter().map(|row| row.lost_gpu_ms / 1e3).sum();
    // Eight ranks for 30 s, as far as their reports of each second tell.
    assert!((225.0..=245.0).contains(&lost_s), "{lost_s}");
}

#[test]
fn a_job_that_is_asked_to_end_or_has_done_its_work_has_not_crashed() {
    for first in [ASKED, RETURNED] {
        let mut ends = launcher_ends_all_but(3, 20_150.0);
        ends.push((3, 20_100.0, first));
        assert!(found(&ends).is_empty());
        // After some time the scheduler kills what has not ended.
        ends.retain(|(rank, ..)| *rank != 5);
        ends.push((5, 50_000.0, KILLED));
        assert!(found(&ends).is_empty());
    }
}

#[test]
fn no_rank_of_a_job_that_is_killed_as_a_whole_is_named() {
    let ends = (0..N_RANKS).map(|rank| (rank, f64::from(rank).mul_add(90.0, 20_000.0), KILLED));
    let incident = last(&ends.collect::<Vec<_>>());
    assert_eq!(condition(&incident).unwrap().kind, ConditionKind::Crash);
    assert!(ranks(&incident).is_empty());
    assert_eq!(incident.reason, "8 of 8 ranks ended by SIGKILL at once");
}

#[test]
fn victims_of_a_hang_that_give_up_are_not_named() {
    let mut detector = detector();
    let mut events = reports(0, 45, |rank| if rank == 2 { 99 } else { 100 });
    let job = Job::with_ranks(N_RANKS);
    let given_up = (0..N_RANKS).filter(|rank| *rank != 2).map(|rank| {
        let mut stored = job.issued(rank, 100, f64::from(rank).mul_add(700.0, 45_000.0));
        stored.event.attrs = Arc::from(format!(r#"{{"{}":{}}}"#, ABORTED.0, ABORTED.1));
        stored
    });
    events.extend(given_up);
    let mut found = detector.observe(&events).incidents;
    found.extend(detector.end_silent_jobs(instant(70_000.0)).incidents);
    // Nor once the hang is over, because no rank reports any more.
    found.extend(detector.find_ended_jobs(instant(90_000.0)).incidents);
    found.extend(detector.find_ended_jobs(instant(91_000.0)).incidents);
    assert!(found.iter().all(|one| ranks(one) == [2]), "{found:?}");
    let last = found.last().unwrap();
    assert_eq!(condition(last).unwrap().kind, ConditionKind::Hang);
    assert_eq!(last.state, IncidentState::Cleared);
}

#[test]
fn a_hang_ends_with_the_last_process_of_its_job() {
    for how in [KILLED, ASKED] {
        let mut detector = detector();
        let hanging = reports(0, 45, |rank| if rank == 2 { 99 } else { 100 });
        let mut found = detector.observe(&hanging).incidents;
        let job = Job::with_ranks(N_RANKS);
        let ends = (0..N_RANKS).map(|rank| {
            let issued = if rank == 2 { 99 } else { 100 };
            let mut stored = job.issued(rank, issued, f64::from(rank).mul_add(10.0, 45_000.0));
            stored.event.attrs = Arc::from(format!(r#"{{"{}":{}}}"#, how.0, how.1));
            stored
        });
        found.extend(detector.observe(&ends.collect::<Vec<_>>()).incidents);
        found.extend(detector.find_ended_jobs(instant(46_000.0)).incidents);
        let last = found.last().unwrap();
        assert_eq!(condition(last).unwrap().kind, ConditionKind::Hang);
        assert_eq!((ranks(last), last.state), (vec![2], IncidentState::Cleared));
        for ms in [55_000.0, 70_000.0] {
            assert!(detector.find_ended_jobs(instant(ms)).incidents.is_empty());
        }
    }
}

#[test]
fn a_rank_that_is_started_again_ends_the_crash() {
    let mut detector = detector();
    let raised = detector
        .observe(&job_in_which(&[(3, 20_100.0, KILLED)]))
        .incidents;
    let again = on(CommId::new(88), reports(60, 63, |_| 7));
    let cleared = detector.observe(&again).incidents.pop().unwrap();
    assert_eq!(cleared.id, raised[0].id);
    assert_eq!(cleared.state, IncidentState::Cleared);
    assert_eq!(condition(&cleared).unwrap().ranks, [Rank::new(3)]);
}

#[test]
fn a_rank_is_not_named_if_another_one_fell_silent_before_its_end() {
    let mut ends = launcher_ends_all_but(3, 20_150.0);
    ends.retain(|(rank, ..)| *rank != 5);
    ends.push((3, 20_100.0, ABORTED));
    let mut events = job_in_which(&ends);
    let of_silent = |one: &StoredEvent| one.event.origin.rank.unwrap().rank() == Rank::new(5);
    events.retain(|one| !of_silent(one) || one.received < instant(19_000.0));
    assert_names_no_rank(&events, "silent since before then: rank 5");
}

#[test]
fn a_job_that_goes_on_without_a_rank_has_not_crashed() {
    let mut detector = detector();
    let mut events = job_in_which(&[(3, 20_100.0, KILLED)]);
    for stored in &mut events {
        let second = (stored.received.value() - instant(0.0).value()) / 1_000_000_000;
        let is_used = stored.event.block.as_ref().unwrap().comm != IDLE;
        if is_used && stored.event.attrs.len() < 5 {
            stored.event.reading = Reading::Int(100 + second);
        }
    }
    let found = detector.observe(&events).incidents;
    let last = found.last().unwrap();
    assert_eq!(last.state, IncidentState::Cleared, "{found:?}");
    assert!(last.last_seen < instant(31_000.0));
}

#[test]
fn a_job_that_crashed_long_before_a_restart_is_not_reported_again() {
    let mut ends = launcher_ends_all_but(3, 20_150.0);
    ends.push((3, 20_100.0, KILLED));
    let mut detector = detector();
    detector.observe(&job_in_which(&ends));
    let found = detector.find_ended_jobs(instant(3_600_000.0));
    assert!(found.is_empty());
}

#[test]
fn a_rank_is_not_named_if_the_end_of_another_node_was_received_long_before_its_own() {
    let mut ends = launcher_ends_all_but(3, 20_150.0);
    ends.push((3, 20_100.0, KILLED));
    let mut events = job_in_which(&ends);
    for stored in &mut events {
        let is_first = stored.event.origin.rank.unwrap().rank() == Rank::new(3);
        if is_first && stored.event.timestamp == instant(20_100.0) {
            stored.received = instant(22_000.0);
        }
    }
    events.sort_by_key(|stored| stored.received);
    assert_names_no_rank(&events, "clocks of nodes differ");
}
