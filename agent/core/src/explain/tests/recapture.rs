//! Graphs that are made again and again.

use super::*;

/// Events of a period with graphs that were instantiated and launched.
fn graphs(pid: u32, ts_ns: u64, instantiated: u64, launched: u64) -> Vec<Event> {
    let activity = Activity {
        graph_launches: Some(launched),
        ..Activity::default()
    };
    vec![
        Event::Activity(ActivitySample {
            from_ns: ts_ns - PERIOD,
            ts_ns,
            pid,
            activity,
        }),
        calls(
            pid,
            ts_ns,
            "cudaGraphInstantiateWithFlags",
            &[(500_000, instantiated)],
        ),
    ]
}

#[test]
fn a_graph_that_only_one_rank_captures_in_each_step_is_named() {
    let mut ranks = Ranks::new(4);
    let reports = ranks.periods(3, |rank, ts_ns| match rank {
        1 => graphs(rank, ts_ns, 100, 500),
        _ => graphs(rank, ts_ns, 0, 500),
    });
    let found: Vec<Vec<Cause>> = reports.iter().map(causes).collect();
    assert_eq!(found, [vec![], vec![Cause::GraphCreation], vec![], vec![]]);
    let chain = &reports[1].chains[0];
    assert_eq!(
        chain.to_string(),
        "capturing and instantiating CUDA graphs for 0.5 % of its time, peers 0.0 %"
    );
    assert_eq!(chain.severity(), Severity::Low);
    assert_eq!(
        chain.links[0],
        "100 graphs were instantiated, 10.0 per second, and graphs were launched 500 times"
    );
}

#[test]
fn graphs_that_all_ranks_capture_are_not_named() {
    let mut ranks = Ranks::new(4);
    let reports = ranks.periods(5, |rank, ts_ns| graphs(rank, ts_ns, 100, 100));
    assert!(reports.iter().all(|report| report.chains.is_empty()));
}

#[test]
fn a_process_alone_is_named_if_it_begins_to_capture_a_graph_for_each_launch() {
    let mut ranks = Ranks::new(1);
    let healthy = ranks.periods(4, |pid, ts_ns| graphs(pid, ts_ns, 0, 100));
    assert_eq!(causes(&healthy[0]), []);
    let later = ranks.periods(3, |pid, ts_ns| graphs(pid, ts_ns, 100, 100));
    assert_eq!(causes(&later[0]), [Cause::GraphCreation]);
}

#[test]
fn a_program_that_starts_captures_graphs_without_launching_them() {
    let mut ranks = Ranks::new(1);
    ranks.periods(4, |pid, ts_ns| graphs(pid, ts_ns, 0, 0));
    for _ in 0..4 {
        let starting = ranks.period(|pid, ts_ns| graphs(pid, ts_ns, 20, 0));
        assert_eq!(causes(&starting[0]), []);
    }
    // Then a few of them are launched many times.
    let running = ranks.periods(4, |pid, ts_ns| graphs(pid, ts_ns, 0, 10_000));
    assert_eq!(causes(&running[0]), []);
}

#[test]
fn a_graph_whose_calls_no_sample_met_has_the_line_that_was_read_in_one_of_them() {
    let mut ranks = Ranks::new(2);
    let line = Frame::Python {
        file: "/app/train.py".to_owned(),
        line: 35,
        function: "capture".to_owned(),
    };
    let reports = ranks.periods(3, |rank, ts_ns| {
        let mut events = graphs(rank, ts_ns, if rank == 1 { 100 } else { 0 }, 500);
        events.push(Event::Stack(Box::new(StackSample {
            ts_ns,
            pid: rank,
            tid: rank,
            is_worker: false,
            call: (rank == 1).then(|| "cudaGraphInstantiateWithFlags".to_owned()),
            stack: Stack {
                frames: vec![line.clone()],
            },
            samples: u64::from(rank == 0) * 200,
            outside: 0,
        })));
        events
    });
    let place = reports[1].chains[0].place.as_ref().unwrap();
    assert_eq!(place.lines()[1], "train.py:35 in capture()");
    assert!(place.share.abs() < f64::EPSILON, "{place:?}");
    // It is no part of the time.
    assert!(reports[1].stacks().is_empty());
}

/// Chains of a process that captures graphs and allocates memory, each from a period on.
fn with_allocations(graphs_from: u32, allocations_from: u32) -> Vec<CausalChain> {
    let mut ranks = Ranks::new(1);
    let mut reports = Vec::new();
    for period in 0..8 {
        reports = ranks.period(|pid, ts_ns| {
            let captured = if period < graphs_from { 0 } else { 100 };
            let mut events = graphs(pid, ts_ns, captured, 100);
            let allocated = if period < allocations_from { 0 } else { 13_000 };
            events.push(calls(pid, ts_ns, "cudaMalloc", &[(200_000, allocated)]));
            events
        });
    }
    reports.remove(0).chains
}

#[test]
fn allocations_that_begin_with_captures_follow_from_them() {
    let chains = with_allocations(4, 4);
    let [allocations, captures] = &chains[..] else {
        panic!("{chains:#?}")
    };
    assert_eq!(allocations.cause, Cause::MemoryAllocation);
    assert_eq!(captures.cause, Cause::GraphCreation);
    assert_eq!(
        allocations.links.last().unwrap(),
        "graphs are captured since then, and torch.cuda.graph() frees cached GPU memory before each capture"
    );
    assert_eq!(allocations.advice, captures.advice);
}

#[test]
fn allocations_from_before_the_captures_do_not_follow_from_them() {
    let chains = with_allocations(5, 4);
    let [allocations, captures] = &chains[..] else {
        panic!("{chains:#?}")
    };
    assert_ne!(allocations.advice, captures.advice);
}
