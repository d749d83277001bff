//! Recordings in which GPU rows replace calls, or have the times of other operations.

use std::collections::BTreeMap;

use fleet_agent_core::signal::Source;
use fleet_proto::metric;

use crate::collect::{Replayed, Sent, recording, run};

/// First and last operation of a block.
type Range = (u64, u64);

fn replayed(name: &str) -> Replayed {
    let file = recording(&format!("real-loops/gpu-rows/{name}"));
    let replayed = run(&file, &["--block-ops", "256"]);
    assert!(replayed.result.is_ok());
    replayed
}

/// The points of one metric and source, by rank and block.
fn by_block<'a>(
    replayed: &'a Replayed,
    metric: &str,
    source: Source,
) -> BTreeMap<u32, BTreeMap<Range, &'a Sent>> {
    let mut points: BTreeMap<u32, BTreeMap<Range, &Sent>> = BTreeMap::new();
    for sent in &replayed.sent {
        let block = &sent.point.block;
        if (sent.point.metric, block.source) == (metric, source) {
            let range = (block.seq_first, block.seq_last);
            points.entry(sent.rank()).or_default().insert(range, sent);
        }
    }
    points
}

/// The blocks of each rank.
fn blocks(replayed: &Replayed) -> BTreeMap<u32, Vec<Range>> {
    let arrivals = by_block(replayed, metric::ARRIVAL, Source::Host);
    let ranges =
        |(rank, blocks): (u32, BTreeMap<Range, &Sent>)| (rank, blocks.into_keys().collect());
    arrivals.into_iter().map(ranges).collect()
}

#[test]
fn operations_replayed_by_a_graph_form_the_same_blocks_on_both_ranks() {
    let replayed = replayed("graphs-replayed");
    let blocks = blocks(&replayed);
    assert_eq!(blocks.keys().collect::<Vec<_>>(), [&0, &1]);
    assert_eq!(blocks[&0], blocks[&1]);
    // From 400 eager operations and some replays of 80 each, before and during the fault.
    assert!(blocks[&0].len() > 10, "{blocks:?}");
    let waits = by_block(&replayed, metric::WAIT, Source::Device);
    for (rank, blocks) in &blocks {
        for block in blocks {
            // Some of the first operations of the job have the times of others.
            let n_wrong = if block.0 == 0 { 16 } else { 0 };
            let n_ops = block.1 - block.0 + 1;
            let n_timed = waits[rank][block].samples().count;
            assert!(n_timed <= n_ops && n_timed + n_wrong >= n_ops, "{block:?}");
        }
    }
}

#[test]
fn replayed_operations_have_an_elapsed_time_and_show_the_waiting_rank() {
    let replayed = replayed("graphs-replayed");
    let elapsed = by_block(&replayed, metric::ELAPSED, Source::Host);
    assert!(
        elapsed[&0].len() > 5 && elapsed[&1].len() > 5,
        "{elapsed:?}"
    );
    // Another process computes on the GPU of rank 1 from about the 80,000th operation on.
    let waits = by_block(&replayed, metric::WAIT, Source::Device);
    let inside_ms = |rank: u32| -> f64 {
        let during = waits[&rank].range((50_000, 0)..);
        during.map(|(_, sent)| sent.samples().sum_ms).sum()
    };
    assert!(
        inside_ms(0) > 1.5 * inside_ms(1),
        "{} {}",
        inside_ms(0),
        inside_ms(1)
    );
}

#[test]
fn times_of_a_communicator_with_a_lost_counter_are_not_used() {
    let replayed = replayed("graphs-with-eager");
    let blocks = blocks(&replayed);
    assert_eq!(blocks[&0], blocks[&1]);
    let waits = by_block(&replayed, metric::WAIT, Source::Device);
    for rank in [0, 1] {
        let last = blocks[&rank].last().unwrap();
        assert!(last.1 > 3000, "blocks go on: {last:?}");
        // Operation 2400 is eager, and from 2401 on rows have the times of earlier operations.
        let last = waits[&rank].keys().last().unwrap();
        assert!(last.0 < 2401 && last.1 >= 2047, "{last:?}");
    }
}

#[test]
fn a_rank_whose_nccl_thread_is_starved_has_no_waits_of_seconds() {
    let replayed = replayed("decode-starved");
    let waits = by_block(&replayed, metric::WAIT, Source::Device);
    let longest_ms = |rank: u32| -> f64 {
        let longest = waits[&rank].values().map(|sent| sent.samples().max_ms);
        longest.fold(0.0, f64::max)
    };
    assert!(longest_ms(1) < 100.0, "{} ms", longest_ms(1));
    // Rank 1 is pinned to a busy core in the second half; the times of its peer are correct
    // throughout.
    let last_of = |rank: u32| waits[&rank].keys().last().unwrap().0;
    assert!(last_of(1) < last_of(0), "{waits:?}");
}
