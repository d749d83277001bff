//! Waits measured by GPUs, and the progress of ranks.

use echo_core::ids::{CommId, Rank};
use echo_core::model::event::{Reading, Source, StoredEvent};

use super::SILENCE_MS;
use crate::assembly::{Assembly, CohortBlock};
use crate::simulated::device::{Gpu, Gpus, Ring};
use crate::simulated::{Job, instant};

fn blocks(events: &[StoredEvent]) -> Vec<CohortBlock> {
    let mut assembly = Assembly::default();
    for event in events {
        assembly.add(event);
    }
    let closed = assembly.closed(SILENCE_MS).into_iter();
    closed.map(|(_, block)| block).collect()
}

#[test]
fn a_block_includes_the_waits_of_its_own_communicator() {
    let found = blocks(&Gpus::alike(4).events(3, |_, _| Gpu::HEALTHY));
    assert_eq!(found.len(), 3);
    for block in &found {
        assert_eq!(block.transfers.len(), 1);
        assert_eq!(block.transfers[0].seqs, block.seqs);
        assert_eq!(block.transfers[0].ranks.len(), 4);
    }
}

#[test]
fn waits_of_other_communicators_are_included_once_they_ended_before_the_block_began() {
    let found = blocks(&Gpus::pairs(2).events(3, |_, _| Gpu::HEALTHY));
    let of_pairs = |block: &CohortBlock| {
        let pairs = block.transfers.iter().filter(|one| one.comm.value() >= 30);
        pairs.map(|one| one.seqs.first()).collect::<Vec<_>>()
    };
    let taken: Vec<Vec<u64>> = found.iter().map(of_pairs).collect();
    assert_eq!(taken, [vec![], vec![0, 0], vec![40, 40]]);
}

#[test]
fn waits_across_roles_are_compared_by_no_cohort() {
    let mut job = Gpus::pipeline(2, 2);
    job.rings.push(Ring {
        comm: 50,
        ranks: vec![0, 2],
    });
    let found = blocks(&job.events(4, |_, _| Gpu::HEALTHY));
    let comms = found.iter().flat_map(|block| &block.transfers);
    assert!(comms.clone().count() > 0);
    assert!(comms.clone().all(|one| one.comm != CommId::new(50)));
}

#[test]
fn waits_measured_by_hosts_are_no_transfers() {
    let mut events = Gpus::alike(4).events(3, |_, _| Gpu::HEALTHY);
    for stored in &mut events {
        stored.event.block.as_mut().unwrap().source = Source::Host;
    }
    assert!(
        blocks(&events)
            .iter()
            .all(|block| block.transfers.is_empty())
    );
}

#[test]
fn waits_measured_by_the_gpu_are_preferred_to_those_of_the_host() {
    let by_gpu = Gpus::alike(2).events(1, |_, _| Gpu::HEALTHY);
    let by_host = by_gpu
        .iter()
        .filter(|stored| stored.event.metric.as_str() == fleet_proto::metric::BLOCKED);
    let by_host: Vec<StoredEvent> = by_host
        .cloned()
        .map(|mut stored| {
            stored.event.block.as_mut().unwrap().source = Source::Host;
            if let Reading::Histogram(summary) = &mut stored.event.reading {
                summary.sum = 0.0;
            }
            stored
        })
        .collect();
    let before = [by_host.clone(), by_gpu.clone()].concat();
    let mut after = by_gpu;
    let arrival =
        |stored: &StoredEvent| stored.event.metric.as_str() == fleet_proto::metric::ARRIVAL;
    let at = after.iter().position(arrival).unwrap();
    after.splice(at..at, by_host);
    for events in [before, after] {
        let members = &blocks(&events)[0].members;
        assert!(
            members
                .iter()
                .all(|member| member.blocked.unwrap().sum > 0.0)
        );
    }
}

#[test]
fn progress_distinguishes_the_last_move_of_a_rank_from_its_last_report() {
    let job = Job::with_ranks(2);
    let mut assembly = Assembly::default();
    for (n, at_ms) in [(5, 0.0), (6, 1_000.0), (6, 2_000.0), (6, 3_000.0)] {
        assembly.add(&job.issued(1, n, at_ms));
    }
    let (_, progress) = assembly.progress().next().unwrap();
    let (comm, ranks) = progress.comms().next().unwrap();
    let position = ranks[&Rank::new(1)];
    assert_eq!((comm, position.issued), (CommId::new(1), 6));
    assert_eq!(position.advanced, instant(1_000.0));
    assert_eq!(position.last_received, instant(3_000.0));
}

#[test]
fn a_process_that_restarts_has_moved() {
    let job = Job::with_ranks(2);
    let mut assembly = Assembly::default();
    assembly.add(&job.issued(0, 500, 0.0));
    assembly.add(&job.issued(0, 3, 9_000.0));
    let (_, progress) = assembly.progress().next().unwrap();
    let position = progress.comms().next().unwrap().1[&Rank::new(0)];
    assert_eq!((position.issued, position.advanced), (3, instant(9_000.0)));
}
