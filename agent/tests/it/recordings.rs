//! All recordings: ranks agree on what can be compared, and the injected faults show.

use std::collections::{BTreeMap, BTreeSet};

use fleet_agent_core::signal::{Role, Value};
use fleet_proto::metric;

use crate::collect::{Replayed, Sent, mean, recording, run};

const ALL: [&str; 6] = [
    "healthy",
    "host-sleep-rank2",
    "cpu-contention-rank1",
    "mesh-host-sleep-rank3",
    "gpu-extra-rank1",
    "nosync-host-sleep-rank0",
];

fn with_metric<'a>(replayed: &'a Replayed, metric: &'a str) -> impl Iterator<Item = &'a Sent> {
    replayed
        .sent
        .iter()
        .filter(move |sent| sent.point.metric == metric)
}

fn range(sent: &Sent) -> (u64, u64) {
    (sent.point.block.seq_first, sent.point.block.seq_last)
}

/// Returns the ranks that reported a metric, by role and block.
fn ranks_by_block(
    replayed: &Replayed,
    metric: &str,
) -> BTreeMap<(Option<Role>, u64, u64), Vec<u32>> {
    let mut ranks: BTreeMap<_, Vec<u32>> = BTreeMap::new();
    for sent in with_metric(replayed, metric) {
        let (first, last) = range(sent);
        ranks
            .entry((sent.point.block.role, first, last))
            .or_default()
            .push(sent.rank());
    }
    ranks
}

/// A block that lasts too long ends early on the rank that detects it; at each multiple of the
/// largest block all ranks realign, so the collector can join the parts.
fn assert_aligned_at_each_multiple(replayed: &Replayed, name: &str) {
    let mut ends: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    let mut largest = 1;
    for sent in with_metric(replayed, metric::ARRIVAL) {
        let (first, last) = range(sent);
        largest = (last + 1 - first).next_power_of_two().max(largest);
        ends.entry(sent.rank()).or_default().insert(last + 1);
    }
    assert_eq!(ends.len(), 4, "{name}");
    let last = |ends: &BTreeSet<u64>| ends.last().copied();
    let lasts: BTreeSet<_> = ends.values().map(last).collect();
    assert_eq!(lasts.len(), 1, "{name}: {lasts:?}");
    for (rank, ends) in &ends {
        let whole = (1..=last(ends).unwrap() / largest).map(|n| n * largest);
        for end in whole {
            assert!(ends.contains(&end), "{name}: rank {rank} at {end}");
        }
    }
}

/// Returns samples per iteration and rank over the blocks within the given iterations.
fn per_iteration(replayed: &Replayed, metric: &str, from: u64, to: u64) -> BTreeMap<u32, f64> {
    let mut sums: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    // Every recording begins with fewer than ten operations before its first iteration of ten.
    for sent in with_metric(replayed, metric) {
        let (first, last) = range(sent);
        if first >= from * 10 + 10 && last < to * 10 {
            let (sum, iterations) = sums.entry(sent.rank()).or_default();
            *sum += sent.samples().sum_ms;
            *iterations += sent.point.block.iterations.unwrap();
        }
    }
    sums.into_iter()
        .map(|(rank, (sum, iterations))| (rank, sum / iterations))
        .collect()
}

/// Returns how much each rank exceeds the median of the others.
fn lags(values: &BTreeMap<u32, f64>) -> BTreeMap<u32, f64> {
    let lag = |(rank, value): (&u32, &f64)| {
        let others = values.iter().filter(|(other, _)| *other != rank);
        let mut others: Vec<f64> = others.map(|(_, value)| *value).collect();
        others.sort_by(f64::total_cmp);
        (*rank, value - others[others.len() / 2])
    };
    values.iter().map(lag).collect()
}

fn assert_only(culprit: u32, lag_ms: std::ops::Range<f64>, lags: &BTreeMap<u32, f64>) {
    for (rank, lag) in lags {
        if *rank == culprit {
            assert!(lag_ms.contains(lag), "{lags:?}");
        } else {
            assert!(*lag < 1.0, "{lags:?}");
        }
    }
}

#[test]
fn all_ranks_report_the_same_operations_under_one_role_and_job() {
    for name in ALL {
        for target in ["200ms", "1s"] {
            let replayed = run(&recording(name), &["--block-target", target]);
            assert!(replayed.result.is_ok());
            let blocks = ranks_by_block(&replayed, metric::ARRIVAL);
            assert!(blocks.len() > 5, "{name}: {blocks:?}");
            assert_aligned_at_each_multiple(&replayed, name);
            let roles: BTreeSet<_> = blocks.keys().map(|(role, ..)| *role).collect();
            assert_eq!(roles.len(), 1, "{name}: {roles:?}");
            assert!(roles.first().unwrap().is_some());
            let jobs: BTreeSet<_> = replayed.sent.iter().map(|s| &s.resource.job).collect();
            assert_eq!(jobs.len(), 1, "{name}: {jobs:?}");
            assert!(jobs.first().unwrap().is_some());
        }
    }
}

#[test]
fn blocks_follow_each_other_without_a_gap_to_the_last_operation() {
    for name in ALL {
        let replayed = run(&recording(name), &["--block-target", "200ms"]);
        let mut next: BTreeMap<u32, u64> = BTreeMap::new();
        for sent in with_metric(&replayed, metric::ARRIVAL) {
            let next = next.entry(sent.rank()).or_default();
            let (first, last) = range(sent);
            assert_eq!(first, *next, "{name}");
            assert_eq!(sent.samples().count, last - first + 1);
            *next = last + 1;
        }
        let n_ops = match name {
            "mesh-host-sleep-rank3" => 1497,
            "nosync-host-sleep-rank0" => 1599,
            _ => 1499,
        };
        assert!(next.values().all(|next| *next == n_ops), "{name}: {next:?}");
    }
}

#[test]
fn a_block_has_the_target_duration_and_at_most_two_seconds_in_small_jobs() {
    for (target, n_ops) in [("200ms", 32), ("1s", 256), ("5s", 512)] {
        let replayed = run(&recording("healthy"), &["--block-target", target]);
        // The first blocks include the slow start of the job.
        let later = with_metric(&replayed, metric::ARRIVAL).filter(|sent| range(sent).0 == 512);
        assert_eq!(
            later.map(|sent| sent.samples().count).collect::<Vec<_>>(),
            [n_ops; 4]
        );
    }
}

#[test]
fn the_operator_can_set_the_block_size() {
    let replayed = run(&recording("healthy"), &["--block-ops", "64"]);
    assert!(with_metric(&replayed, metric::ARRIVAL).any(|sent| range(sent) == (64, 127)));
}

#[test]
fn the_role_depends_on_the_program_and_not_on_the_communicators() {
    let role = |name: &str| {
        let replayed = run(&recording(name), &[]);
        let mut last = replayed.sent.iter().rev();
        last.find_map(|sent| sent.point.block.role).unwrap()
    };
    assert_eq!(role("healthy"), role("gpu-extra-rank1"));
    assert_ne!(role("healthy"), role("mesh-host-sleep-rank3"));
}

#[test]
fn the_host_gap_shows_the_injected_delay_on_the_culprit_alone() {
    for (name, culprit, lag_ms) in [
        ("host-sleep-rank2", 2, 6.5..9.0),
        ("mesh-host-sleep-rank3", 3, 7.0..9.5),
        ("cpu-contention-rank1", 1, 5.0..20.0),
    ] {
        let replayed = run(&recording(name), &["--block-target", "200ms"]);
        let during = per_iteration(&replayed, metric::HOST_GAP, 52, 98);
        assert_only(culprit, lag_ms, &lags(&during));
        let before = per_iteration(&replayed, metric::HOST_GAP, 20, 48);
        assert!(
            lags(&before).values().all(|lag| *lag < 2.0),
            "{name}: {before:?}"
        );
    }
}

#[test]
fn without_a_fault_on_the_host_no_host_gap_stands_out() {
    for name in ["healthy", "gpu-extra-rank1"] {
        let replayed = run(&recording(name), &["--block-target", "200ms"]);
        let during = per_iteration(&replayed, metric::HOST_GAP, 52, 98);
        assert!(
            lags(&during).values().all(|lag| *lag < 1.0),
            "{name}: {during:?}"
        );
    }
}

#[test]
fn the_culprit_is_blocked_least() {
    for (name, culprit) in [("host-sleep-rank2", 2), ("mesh-host-sleep-rank3", 3)] {
        let replayed = run(&recording(name), &["--block-target", "200ms"]);
        let during = per_iteration(&replayed, metric::BLOCKED, 52, 98);
        let least = during.iter().min_by(|a, b| a.1.total_cmp(b.1)).unwrap();
        assert_eq!(*least.0, culprit, "{name}: {during:?}");
    }
}

#[test]
fn the_period_is_the_step_time_before_and_during_the_fault() {
    for (name, before_ms, during_ms) in [
        ("healthy", 45.8, 45.8),
        ("host-sleep-rank2", 45.83, 53.95),
        ("gpu-extra-rank1", 45.85, 53.24),
        ("mesh-host-sleep-rank3", 45.78, 53.73),
    ] {
        let replayed = run(&recording(name), &["--block-target", "200ms"]);
        let period_ms = |from: u64, to: u64| {
            let periods = with_metric(&replayed, metric::PERIOD)
                .filter(|sent| range(sent).0 >= from * 10 + 10 && range(sent).1 < to * 10);
            let periods: Vec<f64> = periods.map(Sent::gauge).collect();
            assert!(periods.len() > 20);
            mean(&periods)
        };
        let (before, during) = (period_ms(20, 48), period_ms(52, 98));
        assert!((before - before_ms).abs() < 0.1, "{name}: {before}");
        assert!((during - during_ms).abs() < 0.1, "{name}: {during}");
    }
}

#[test]
fn periods_follow_each_other_and_cover_whole_iterations() {
    let replayed = run(&recording("healthy"), &["--block-target", "200ms"]);
    let mut last: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for sent in with_metric(&replayed, metric::PERIOD) {
        let (first_seq, last_seq) = range(sent);
        let block = &sent.point.block;
        let ops = u32::try_from(last_seq - first_seq + 1).unwrap();
        assert_eq!(block.iterations, Some(f64::from(ops) / 10.0));
        if let Some(before) = last.insert(sent.rank(), (last_seq, sent.point.time_ns)) {
            assert_eq!((before.0 + 1, before.1), (first_seq, sent.point.start_ns));
        }
    }
    assert_eq!(last.len(), 4);
}

#[test]
fn without_synchronisation_per_step_arrivals_are_anchored_to_a_common_completion() {
    let replayed = run(
        &recording("nosync-host-sleep-rank0"),
        &["--block-target", "200ms"],
    );
    let mut mean_ms: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    let mut anchors: BTreeMap<(u64, u64), BTreeSet<u64>> = BTreeMap::new();
    for sent in with_metric(&replayed, metric::ARRIVAL) {
        let Value::Summary {
            summary, anchor, ..
        } = &sent.point.value
        else {
            panic!()
        };
        let (first, last) = range(sent);
        if let Some(anchor) = anchor
            && (700..1200).contains(&first)
        {
            anchors.entry((first, last)).or_default().insert(anchor.seq);
            let count = u32::try_from(summary.count).unwrap();
            let entry_ms = anchor.offset_ms + summary.sum_ms / f64::from(count);
            mean_ms.entry(sent.rank()).or_default().push(entry_ms);
        }
    }
    assert!(
        anchors.len() > 10 && anchors.values().all(|seqs| seqs.len() == 1),
        "{anchors:?}"
    );
    let means: BTreeMap<u32, f64> = mean_ms.iter().map(|(rank, t)| (*rank, mean(t))).collect();
    let lags = lags(&means);
    let latest = lags.iter().max_by(|a, b| a.1.total_cmp(b.1)).unwrap();
    assert_eq!(*latest.0, 0, "{lags:?}");
}

#[test]
fn waits_are_reported_with_sampled_operations_of_their_block() {
    let replayed = run(&recording("mesh-host-sleep-rank3"), &[]);
    let mut comms: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
    for sent in with_metric(&replayed, metric::WAIT) {
        comms
            .entry(sent.rank())
            .or_default()
            .insert(sent.point.block.comm.to_string());
        let Value::Summary {
            summary, exemplars, ..
        } = &sent.point.value
        else {
            panic!()
        };
        let (first, last) = range(sent);
        assert!(exemplars.iter().all(|e| (first..=last).contains(&e.seq)));
        assert!(exemplars.iter().any(|e| e.wait_ms >= summary.max_ms));
        assert!(summary.count > 0 && sent.point.block.comm_nranks >= 2);
    }
    assert!(comms.values().all(|comms| !comms.is_empty()));
}
