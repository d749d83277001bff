//! Host evidence and progress in the recordings: causes of a late rank, and detection of a missing
//! one.

use std::collections::BTreeMap;

use fleet_agent_core::signal::Value;
use fleet_proto::metric;

use crate::collect::{Replayed, Sent, recording, run};

const EVIDENCE: [&str; 6] = [
    metric::OFF_CPU,
    metric::PREEMPTED,
    metric::PREEMPTIONS,
    metric::MEMCPY,
    metric::MEMCPY_TO_HOST,
    metric::LAUNCHES,
];

fn with_metric<'a>(replayed: &'a Replayed, metric: &'a str) -> impl Iterator<Item = &'a Sent> {
    let sent = replayed.sent.iter();
    sent.filter(move |sent| sent.point.metric == metric)
}

/// Returns evidence per iteration and rank, while the fault was active (`during`) or before it.
fn per_iteration(replayed: &Replayed, metric: &str, during: bool) -> BTreeMap<u32, f64> {
    let (from, to) = if during { (520, 980) } else { (200, 480) };
    let mut sums: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    for sent in with_metric(replayed, metric) {
        let block = &sent.point.block;
        if block.seq_first >= from && block.seq_last < to {
            let (sum, iterations) = sums.entry(sent.rank()).or_default();
            *sum += sent.gauge();
            *iterations += block.iterations.unwrap();
        }
    }
    let mean = |(rank, (sum, iterations))| (rank, sum / iterations);
    sums.into_iter().map(mean).collect()
}

fn during(name: &str, metric: &str) -> BTreeMap<u32, f64> {
    let replayed = run(&recording(name), &["--block-target", "200ms"]);
    per_iteration(&replayed, metric, true)
}

/// Returns a rank's value and the largest of its peers.
fn against_peers(values: &BTreeMap<u32, f64>, rank: u32) -> (f64, f64) {
    let peers = values.iter().filter(|(other, _)| **other != rank);
    let largest = peers.map(|(_, value)| *value).fold(0.0, f64::max);
    (values[&rank], largest)
}

#[test]
fn a_rank_whose_core_is_contended_is_preempted_far_more_than_its_peers() {
    let replayed = run(
        &recording("cpu-contention-rank1"),
        &["--block-target", "200ms"],
    );
    let during = per_iteration(&replayed, metric::PREEMPTED, true);
    let (own, largest) = against_peers(&during, 1);
    assert!(own > 3.0 * largest && own > 30.0, "{during:?}");
    let before = per_iteration(&replayed, metric::PREEMPTED, false);
    let (own, largest) = against_peers(&before, 1);
    assert!(own < 1.5 * largest, "{before:?}");
}

#[test]
fn a_rank_that_sleeps_on_the_host_is_off_its_cpu_longer_than_its_peers() {
    for (name, culprit) in [("host-sleep-rank2", 2), ("mesh-host-sleep-rank3", 3)] {
        let off_cpu = during(name, metric::OFF_CPU);
        let (own, largest) = against_peers(&off_cpu, culprit);
        assert!(own > largest + 3.0, "{name}: {off_cpu:?}");
        assert!(during(name, metric::PREEMPTED).values().all(|ms| *ms < 0.5));
    }
    let off_cpu = during("nosync-host-sleep-rank0", metric::OFF_CPU);
    let (own, largest) = against_peers(&off_cpu, 0);
    assert!(own > largest + 20.0, "{off_cpu:?}");
}

#[test]
fn without_a_fault_on_the_host_no_rank_stands_out() {
    for name in ["healthy", "gpu-extra-rank1"] {
        let preempted = during(name, metric::PREEMPTED);
        assert!(
            preempted.values().all(|ms| *ms < 0.5),
            "{name}: {preempted:?}"
        );
        let off_cpu = during(name, metric::OFF_CPU);
        for rank in 0..4 {
            let (own, largest) = against_peers(&off_cpu, rank);
            assert!(own < largest + 3.0, "{name}: {off_cpu:?}");
        }
    }
}

#[test]
fn copies_and_launches_are_those_of_the_training_step() {
    let replayed = run(&recording("healthy"), &["--block-target", "200ms"]);
    // Two batches of 8 x 512 tokens as 64-bit integers from host memory, and the loss copied back.
    for bytes in per_iteration(&replayed, metric::MEMCPY, true).values() {
        assert!((32_000.0..33_500.0).contains(bytes), "{bytes}");
    }
    for launches in per_iteration(&replayed, metric::LAUNCHES, true).values() {
        assert!((700.0..900.0).contains(launches), "{launches}");
    }
}

#[test]
fn every_block_has_its_evidence_before_its_arrival() {
    let replayed = run(&recording("healthy"), &["--block-target", "200ms"]);
    let mut reported: BTreeMap<(u32, u64), Vec<&str>> = BTreeMap::new();
    let mut n_blocks = 0;
    for sent in &replayed.sent {
        let key = (sent.rank(), sent.point.block.seq_first);
        if sent.point.metric == metric::ARRIVAL {
            n_blocks += 1;
            assert_eq!(
                reported.remove(&key).unwrap_or_default(),
                EVIDENCE,
                "{key:?}"
            );
        } else if sent.point.metric.starts_with(metric::HOST_EVIDENCE) {
            reported.entry(key).or_default().push(sent.point.metric);
        }
    }
    assert!(n_blocks > 100 && reported.is_empty(), "{reported:?}");
}

#[test]
fn evidence_does_not_depend_on_the_block_size() {
    let sums = |target: &str| {
        let replayed = run(
            &recording("cpu-contention-rank1"),
            &["--block-target", target],
        );
        let amounts = with_metric(&replayed, metric::PREEMPTED).map(Sent::gauge);
        amounts.sum::<f64>()
    };
    let (short, long) = (sums("200ms"), sums("1s"));
    assert!((short - long).abs() < 1e-6 * long, "{short} {long}");
}

#[test]
fn progress_is_reported_every_five_seconds_and_never_decreases() {
    for name in ["healthy", "mesh-host-sleep-rank3"] {
        let replayed = run(&recording(name), &["--node-per-rank"]);
        let mut reported: BTreeMap<(u32, String), Vec<(u64, u64)>> = BTreeMap::new();
        for sent in with_metric(&replayed, metric::ISSUED) {
            let Value::Issued { total: count, .. } = sent.point.value else {
                panic!()
            };
            let block = &sent.point.block;
            assert_eq!((block.seq_first, block.seq_last), (count - 1, count - 1));
            let key = (sent.rank(), block.comm.to_string());
            reported
                .entry(key)
                .or_default()
                .push((sent.point.time_ns, count));
        }
        assert!(reported.len() >= 4, "{name}: {reported:?}");
        for points in reported.values() {
            assert!(
                points.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1),
                "{points:?}"
            );
            let pairs = points.iter().zip(points.iter().skip(1));
            assert!(
                pairs.clone().all(|(a, b)| b.0 - a.0 <= 5_000_000_000),
                "{points:?}"
            );
        }
    }
}
