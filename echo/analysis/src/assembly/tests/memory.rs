//! Memory limits: no sender can exhaust the memory.

use echo_core::ids::{CommId, RoleId};
use echo_core::model::event::{SeqRange, StoredEvent};

use super::super::Assembly;
use super::super::job::{Job as Assembled, MAX_HELD, MAX_ROLES};
use super::super::open_blocks::OpenBlocks;
use super::SILENCE_MS;
use crate::simulated::device::{Gpu, Gpus};
use crate::simulated::{Job, Measured, OPS_PER_BLOCK};

const N_RANKS: u32 = 4;
const N_BLOCKS: u64 = 5_000;

/// Maximum number of open blocks, reports and periods of one role (see `open_blocks`), for all of
/// its ranks.
const MOST_OF_A_ROLE: usize = N_RANKS as usize * (513 + 1_024);

/// Maximum number of pending GPU measurements: pairs of communicator and operation, blocks of each,
/// and samples of each rank.
const MOST_TRANSFERS: usize = 64 * 256 * N_RANKS as usize;

fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Adds the events in order of arrival and closes blocks in between. Returns the maximum number
/// held at any time.
fn most_held(events: &[StoredEvent], held: fn(&Assembled) -> usize) -> usize {
    let mut assembly = Assembly::default();
    let mut most = 0;
    for part in events.chunks(1_000) {
        for event in part {
            assembly.add(event);
        }
        assembly.closed(SILENCE_MS);
        most = assembly.jobs.values().map(held).fold(most, usize::max);
    }
    most
}

fn open(job: &Assembled) -> usize {
    job.cohorts.values().map(OpenBlocks::stored).sum()
}

fn events(mut alter: impl FnMut(&mut StoredEvent, u64)) -> Vec<StoredEvent> {
    let mut state = 0x9E37_79B9_7F4A_7C15;
    let mut events = Job::with_ranks(N_RANKS).events(N_BLOCKS, |_, _| Measured::HEALTHY);
    for stored in &mut events {
        alter(stored, next(&mut state));
    }
    events
}

#[test]
fn blocks_that_are_never_completed_are_dropped() {
    let mut altered = events(|_, _| {});
    // The arrivals, which complete a block, never come.
    altered.retain(|stored| stored.event.metric.as_str() != fleet_proto::metric::ARRIVAL);
    let most = most_held(&altered, open);
    assert!((1_000..=MOST_OF_A_ROLE + 1_000).contains(&most), "{most}");
}

#[test]
fn sequence_numbers_at_random_hold_no_more_blocks_open() {
    let altered = events(|stored, random| {
        let first = random >> 1;
        stored.event.block.as_mut().unwrap().seqs = SeqRange::new(first, first + OPS_PER_BLOCK);
    });
    let most = most_held(&altered, open);
    assert!(most <= MOST_OF_A_ROLE + 1_000, "{most}");
}

#[test]
fn roles_at_random_are_bounded() {
    let altered = events(|stored, random| {
        stored.event.block.as_mut().unwrap().role = Some(RoleId::new(random));
    });
    let roles = |job: &Assembled| {
        job.cohorts
            .len()
            .max(job.ready.len())
            .max(job.reached.len())
    };
    let most = most_held(&altered, roles);
    assert!(most <= MAX_ROLES, "{most}");
}

#[test]
fn communicators_at_random_restart_the_blocks_and_hold_nothing() {
    let altered = events(|stored, random| {
        stored.event.block.as_mut().unwrap().comm = CommId::new(random);
    });
    assert!(most_held(&altered, open) <= 8);
}

#[test]
fn gpu_waits_that_no_block_includes_are_dropped() {
    let mut state = 0x2545_F491_4F6C_DD1D;
    let mut altered = Gpus::alike(N_RANKS).events(N_BLOCKS, |_, _| Gpu::HEALTHY);
    altered.retain(|stored| stored.event.metric.as_str() == fleet_proto::metric::WAIT);
    for stored in &mut altered {
        let random = next(&mut state);
        let block = stored.event.block.as_mut().unwrap();
        block.comm = CommId::new(random % 100);
    }
    let most = most_held(&altered, |job| job.transfers.stored());
    assert!((1_000..=MOST_TRANSFERS).contains(&most), "{most}");
}

#[test]
fn closed_blocks_that_wait_for_another_role_are_bounded() {
    // Ranks 2 and 3 have a role of their own and never get beyond its first block.
    let mut altered = events(|stored, _| {
        let rank = stored.event.origin.rank.unwrap().rank().value();
        stored.event.block.as_mut().unwrap().role = Some(RoleId::new(u64::from(rank / 2)));
    });
    altered.retain(|stored| {
        let first = stored.event.block.as_ref().unwrap().seqs.unwrap().first();
        stored.event.origin.rank.unwrap().rank().value() < 2 || first == 0
    });
    let waiting = |job: &Assembled| {
        job.ready
            .values()
            .map(std::collections::VecDeque::len)
            .sum()
    };
    let most = most_held(&altered, waiting);
    assert!((1_000..=MAX_HELD + 1_000).contains(&most), "{most}");
}

#[test]
fn a_job_that_has_ended_holds_nothing() {
    let mut assembly = Assembly::default();
    for event in &Job::with_ranks(N_RANKS).events(4, |_, _| Measured::HEALTHY) {
        assembly.add(event);
    }
    let ended = assembly.take_ended(crate::simulated::instant(1e6), 600_000.0);
    assert_eq!((ended.len(), assembly.jobs.len()), (1, 0));
}
