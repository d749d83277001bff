//! Other tasks on the CPUs of a process.

use super::*;

#[test]
fn the_rank_that_is_preempted_more_than_its_peers_is_explained_with_the_task_and_the_cpu() {
    let mut ranks = Ranks::new(4);
    let reports = ranks.periods(3, |rank, ts_ns| {
        let ns = if rank == 1 { 3 * SECOND } else { SECOND / 10 };
        let mut events = preempted(rank, ts_ns, ns);
        // One call in fifty waits for the other task.
        let durations = [(17_000, 980), (13_000_000, 20)];
        let launches = |interrupted| {
            interrupted_calls(rank, ts_ns, "cudaLaunchKernel", &durations, interrupted)
        };
        events.push(launches(Some(if rank == 1 { 20 } else { 0 })));
        // A thread that waits for the GPU loses nothing with its CPU.
        let waits = interrupted_calls(rank, ts_ns, "cudaStreamSynchronize", &durations, Some(90));
        events.extend([waits, calls(rank, ts_ns, "cudaFree", &durations)]);
        events
    });
    let chains: Vec<usize> = reports.iter().map(|report| report.chains.len()).collect();
    assert_eq!(chains, [0, 1, 0, 0]);
    let chain = &reports[1].chains[0];
    assert_eq!(
        chain.to_string(),
        "runnable without a CPU for 30.0 % of its time, peers 1.0 %"
    );
    assert_eq!((chain.severity(), chain.since_ns), (Severity::High, 0));
    assert_eq!(
        chain.links,
        [
            "node_exporter ran on cpu 12 225.0 ms/s",
            "kworker/12:1H ran on cpu 12 75.0 ms/s",
            "its threads were preempted 380 times, for 300.0 ms/s, and waited for a CPU after waking up 0.0 ms/s",
            "the longest preemption took 13.0 ms",
            "cudaLaunchKernel was preempted in 20 of 1000 calls, p50 0.018 ms, p99 13.000 ms (714 times p50)",
        ]
    );
    assert!(chain.advice[0].contains("taskset -apc CPUS 1"), "{chain:?}");
}

#[test]
fn the_tasks_that_took_the_cpu_are_enough() {
    let mut ranks = Ranks::new(4);
    let reports = ranks.periods(3, |rank, ts_ns| {
        let ns = if rank == 1 { 3 * SECOND } else { SECOND / 10 };
        let mut events = preempted(rank, ts_ns, ns);
        events.retain(|event| matches!(event, Event::Delays(_)));
        events
    });
    let found: Vec<Vec<Cause>> = reports.iter().map(causes).collect();
    assert_eq!(found, [vec![], vec![Cause::CpuContention], vec![], vec![]]);
}

#[test]
fn what_all_ranks_share_is_not_explained_by_one_of_them() {
    let mut ranks = Ranks::new(4);
    let reports = ranks.periods(5, |rank, ts_ns| {
        preempted(rank, ts_ns, 19 * SECOND / 10 + u64::from(rank))
    });
    assert!(reports.iter().all(|report| report.chains.is_empty()));
}

#[test]
fn a_host_that_is_short_of_cpu_is_explained_though_all_ranks_suffer() {
    let mut ranks = Ranks::new(2);
    let reports = ranks.periods(3, |rank, ts_ns| {
        preempted(rank, ts_ns, [4 * SECOND, 31 * SECOND / 10][rank as usize])
    });
    for (report, share, of_peers) in [(&reports[0], 40.0, 31.0), (&reports[1], 31.0, 40.0)] {
        let chain = &report.chains[0];
        assert_eq!(
            chain.to_string(),
            format!("runnable without a CPU for {share:.1} % of its time, peers {of_peers:.1} %")
        );
        let last = chain.links.last().map(String::as_str);
        let expected = format!(
            "its peers lose {of_peers:.1} % as well: their host, or the CPUs that they share, is short of CPU"
        );
        assert_eq!(last, Some(expected.as_str()));
        assert!(chain.links[0].starts_with("node_exporter ran"), "{chain:?}");
    }
}
