//! Other processes on the GPU of a process.

use super::*;

/// The driver's sample of a process beside which another one computed for this long.
fn beside(pid: u32, ts_ns: u64, ns: u64) -> Event {
    let neighbour = TaskTime {
        task: "bench.py (PID 4711)".to_owned(),
        cpu: None,
        ns,
        switches: 0,
    };
    let delays = Delays {
        gpu_shared_by: Some(if ns > 0 { vec![neighbour] } else { Vec::new() }),
        ..Delays::default()
    };
    delay_sample(pid, ts_ns, delays)
}

#[test]
fn the_process_that_computes_on_the_gpu_of_a_rank_is_named() {
    let mut ranks = Ranks::new(3);
    let ns = |rank| if rank == 2 { 4 * SECOND } else { 0 };
    let reports = ranks.periods(3, |rank, ts_ns| vec![beside(rank, ts_ns, ns(rank))]);
    let chains: Vec<usize> = reports.iter().map(|report| report.chains.len()).collect();
    assert_eq!(chains, [0, 0, 1]);
    let chain = &reports[2].chains[0];
    assert_eq!(
        chain.to_string(),
        "beside other processes that compute on its GPU for 40.0 % of its time, peers 0.0 %"
    );
    assert_eq!(
        chain.links,
        ["bench.py (PID 4711) computed on its GPU 400.0 ms/s"]
    );
    assert_eq!(
        chain.advice,
        ["give the GPU of process 2 to it alone: stop or move bench.py (PID 4711)"]
    );
    // The driver's sample tells nothing about what blocked its threads.
    assert_eq!(reports[2].seen.blocked, None);
}

#[test]
fn a_process_without_a_rank_has_its_neighbour_named_too() {
    let mut host = Ranks::new(0);
    let mut reports = Vec::new();
    for _ in 0..3 {
        let ts_ns = host.now_ns + PERIOD;
        host.explainer.on_event(&beside(77, ts_ns, SECOND));
        reports = host.period(|_, _| Vec::new());
    }
    assert_eq!((reports[0].pid, reports[0].process), (77, None));
    assert_eq!(causes(&reports[0]), [Cause::GpuSharing]);
    let chain = &reports[0].chains[0];
    assert!((chain.share - 0.1).abs() < 1e-9, "{chain:?}");
}
