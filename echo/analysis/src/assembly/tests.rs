use echo_core::ids::RoleId;

use crate::assembly::Assembly;
use crate::simulated::{Job, Measured};

mod memory;
mod waits;

const SILENCE_MS: f64 = 30_000.0;

#[test]
fn a_block_waits_for_every_rank_of_the_world() {
    let events = Job::with_ranks(4).events(2, |_, _| Measured::HEALTHY);
    let (last_rank, others): (Vec<_>, Vec<_>) = events
        .into_iter()
        .partition(|stored| stored.event.origin.rank.unwrap().rank().value() == 3);
    let mut assembly = Assembly::default();
    for event in &others {
        assembly.add(event);
    }
    assert!(assembly.closed(SILENCE_MS).is_empty());
    for event in &last_rank {
        assembly.add(event);
    }
    let closed = assembly.closed(SILENCE_MS);
    assert_eq!(closed.len(), 2);
    assert!(
        closed
            .iter()
            .all(|(_, block)| block.members.len() == 4 && block.n_expected == 4)
    );
}

#[test]
fn a_rank_that_falls_silent_is_no_longer_awaited_and_lowers_coverage() {
    let mut events = Job::with_ranks(4).events(8, |_, _| Measured::HEALTHY);
    events.retain(|stored| {
        let seqs = stored
            .event
            .block
            .as_ref()
            .and_then(|block| block.seqs)
            .unwrap();
        stored.event.origin.rank.unwrap().rank().value() != 3 || seqs.first() == 0
    });
    let later = events.len() / 2;
    for stored in events.iter_mut().skip(later) {
        stored.received = stored.received.offset(60_000_000_000);
    }
    let mut assembly = Assembly::default();
    for event in &events {
        assembly.add(event);
    }
    let closed = assembly.closed(SILENCE_MS);
    let sizes: Vec<usize> = closed
        .iter()
        .map(|(_, block)| block.members.len())
        .collect();
    assert_eq!(sizes, [4, 3, 3, 3, 3, 3, 3, 3]);
    assert!(closed.iter().all(|(_, block)| block.n_expected == 4));
}

#[test]
fn a_point_that_arrives_after_its_block_was_closed_is_counted_and_not_analysed() {
    let events = Job::with_ranks(2).events(3, |_, _| Measured::HEALTHY);
    let mut assembly = Assembly::default();
    for event in &events {
        assembly.add(event);
    }
    assert_eq!(assembly.closed(SILENCE_MS).len(), 3);
    assembly.add(&events[0]);
    assert_eq!(assembly.late(), 1);
    assert!(assembly.closed(SILENCE_MS).is_empty());
}

#[test]
fn ranks_with_different_roles_are_never_compared() {
    let mut events = Job::with_ranks(4).events(2, |_, _| Measured::HEALTHY);
    for stored in &mut events {
        let rank = stored.event.origin.rank.unwrap().rank().value();
        if let Some(block) = &mut stored.event.block {
            block.role = Some(RoleId::new(u64::from(rank / 2)));
        }
    }
    let mut assembly = Assembly::default();
    for event in &events {
        assembly.add(event);
    }
    let closed = assembly.closed(SILENCE_MS);
    assert_eq!(closed.len(), 4);
    assert!(
        closed
            .iter()
            .all(|(_, block)| block.members.len() == 2 && block.n_expected == 2)
    );
}

#[test]
fn the_period_belongs_to_the_block_in_which_it_was_completed() {
    let events = Job::with_ranks(2).events(2, |block, _| Measured {
        period_ms: if block == 0 { 50.0 } else { 58.0 },
        ..Measured::HEALTHY
    });
    let mut assembly = Assembly::default();
    for event in &events {
        assembly.add(event);
    }
    let periods: Vec<f64> = assembly
        .closed(SILENCE_MS)
        .iter()
        .filter_map(|(_, block)| block.period)
        .map(|p| p.ms)
        .collect();
    assert_eq!(periods, [50.0, 58.0]);
}
