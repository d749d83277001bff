//! Times at which ranks issued their last operations.

use std::sync::Arc;

use echo_core::ids::CommId;
use echo_core::model::detector_output::{ConditionKind, Incident};
use echo_core::model::event::StoredEvent;
use fleet_proto::attribute;

use super::hangs::{N_RANKS, detector};
use crate::simulated::outcome::condition;
use crate::simulated::{Job, Measured, instant};

/// Time between two reports of an agent, seconds.
const REPORTS_S: u32 = 4;

/// Reports, from `from_s` to `to_s`, of ranks that have issued their last operations on each
/// communicator at these times, in milliseconds, and have been blocked since then.
fn reports(
    (from_s, to_s): (u32, u32),
    comms: &[u64],
    issued: impl Fn(u32, u64) -> (u64, f64),
) -> Vec<StoredEvent> {
    let job = Job::with_ranks(N_RANKS);
    let mut events = Vec::new();
    for second in (from_s..to_s).step_by(REPORTS_S as usize) {
        for (rank, comm) in (0..N_RANKS).flat_map(|rank| comms.iter().map(move |comm| (rank, comm)))
        {
            let ((n, issued_ms), now_ms) = (issued(rank, *comm), f64::from(second) * 1e3);
            let mut stored = job.issued(rank, n, now_ms);
            let ms = now_ms - issued_ms;
            let (age, waiting) = (attribute::AGE_MS, attribute::WAITING_MS);
            stored.event.attrs = Arc::from(format!(r#"{{"{age}":{ms},"{waiting}":{ms}}}"#));
            if let Some(block) = &mut stored.event.block {
                block.comm = CommId::new(*comm);
            }
            events.push(stored);
        }
    }
    events
}

/// Incident of ranks that call operations on two communicators, those of `reversed` in the other
/// order, and wait for their GPUs from then on.
fn stuck(reversed: &[u32]) -> Incident {
    let events = reports((4, 60), &[1, 2], |rank, comm| {
        let is_second = (comm == 2) != reversed.contains(&rank);
        (100, if is_second { 1_000.5 } else { 1_000.0 })
    });
    detector().observe(&events).incidents.pop().unwrap()
}

fn ranks(incident: &Incident) -> Vec<u32> {
    let ranks = &condition(incident).unwrap().ranks;
    ranks.iter().map(|rank| rank.value()).collect()
}

#[test]
fn ranks_that_call_two_communicators_in_another_order_than_the_others_are_named() {
    let incident = stuck(&[1, 6]);
    assert_eq!(ranks(&incident), [1, 6]);
    let why = "8 of 8 ranks wait for their GPUs; deadlock by order: ranks 0, 2, 3, 4, 5, 7 enqueued operation 99 \
        of communicator 0000000000000001 before operation 99 of communicator 0000000000000002, ranks 1, 6 the \
        other way round";
    assert!(incident.reason.ends_with(why), "{}", incident.reason);
}

#[test]
fn of_two_halves_that_call_in_different_orders_neither_is_named() {
    let incident = stuck(&[0, 1, 2, 3]);
    assert_eq!(ranks(&incident), [0_u32; 0]);
    let why = "ranks 0, 1, 2, 3 the other way round";
    assert!(incident.reason.ends_with(why), "{}", incident.reason);
}

#[test]
fn ranks_that_call_in_one_order_are_no_deadlock_by_order() {
    let incident = stuck(&[]);
    let why = "8 of 8 ranks wait for their GPUs";
    assert!(incident.reason.ends_with(why), "{}", incident.reason);
}

/// Incident of ranks that wait for their GPUs, which are in so many operations. The host of one rank polls instead of
/// waiting.
fn incident_if_running(running: impl Fn(u32) -> Option<u64>, polls: Option<u32>) -> Incident {
    let mut events = reports((4, 60), &[1], |_, _| (100, 1_000.0));
    for stored in &mut events {
        let rank = stored.event.origin.rank.unwrap().rank().value();
        if polls == Some(rank) {
            let waiting = attribute::WAITING_MS;
            let attrs = stored.event.attrs.split(&format!(r#","{waiting}"#)).next();
            stored.event.attrs = Arc::from(format!(r#"{},"{waiting}":0}}"#, attrs.unwrap()));
        }
        if let Some(n) = running(rank) {
            let attrs = stored.event.attrs.trim_end_matches('}');
            let name = attribute::RUNNING;
            stored.event.attrs = Arc::from(format!(r#"{attrs},"{name}":{n}}}"#));
        }
    }
    detector().observe(&events).incidents.pop().unwrap()
}

fn is_explained(incident: &Incident) -> bool {
    condition(incident).unwrap().is_explained
}

#[test]
fn of_ranks_that_all_wait_the_one_whose_gpu_is_in_no_operation_is_named() {
    let incident = incident_if_running(|rank| Some(u64::from(rank != 5)), None);
    assert_eq!(ranks(&incident), [5]);
    assert!(is_explained(&incident));
    let why = "8 of 8 ranks wait for their GPUs; the GPU of rank 5 is in no NCCL operation, those of the other ranks are in one";
    assert!(incident.reason.ends_with(why), "{}", incident.reason);
}
#[test]
fn half_of_the_ranks_can_be_named_and_a_stopped_rank_does_not_wait() {
    let half = incident_if_running(|rank| Some(u64::from(rank < 4)), None);
    assert_eq!(ranks(&half), [4, 5, 6, 7]);
    let mut events = reports((4, 60), &[1], |_, _| (100, 1_000.0));
    for stored in &mut events {
        if stored.event.origin.rank.unwrap().rank().value() == 3 {
            let attrs = stored.event.attrs.trim_end_matches('}');
            let (stopped, running) = (attribute::STOPPED, attribute::RUNNING);
            stored.event.attrs = Arc::from(format!(r#"{attrs},"{stopped}":true,"{running}":1}}"#));
        }
    }
    let stopped = detector().observe(&events).incidents.pop().unwrap();
    assert_eq!(ranks(&stopped), [3]);
}

#[test]
fn if_all_gpus_are_in_an_operation_or_most_are_not_or_one_is_unknown_no_rank_is_named() {
    let cases: [fn(u32) -> Option<u64>; 4] = [
        |_| Some(0),
        |_| Some(1),
        |rank| Some(u64::from(rank < 3)),
        |rank| (rank != 7).then_some(u64::from(rank != 5)),
    ];
    for running in cases {
        let incident = incident_if_running(running, None);
        assert_eq!(ranks(&incident), [0_u32; 0], "{}", incident.reason);
        assert!(!is_explained(&incident));
        let why = "8 of 8 ranks wait for their GPUs";
        assert!(incident.reason.ends_with(why), "{}", incident.reason);
    }
}

#[test]
fn a_rank_that_polls_while_its_gpu_is_in_an_operation_is_not_named() {
    let polls = |running: fn(u32) -> Option<u64>| {
        let incident = incident_if_running(running, Some(3));
        (ranks(&incident), is_explained(&incident))
    };
    assert_eq!(polls(|_| None), (vec![3], false));
    assert_eq!(polls(|_| Some(1)), (vec![], false));
    assert_eq!(polls(|rank| Some(u64::from(rank != 5))), (vec![5], true));
    assert_eq!(polls(|rank| Some(u64::from(rank != 3))), (vec![3], true));
}

#[test]
fn two_ranks_of_a_job_that_hangs_are_examined_while_no_rank_is_named() {
    let examined = |n_issued: fn(u32) -> u64| {
        let mut detector = detector();
        let events = reports((4, 60), &[1], |rank, _| (n_issued(rank), 1_000.0));
        let incident = detector.observe(&events).incidents.pop().unwrap();
        let job = (incident.cluster, incident.job);
        let examined = detector.hang_tracker.examined(&job);
        examined.iter().map(|rank| rank.value()).collect::<Vec<_>>()
    };
    assert_eq!(examined(|_| 100), [0, 1]);
    assert_eq!(
        examined(|rank| if rank == 2 { 99 } else { 100 }),
        [0_u32; 0]
    );
}

#[test]
fn two_ranks_that_send_to_each_other_first_are_no_deadlock_by_order() {
    let mut events = reports((4, 60), &[1, 2], |rank, comm| {
        (
            100,
            if (comm == 2) == (rank == 0) {
                1_000.0
            } else {
                1_000.5
            },
        )
    });
    events.retain(|stored| stored.event.origin.rank.unwrap().rank().value() < 2);
    for stored in &mut events {
        stored.event.block.as_mut().unwrap().op = Some("Send".parse().unwrap());
    }
    events.extend(reports((4, 60), &[3], |_, _| (100, 1_000.0)));
    events.sort_by_key(|stored| stored.received);
    let incident = detector().observe(&events).incidents.pop().unwrap();
    let why = "8 of 8 ranks wait for their GPUs";
    assert!(incident.reason.ends_with(why), "{}", incident.reason);
}

#[test]
fn a_hang_begins_at_most_a_minute_before_its_first_report_whatever_age_is_reported() {
    let events = reports((100, 160), &[1], |rank, _| {
        (if rank == 3 { 99 } else { 100 }, -1e15)
    });
    let incident = detector().observe(&events).incidents.pop().unwrap();
    assert_eq!(
        (ranks(&incident), incident.first_seen),
        (vec![3], instant(40e3))
    );
}

#[test]
fn a_stall_and_a_hang_are_known_one_report_after_their_limits() {
    let mut detector = detector();
    detector.observe(&Job::with_ranks(N_RANKS).events(14, |_, _| Measured::HEALTHY));
    // Operation 99 was issued right after a report, which does not show it.
    let issued_s = 100;
    let moved = reports((issued_s - 4, issued_s), &[1], |_, _| (99, 95_900.0));
    assert!(detector.observe(&moved).is_empty());
    let later = reports((issued_s + 4, issued_s + 50), &[1], |rank, _| {
        let missing = (99, 95_900.0);
        if rank == 3 { missing } else { (100, 100_100.0) }
    });
    let mut known = Vec::new();
    for round in later.chunk_by(|one, next| one.received == next.received) {
        let at = round[0].received;
        let mut found = detector.observe(round).incidents;
        found.extend(detector.end_silent_jobs(at).incidents);
        for incident in found {
            assert_eq!(ranks(&incident), [3]);
            let found = condition(&incident).unwrap();
            if known.last().is_none_or(|(kind, _)| *kind != found.kind) {
                known.push((found.kind, at));
            }
        }
    }
    let expected = [(ConditionKind::Stall, 112e3), (ConditionKind::Hang, 132e3)];
    assert_eq!(known, expected.map(|(kind, ms)| (kind, instant(ms))));
}

#[test]
fn a_rank_whose_reports_arrive_after_those_of_its_peers_is_not_missing() {
    // It was busy, or idle for a minute, when it reported last.
    for (issued_ms, received_ms) in [(103_900.0, 200e3), (40_000.0, 190e3)] {
        let mut detector = detector();
        detector.observe(&Job::with_ranks(N_RANKS).events(14, |_, _| Measured::HEALTHY));
        let is_late = |stored: &StoredEvent| stored.event.origin.rank.unwrap().rank().value() == 3;
        let mut arrived = reports((104, 108), &[1], |_, _| (80, issued_ms));
        arrived.retain(is_late);
        for stored in &mut arrived {
            stored.received = instant(received_ms);
        }
        // All that its peers have sent of the job arrives at once.
        let mut of_others = reports((112, 140), &[1], |_, _| (100, 110_000.0));
        of_others.retain(|stored| !is_late(stored));
        for stored in &mut of_others {
            stored.received = instant(199e3);
            let attrs = stored.event.attrs.replace(attribute::WAITING_MS, "other");
            stored.event.attrs = Arc::from(attrs);
        }
        arrived.extend(of_others);
        arrived.sort_by_key(|stored| stored.received);
        let mut found = detector.observe(&arrived).incidents;
        found.extend(detector.end_silent_jobs(instant(199.5e3)).incidents);
        assert_eq!(found, [], "{issued_ms}");
    }
}
