use echo_core::ids::Rank;
use fleet_proto::metric;
use proptest::prelude::{prop_assert, proptest};

use super::{HostFact, HostTotal, Task, compare};

fn total(rank: u32, metric: &str, sum: f64, iterations: f64) -> HostTotal {
    HostTotal {
        rank: Rank::new(rank),
        metric: metric.parse().unwrap(),
        task: None,
        sum,
        iterations,
    }
}

/// Ten iterations of each rank.
fn totals(metric: &str, rates: &[f64]) -> Vec<HostTotal> {
    let ranks = (0..).zip(rates);
    ranks
        .map(|(rank, rate)| total(rank, metric, rate * 10.0, 10.0))
        .collect()
}

fn compare_rank(totals: &[HostTotal], rank: u32) -> Vec<HostFact> {
    compare(totals, Rank::new(rank))
}

#[test]
fn a_rank_that_is_preempted_more_than_its_peers_stands_out() {
    let preempted = totals(metric::PREEMPTED, &[5.1, 14.7, 5.0, 4.9]);
    let facts = compare_rank(&preempted, 1);
    assert_eq!(facts.len(), 1);
    assert!(facts[0].stands_out(), "{facts:?}");
    assert_eq!(facts[0].sentence(), "preempted 14.7 ms per step, peers 5.0");
    let peer = &compare_rank(&preempted, 0)[0];
    assert!(!peer.stands_out(), "{peer:?}");
}

#[test]
fn how_sums_are_rounded_does_not_change_the_order() {
    let order = |rounded: f64| -> Vec<String> {
        let mut all = totals(metric::LAUNCHES, &[300.0; 4]);
        let mut copied = totals(metric::MEMCPY, &[7000.0; 4]);
        copied[0].sum *= rounded;
        all.extend(copied);
        let facts = compare_rank(&all, 0);
        facts.iter().map(|fact| fact.metric.to_string()).collect()
    };
    let exact = order(1.0);
    assert_eq!(exact.len(), 2);
    for rounded in [1.0 + f64::EPSILON, 1.0 - f64::EPSILON] {
        assert_eq!(order(rounded), exact);
    }
}

/// Tasks of ten iterations of a rank, all on one CPU.
fn tasks(rank: u32, tasks: &[(&str, f64)]) -> impl Iterator<Item = HostTotal> {
    tasks.iter().map(move |(name, rate)| HostTotal {
        task: Some(Task {
            name: Some((*name).to_owned()),
            cpu: Some(12),
        }),
        ..total(rank, metric::PREEMPTED_BY, rate * 10.0, 10.0)
    })
}

#[test]
fn the_tasks_that_peers_do_not_have_are_named() {
    let mut all = totals(metric::PREEMPTED, &[10.8, 44.7, 10.8, 10.7]);
    all.extend(tasks(
        1,
        &[
            ("node_exporter", 12.0),
            ("kworker/3:1H", 22.0),
            ("ksoftirqd", 8.0),
            ("sshd", 0.9),
        ],
    ));
    for peer in [0, 2, 3] {
        all.extend(tasks(peer, &[("ksoftirqd", 8.2)]));
    }
    let facts = compare_rank(&all, 1);
    assert_eq!(facts.len(), 1, "{facts:?}");
    assert_eq!(
        facts[0].sentence(),
        "preempted 44.7 ms per step by kworker/3:1H and node_exporter on cpu 12, peers 10.8"
    );
    assert_eq!(compare_rank(&all, 0)[0].tasks, []);
    for total in &mut all {
        let kworker = total.task.iter_mut().filter(|task| {
            task.name
                .as_deref()
                .is_some_and(|name| name.starts_with("kworker"))
        });
        kworker.for_each(|task| task.cpu = Some(3));
    }
    assert_eq!(
        compare_rank(&all, 1)[0].sentence(),
        "preempted 44.7 ms per step by kworker/3:1H on cpu 3 and node_exporter on cpu 12, \
         peers 10.8"
    );
}

#[test]
fn the_processes_on_the_gpu_of_a_rank_alone_are_named() {
    let mut all = totals(metric::GPU_SHARED, &[4.2, 30.2, 0.0, 4.2]);
    let on_gpu = |rank, name, rate| {
        let processes = [(name, rate)];
        let processes = tasks(rank, &processes).map(|total| HostTotal {
            metric: metric::GPU_SHARED_BY.parse().unwrap(),
            task: Some(Task {
                cpu: None,
                ..total.task.unwrap()
            }),
            ..total
        });
        processes.collect::<Vec<_>>()
    };
    all.extend(on_gpu(1, "bench.py (PID 4711)", 26.0));
    let monitors = ["monitor (PID 11)", "monitor (PID 12)", "monitor (PID 14)"];
    for (rank, monitor) in [0, 1, 3].into_iter().zip(monitors) {
        all.extend(on_gpu(rank, monitor, 4.2));
    }
    // A task on the CPU of another rank is not one on its GPU.
    all.extend(tasks(1, &[("kworker", 22.0)]));
    let sentence = compare_rank(&all, 1)[0].sentence();
    assert_eq!(
        sentence,
        "GPU shared 30.2 ms per step with bench.py (PID 4711), peers 4.2"
    );
}

#[test]
fn significant_trifles_and_large_scatter_do_not_stand_out() {
    for rates in [
        [1.0, 1.05, 1.0, 1.0],
        [100.0, 105.0, 100.0, 100.0],
        [1.0, 9.0, 7.0, 4.0],
        [5.0, 1.0, 5.0, 5.0],
    ] {
        let facts = compare_rank(&totals(metric::OFF_CPU, &rates), 1);
        assert!(!facts[0].stands_out(), "{rates:?}: {facts:?}");
    }
}

#[test]
fn the_largest_difference_comes_first() {
    let mut all = totals(metric::LAUNCHES, &[100.0, 100.0, 100.0, 100.0]);
    all.extend(totals(metric::PREEMPTED, &[5.0, 14.7, 5.2, 4.9]));
    all.extend(totals(metric::PREEMPTIONS, &[3.0, 5.0, 3.3, 2.5]));
    let names: Vec<_> = compare_rank(&all, 1)
        .iter()
        .map(|fact| fact.metric.to_string())
        .collect();
    assert_eq!(
        names,
        [metric::PREEMPTED, metric::PREEMPTIONS, metric::LAUNCHES]
    );
}

#[test]
fn of_two_ranks_the_ratio_tells_and_one_has_no_peers() {
    let of_two = |own: f64, peer: f64| {
        let facts = compare_rank(&totals(metric::BLOCK_IO, &[own, peer]), 0);
        assert_eq!((facts[0].peers, facts[0].z), (Some(peer), None));
        facts[0].stands_out()
    };
    assert!(of_two(9.0, 1.0));
    assert!(!of_two(9.0, 6.0));
    assert!(!of_two(0.3, 0.1));
    let alone = compare_rank(&totals(metric::BLOCK_IO, &[9.0]), 0);
    assert_eq!(alone[0].peers, None);
    assert_eq!(alone[0].sentence(), "block I/O 9.0 ms per step");
}

#[test]
fn a_block_without_a_kind_counts_as_nothing_and_a_rank_without_it_as_unknown() {
    let all = [
        total(0, metric::LAUNCHES, 1_000.0, 10.0),
        total(0, metric::TCP_RETRANSMITS, 6.0, 2.0),
        total(1, metric::LAUNCHES, 1_000.0, 10.0),
    ];
    let facts = compare_rank(&all, 0);
    let retransmits = facts
        .iter()
        .find(|fact| fact.metric.as_str() == metric::TCP_RETRANSMITS)
        .unwrap();
    assert!((retransmits.own - 0.6).abs() < 1e-12, "{retransmits:?}");
    assert_eq!(retransmits.peers, None);
    assert!(compare_rank(&all, 7).is_empty());
}

#[test]
fn every_kind_makes_a_sentence() {
    let sentences: Vec<String> = [
        metric::OFF_CPU,
        metric::PREEMPTIONS,
        metric::MEMCPY,
        metric::LAUNCHES,
        metric::PAGE_ALLOCATIONS,
        metric::BLOCK_IO,
        metric::TCP_RETRANSMITS,
        metric::THROTTLED,
        metric::RDMA_ERRORS,
        metric::CGROUP_THROTTLED,
        metric::INTERRUPT,
        metric::LOCK,
        metric::PAGE_FAULT,
        metric::NETWORK_WAIT,
        metric::PRESSURE_CPU,
        metric::PRESSURE_MEMORY,
        metric::PRESSURE_IO,
        "fleet.host.page_faults",
        "fleet.host.swap_ms",
    ]
    .into_iter()
    .map(|name| compare_rank(&totals(name, &[4_321.0, 12_345_678.9]), 1)[0].sentence())
    .collect();
    insta::assert_snapshot!(sentences.join("\n"));
}

proptest! {
    #[test]
    fn every_result_is_finite(
        rates in proptest::collection::vec(0.0..1e12_f64, 1..20),
        iterations in 0.0..1e3_f64,
    ) {
        let ranks = (0..).zip(rates);
        let all: Vec<_> = ranks
            .map(|(rank, rate)| total(rank, metric::MEMCPY, rate, iterations))
            .collect();
        for fact in compare_rank(&all, 0) {
            let numbers = [Some(fact.own), fact.peers, fact.z];
            prop_assert!(numbers.into_iter().flatten().all(f64::is_finite), "{fact:?}");
        }
    }
}
