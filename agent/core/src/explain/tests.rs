mod contention;
mod gpu_sharing;
mod network;
mod own_code;
mod own_program;
mod peers;
mod recapture;
mod workers;

use proptest::prelude::*;

use super::*;
use crate::event::{
    Activity, ActivitySample, BlockReason, BlockedTime, CallDurations, DelaySample, Delays, Frame,
    FunctionDurations, OffCpuTime, Stack, StackSample, TaskTime,
};

const SECOND: u64 = 1_000_000_000;
const PERIOD: u64 = 10 * SECOND;

/// Host of some ranks of one job, with an explainer.
struct Ranks {
    explainer: Explainer,
    ranks: u32,
    now_ns: u64,
}

impl Ranks {
    fn new(ranks: u32) -> Self {
        let mut explainer = Explainer::new(Duration::from_nanos(PERIOD));
        explainer.reports(0);
        for rank in 0..ranks {
            let process = Process {
                pid: rank,
                rank,
                world_size: ranks,
            };
            explainer.add_process(process, 0);
        }
        Self {
            explainer,
            ranks,
            now_ns: 0,
        }
    }

    /// Lets a period pass with the events of each rank.
    fn period(&mut self, events: impl Fn(u32, u64) -> Vec<Event>) -> Vec<ProcessReport> {
        self.now_ns += PERIOD;
        for rank in 0..self.ranks {
            for event in events(rank, self.now_ns) {
                self.explainer.on_event(&event);
            }
        }
        self.explainer.reports(self.now_ns)
    }

    fn periods(&mut self, n: u32, events: impl Fn(u32, u64) -> Vec<Event>) -> Vec<ProcessReport> {
        (0..n).map(|_| self.period(&events)).last().unwrap()
    }
}

fn preempted(pid: u32, ts_ns: u64, ns: u64) -> Vec<Event> {
    let activity = Activity {
        threads: Some(OffCpuTime {
            preempted_ns: ns,
            run_queue_ns: Some(0),
            preemptions: 380,
            ..OffCpuTime::default()
        }),
        ..Activity::default()
    };
    let task = |task: &str, cpu, ns| TaskTime {
        task: task.to_owned(),
        cpu,
        ns,
        switches: 1,
    };
    let delays = Delays {
        preempted_by: vec![
            task("node_exporter", Some(12), ns / 4 * 3),
            task("kworker/12:1H", Some(12), ns / 4),
        ],
        longest_preemption_ns: Some(13_000_000),
        ..Delays::default()
    };
    vec![
        Event::Activity(ActivitySample {
            from_ns: ts_ns - PERIOD,
            ts_ns,
            pid,
            activity,
        }),
        delay_sample(pid, ts_ns, delays),
    ]
}

fn delay_sample(pid: u32, ts_ns: u64, delays: Delays) -> Event {
    Event::Delays(Box::new(DelaySample {
        from_ns: ts_ns - PERIOD,
        ts_ns,
        pid,
        delays,
    }))
}

fn blocked(pid: u32, ts_ns: u64, reason: BlockReason, ns: u64) -> Event {
    let delays = Delays {
        blocked: vec![BlockedTime {
            reason,
            ns,
            count: 1,
            longest_ns: 4_000_000,
        }],
        ..Delays::default()
    };
    delay_sample(pid, ts_ns, delays)
}

fn calls(pid: u32, ts_ns: u64, function: &str, durations_ns: &[(u64, u64)]) -> Event {
    interrupted_calls(pid, ts_ns, function, durations_ns, None)
}

fn interrupted_calls(
    pid: u32,
    ts_ns: u64,
    function: &str,
    durations_ns: &[(u64, u64)],
    interrupted: Option<u64>,
) -> Event {
    let mut own = FunctionDurations {
        function: function.to_owned(),
        interrupted,
        ..FunctionDurations::default()
    };
    for (ns, times) in durations_ns {
        own.histogram.record(*ns, *times);
        own.total_ns += ns * times;
        own.longest_ns = own.longest_ns.max(*ns);
    }
    Event::CallDurations(Box::new(CallDurations {
        ts_ns,
        pid,
        calls: vec![own],
        launch_sizes: None,
    }))
}

fn stack(pid: u32, ts_ns: u64, call: Option<&str>, line: u32, samples: u64) -> Event {
    let frame = Frame::Python {
        file: "/app/train.py".to_owned(),
        line,
        function: "forward".to_owned(),
    };
    Event::Stack(Box::new(StackSample {
        ts_ns,
        pid,
        tid: pid,
        is_worker: false,
        call: call.map(str::to_owned),
        stack: Stack {
            frames: vec![frame],
        },
        samples,
        outside: 0,
    }))
}

fn causes(report: &ProcessReport) -> Vec<Cause> {
    report.chains.iter().map(|chain| chain.cause).collect()
}

#[test]
fn one_period_is_not_enough() {
    let mut ranks = Ranks::new(4);
    let late = |rank, ts_ns| preempted(rank, ts_ns, if rank == 1 { 3 * SECOND } else { 0 });
    let calm = |rank, ts_ns| preempted(rank, ts_ns, 0);
    for _ in 0..3 {
        assert!(ranks.period(late)[1].chains.is_empty());
        assert!(ranks.period(calm)[1].chains.is_empty());
    }
}

#[test]
fn a_process_alone_is_compared_with_its_own_past() {
    let mut ranks = Ranks::new(1);
    let lock = |ns| move |pid, ts_ns| vec![blocked(pid, ts_ns, BlockReason::Lock, ns)];
    // Waiting for a lock is usual, so no amount stands out until it changes.
    let healthy = ranks.periods(5, lock(3 * SECOND));
    assert_eq!(causes(&healthy[0]), []);
    let later = ranks.periods(2, lock(8 * SECOND));
    assert_eq!(causes(&later[0]), [Cause::Lock]);
    let chain = &later[0].chains[0];
    assert_eq!(
        chain.to_string(),
        "waiting for a lock or condition of another thread for 80.0 % of its time, before 30.0 %"
    );
    assert_eq!(chain.since_ns, 5 * PERIOD);
    let over = ranks.periods(1, lock(3 * SECOND));
    assert_eq!(causes(&over[0]), []);
}

#[test]
fn a_single_peer_does_not_make_a_usual_wait_a_cause() {
    // The peer of a late rank waits longer at its socket than that rank.
    let mut ranks = Ranks::new(2);
    let reports = ranks.periods(4, |rank, ts_ns| {
        let ns = if rank == 0 { 6 * SECOND } else { SECOND };
        vec![blocked(rank, ts_ns, BlockReason::Network, ns)]
    });
    assert!(reports.iter().all(|report| report.chains.is_empty()));
}

#[test]
fn memory_allocated_in_the_loop_is_explained_with_its_line() {
    let mut ranks = Ranks::new(1);
    let reports = ranks.periods(3, |pid, ts_ns| {
        vec![
            calls(pid, ts_ns, "cudaMalloc", &[(1_000_000, 1_000)]),
            calls(pid, ts_ns, "cudaFree", &[(500_000, 1_000)]),
            stack(pid, ts_ns, Some("cudaMalloc"), 142, 30),
            stack(pid, ts_ns, None, 17, 60),
            stack(pid, ts_ns, Some("ncclAllReduce"), 99, 10),
        ]
    });
    assert_eq!(causes(&reports[0]), [Cause::MemoryAllocation]);
    let chain = &reports[0].chains[0];
    assert_eq!(
        chain.to_string(),
        "allocating and freeing GPU memory for 15.0 % of its time"
    );
    assert_eq!(chain.links.len(), 2, "{:?}", chain.links);
    assert!(
        chain.links[0]
            .starts_with("cudaMalloc was called 1000 times, for 100.0 ms/s, p50 0.979 ms"),
        "{:?}",
        chain.links
    );
    let place = chain.place.as_ref().unwrap();
    assert_eq!(place.lines(), ["cudaMalloc", "train.py:142 in forward()"]);
    assert!((place.share - 0.3).abs() < 1e-9);
}

#[test]
fn calls_that_begin_after_a_healthy_past_are_explained_after_two_periods() {
    let allocating = |pid, ts_ns, calls_per_period| {
        vec![calls(
            pid,
            ts_ns,
            "cudaMalloc",
            &[(1_000_000, calls_per_period)],
        )]
    };
    let mut ranks = Ranks::new(1);
    ranks.periods(3, |pid, ts_ns| allocating(pid, ts_ns, 1));
    let reports = ranks.period(|pid, ts_ns| allocating(pid, ts_ns, 1_000));
    assert_eq!(causes(&reports[0]), []);
    let reports = ranks.period(|pid, ts_ns| allocating(pid, ts_ns, 1_000));
    assert_eq!(causes(&reports[0]), [Cause::MemoryAllocation]);
}

#[test]
fn the_line_of_calls_that_are_rarer_than_samples_is_kept_from_an_earlier_period() {
    let mut ranks = Ranks::new(1);
    let reports = ranks.periods(3, |pid, ts_ns| {
        let mut events = vec![
            calls(pid, ts_ns, "cudaMalloc", &[(1_000_000, 1_000)]),
            stack(pid, ts_ns, None, 17, 60),
        ];
        if ts_ns == PERIOD {
            events.push(stack(pid, ts_ns, Some("cudaMalloc"), 142, 1));
        }
        events
    });
    let place = reports[0].chains[0].place.as_ref().unwrap();
    assert_eq!(place.lines(), ["cudaMalloc", "train.py:142 in forward()"]);
}

#[test]
fn calls_far_slower_than_their_median_are_explained_and_waits_are_not() {
    let mut ranks = Ranks::new(1);
    let durations = [(10_000, 10_000), (40_000_000, 20)];
    for (function, expected) in [
        ("cudaMemcpyAsync", vec![Cause::SlowCalls]),
        ("cudaStreamSynchronize", vec![]),
        ("ncclCommInitRank", vec![]),
    ] {
        let reports = ranks.periods(3, |pid, ts_ns| {
            vec![calls(pid, ts_ns, function, &durations)]
        });
        assert_eq!(causes(&reports[0]), expected, "{function}");
    }
}

#[test]
fn an_unseen_process_has_no_report_and_an_ended_one_is_forgotten() {
    let mut ranks = Ranks::new(2);
    let reports = ranks.period(|rank, ts_ns| match rank {
        0 => preempted(rank, ts_ns, 0),
        _ => vec![],
    });
    assert_eq!(reports.len(), 1);
    let ended = |rank, ts_ns| {
        vec![
            preempted(rank, ts_ns, 0).remove(0),
            Event::Ended(crate::event::Ended {
                ts_ns,
                pid: rank,
                exit: None,
            }),
        ]
    };
    assert!(ranks.period(ended).is_empty());
}

proptest! {
    #[test]
    fn a_share_is_between_0_and_1_and_chains_are_sorted(
        amounts in proptest::collection::vec((0_u32..4, 0_u64..40 * SECOND), 1..60),
    ) {
        let mut ranks = Ranks::new(4);
        for chunk in amounts.chunks(4) {
            let reports = ranks.period(|rank, ts_ns| {
                let own = chunk.iter().filter(|(of, _)| *of == rank);
                own.flat_map(|(_, ns)| {
                    let mut events = preempted(rank, ts_ns, *ns);
                    events.push(blocked(rank, ts_ns, BlockReason::PageFault, ns / 3));
                    events
                })
                .collect()
            });
            for report in reports {
                let shares: Vec<f64> = report.chains.iter().map(|chain| chain.share).collect();
                prop_assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)));
                prop_assert!(shares.is_sorted_by(|a, b| a >= b));
            }
        }
    }
}
