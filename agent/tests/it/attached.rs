//! Recordings started while the job was running: the creation of its communicators is not recorded.

use std::collections::{BTreeMap, BTreeSet};

use fleet_agent_core::signal::Source;
use fleet_proto::metric;

use crate::collect::{Replayed, Sent, recording, run};

const ATTACHED: [&str; 2] = ["fsdp-cpu1", "hf-ddp-loader1"];

fn replayed(name: &str) -> Replayed {
    let file = recording(&format!("real-loops/attached/{name}"));
    run(&file, &["--block-ops", "128"])
}

fn arrivals(replayed: &Replayed) -> impl Iterator<Item = &Sent> {
    replayed
        .sent
        .iter()
        .filter(|sent| sent.point.metric == metric::ARRIVAL)
}

/// Returns the first and last operation of each rank's blocks.
fn blocks(replayed: &Replayed) -> BTreeMap<u32, Vec<(u64, u64)>> {
    let mut blocks: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for sent in arrivals(replayed) {
        let block = &sent.point.block;
        let range = (block.seq_first, block.seq_last);
        blocks.entry(sent.rank()).or_default().push(range);
    }
    blocks
}

#[test]
fn ranks_of_late_agents_number_their_operations_alike() {
    for (name, first_full, last) in [("fsdp-cpu1", 1280, 24_152), ("hf-ddp-loader1", 512, 19_975)] {
        let replayed = replayed(name);
        assert!(replayed.result.is_ok());
        let blocks = blocks(&replayed);
        assert_eq!(blocks.keys().collect::<Vec<_>>(), [&0, &1], "{name}");
        assert_eq!(blocks[&0], blocks[&1], "{name}");
        let mut next = first_full;
        for (seq_first, seq_last) in &blocks[&0] {
            assert_eq!(*seq_first, next, "{name}");
            next = seq_last + 1;
        }
        assert_eq!(next, last + 1, "{name}");
    }
}

#[test]
fn ranks_of_late_agents_agree_on_communicator_and_job() {
    for (name, hash) in [
        ("fsdp-cpu1", "5e43f184c4a1f252"),
        ("hf-ddp-loader1", "596d972d7ee1f170"),
    ] {
        let replayed = replayed(name);
        let comm = |sent: &Sent| {
            let block = &sent.point.block;
            (block.comm.to_string(), block.comm_nranks)
        };
        let comms: BTreeSet<_> = replayed.sent.iter().map(comm).collect();
        assert_eq!(comms, BTreeSet::from([(hash.to_owned(), 2)]), "{name}");
        let jobs: BTreeSet<_> = replayed.sent.iter().map(|s| &s.resource.job).collect();
        assert_eq!(jobs, BTreeSet::from([&Some(hash.to_owned())]), "{name}");
        let is_own = |sent: &Sent| sent.point.block.comm_rank == sent.rank();
        assert!(replayed.sent.iter().all(is_own), "{name}");
    }
}

#[test]
fn a_late_agent_has_gpu_times_and_misses_few_operations() {
    for name in ATTACHED {
        let replayed = replayed(name);
        let mut ran: BTreeMap<(u32, u64), u64> = BTreeMap::new();
        for sent in &replayed.sent {
            let block = &sent.point.block;
            if (sent.point.metric, block.source) == (metric::WAIT, Source::Device) {
                let at = (sent.rank(), block.seq_first);
                *ran.entry(at).or_default() += sent.samples().count;
            }
        }
        // A few operations have GPU times that cannot be their own, however early the agent starts.
        let mut n_ops = 0;
        for sent in arrivals(&replayed) {
            let block = &sent.point.block;
            n_ops += block.seq_last - block.seq_first + 1;
            assert!(
                ran.contains_key(&(sent.rank(), block.seq_first)),
                "{name}: {block:?}"
            );
        }
        let n_ran: u64 = ran.values().sum();
        assert!(
            n_ran <= n_ops && n_ops - n_ran < n_ops / 1000,
            "{name}: {n_ran} of {n_ops}"
        );
        let unknown = replayed.summary.unknown_comm_ops;
        assert!((1..40).contains(&unknown), "{name}: {unknown}");
    }
}
