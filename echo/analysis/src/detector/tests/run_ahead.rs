//! Hangs of jobs whose hosts ran ahead of their GPUs, or that have several communicators.

use echo_core::ids::CommId;
use echo_core::model::detector_output::{Condition, LostTime};
use echo_core::model::event::StoredEvent;

use super::hangs::{N_RANKS, detector, reports};
use crate::simulated::Job;
use crate::simulated::outcome::condition;

/// Conditions after the reports, each with the ranks that it names.
fn found(events: &[StoredEvent]) -> Vec<(Vec<u32>, Condition)> {
    let output = detector().observe(events);
    let conditions = output.incidents.iter().filter_map(condition);
    let mut last: Vec<(Vec<u32>, Condition)> = Vec::new();
    for one in conditions {
        let ranks = one.ranks.iter().map(|rank| rank.value()).collect();
        last.retain(|(other, _)| *other != ranks);
        last.push((ranks, one.clone()));
    }
    last
}

/// Reports of the ranks in a communicator, every second for a minute.
fn on(comm: u64, ranks: &[u32], issued: impl Fn(u32) -> u64) -> Vec<StoredEvent> {
    let job = Job::with_ranks(N_RANKS);
    let all = (0..60_u32).flat_map(|second| ranks.iter().map(move |rank| (second, *rank)));
    let report = |(second, rank)| {
        let mut stored = job.issued(rank, issued(rank), f64::from(second) * 1e3);
        if let Some(block) = stored.event.block.as_mut() {
            block.comm = CommId::new(comm);
        }
        stored
    };
    all.map(report).collect()
}

fn merged(parts: [Vec<StoredEvent>; 2]) -> Vec<StoredEvent> {
    let mut events = parts.concat();
    events.sort_by_key(|event| event.received);
    events
}

#[test]
fn ranks_that_ran_ahead_less_than_others_are_not_missing() {
    let counts = [64, 65, 66, 67, 66, 65, 64, 60];
    let found = found(&reports(0, 60, |rank| counts[rank as usize]));
    let [(ranks, hang)] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(ranks, &[7]);
    assert!(
        hang.detail.starts_with("7 of 8 ranks entered operation 60"),
        "{}",
        hang.detail
    );
}

/// Rank 0 waits for rank 1, which waits for rank 2.
fn chain() -> Vec<StoredEvent> {
    let pair = on(71, &[0, 1], |rank| if rank == 0 { 8 } else { 7 });
    merged([pair, on(72, &[1, 2], |rank| if rank == 1 { 6 } else { 5 })])
}

#[test]
fn a_chain_over_communicators_names_its_source_only() {
    let found = found(&chain());
    let [(ranks, hang)] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(ranks, &[2]);
    let held = "missing rank 2; waiting in other communicators: rank 0";
    assert!(hang.detail.ends_with(held), "{}", hang.detail);
}

#[test]
fn the_ranks_of_a_whole_chain_lose_time() {
    let lost: Vec<LostTime> = (0..60)
        .scan(detector(), |detector, second| {
            let now = chain().into_iter().filter(|event| {
                event.received == crate::simulated::instant(f64::from(second) * 1e3)
            });
            Some(detector.observe(&now.collect::<Vec<_>>()).lost)
        })
        .flatten()
        .collect();
    let total_ms: f64 = lost.iter().map(|row| row.lost_gpu_ms).sum();
    assert!((total_ms / 3e3 - 59.0).abs() < 1e-6, "{total_ms}");
}

#[test]
fn numbers_of_operations_are_not_compared_where_ranks_send_to_each_other() {
    let mut events = on(73, &[0, 1, 2], |rank| 10 + u64::from(rank));
    for stored in &mut events {
        if let Some(block) = stored.event.block.as_mut() {
            block.op = Some("Send".parse().unwrap());
        }
    }
    assert!(detector().observe(&events).is_empty());
}
