use fleet_proto::metric;

use super::*;
use crate::event::{BlockReason, BlockedTime, OTHER_TASKS, OffCpuTime, TaskTime};
use crate::rollup::tests::{MS, Rank};
use crate::signal::Value;

fn activity(from_ms: u64, to_ms: u64, preempted_ms: u64) -> Sample {
    let activity = Activity {
        threads: Some(OffCpuTime {
            preempted_ns: preempted_ms * MS,
            ..OffCpuTime::default()
        }),
        ..Activity::default()
    };
    Sample::Activity(ActivitySample {
        from_ns: from_ms * MS,
        ts_ns: to_ms * MS,
        pid: 1,
        activity,
    })
}

fn delays(from_ms: u64, to_ms: u64, delays: Delays) -> Sample {
    Sample::Delays(Box::new(DelaySample {
        from_ns: from_ms * MS,
        ts_ns: to_ms * MS,
        pid: 1,
        delays,
    }))
}

fn interrupts(from_ms: u64, to_ms: u64, interrupt_ms: u64) -> Sample {
    let interrupt_ns = Some(interrupt_ms * MS);
    let sum = Delays {
        interrupt_ns,
        ..Delays::default()
    };
    delays(from_ms, to_ms, sum)
}

/// Returns the first operation of each block with the increase of a metric.
fn increases(points: &[Point], metric: &str) -> Vec<(u64, f64)> {
    let of_metric = points.iter().filter(|point| point.metric == metric);
    let increases = of_metric.map(|point| match point.value {
        Value::Increase(amount) => (point.block.seq_first, amount),
        _ => panic!("evidence is an increase"),
    });
    increases.collect()
}

fn preempted(points: &[Point]) -> Vec<(u64, f64)> {
    increases(points, metric::PREEMPTED)
}

/// Issues an operation every 100 ms, of which two make up a block, from 100 ms on.
fn issue(rank: &mut Rank, upto_ms: u64) {
    for at_ms in (100..=upto_ms).step_by(100) {
        rank.issue(1, at_ms);
    }
}

#[test]
fn each_of_the_blocks_within_a_window_has_its_share_of_the_sample() {
    let mut rank = Rank::new(1);
    issue(&mut rank, 900);
    rank.sample(&activity(0, 1000, 1000));
    assert_eq!(
        preempted(&rank.finish()),
        [(0, 200.0), (2, 200.0), (4, 200.0), (6, 200.0), (8, 100.0)]
    );
}

#[test]
fn the_samples_of_a_block_add_up_whenever_they_are_taken() {
    let per_block = |ends: [u64; 3]| {
        let mut rank = Rank::new(1);
        issue(&mut rank, 900);
        let mut from_ms = 100;
        for to_ms in ends {
            rank.sample(&activity(from_ms, to_ms, (to_ms - from_ms) / 2));
            from_ms = to_ms;
        }
        preempted(&rank.finish())
    };
    let expected = [(0, 100.0), (2, 100.0), (4, 100.0), (6, 100.0), (8, 50.0)];
    assert_eq!(per_block([300, 600, 1000]), expected);
    assert_eq!(per_block([444, 702, 1000]), expected);
}

#[test]
fn a_block_is_reported_once_its_windows_are_complete() {
    let mut rank = Rank::new(1);
    issue(&mut rank, 500);
    rank.sample(&activity(0, 299, 299));
    rank.sample(&interrupts(0, 299, 0));
    assert_eq!(preempted(&rank.points()), []);
    rank.sample(&interrupts(299, 500, 0));
    assert_eq!(preempted(&rank.points()), []);
    rank.sample(&activity(299, 500, 201));
    let points = rank.points();
    assert_eq!(preempted(&points), [(0, 200.0), (2, 200.0)]);
    assert_eq!(increases(&points, metric::INTERRUPT), [(0, 0.0), (2, 0.0)]);
}

#[test]
fn time_of_reported_blocks_counts_in_the_oldest_other_one() {
    let mut rank = Rank::new(1);
    issue(&mut rank, 500);
    rank.sample(&activity(0, 500, 0));
    rank.sample(&interrupts(0, 600, 600));
    assert_eq!(increases(&rank.finish(), metric::INTERRUPT), [(4, 500.0)]);
}

#[test]
fn samples_of_a_broken_block_are_not_those_of_its_neighbours() {
    let mut rank = Rank::new(1);
    issue(&mut rank, 400);
    rank.lose();
    rank.issue(1, 500);
    rank.sample(&activity(100, 600, 500));
    assert_eq!(preempted(&rank.finish()), [(0, 200.0), (4, 100.0)]);
}

#[test]
fn blocks_are_reported_without_the_samples_of_a_source_that_has_stopped() {
    let mut rank = Rank::new(1);
    issue(&mut rank, 500);
    rank.sample(&activity(0, 400, 400));
    rank.points();
    rank.issue(1, 600);
    rank.issue(1, 6000);
    assert_eq!(preempted(&rank.points()), [(2, 100.0)]);
}

#[test]
fn parts_of_a_window_add_up_to_its_amount() {
    let part = |from, to| Share { from, to, whole: 7 }.part_of(100);
    assert_eq!((0..7).map(|at| part(at, at + 1)).sum::<u64>(), 100);
}

#[test]
fn a_block_names_the_three_tasks_that_took_its_cpu_longest() {
    let mut rank = Rank::new(2);
    let task = |name: &str, ms: u64| TaskTime {
        task: name.to_owned(),
        cpu: Some(12),
        ns: ms * MS,
        switches: 1,
    };
    let sample = |from_ms, tasks: &[(&str, u64)]| {
        let sum = Delays {
            preempted_by: tasks.iter().map(|(name, ms)| task(name, *ms)).collect(),
            blocked: vec![BlockedTime {
                reason: BlockReason::Lock,
                ns: 3 * MS,
                count: 1,
                longest_ns: 0,
            }],
            gpu_shared_by: Some(vec![TaskTime {
                cpu: None,
                ..task("bench.py (PID 7)", 6)
            }]),
            interrupt_ns: Some(MS),
            ..Delays::default()
        };
        delays(from_ms, from_ms + 1, sum)
    };
    rank.issue(1, 1);
    rank.sample(&sample(1, &[("a", 5), ("b", 4)]));
    rank.issue(1, 2);
    rank.sample(&sample(
        2,
        &[("c", 3), ("a", 5), ("d", 2), (OTHER_TASKS, 7)],
    ));
    let points = rank.finish();
    let shown: Vec<String> = points
        .iter()
        .filter_map(|point| match &point.value {
            Value::TaskTime { ms, task, cpu } => Some(match cpu {
                Some(cpu) => format!("{task} on {cpu}: {ms}"),
                None => format!("{} {task}: {ms}", point.metric),
            }),
            Value::Increase(amount) => Some(format!("{} {amount}", point.metric)),
            _ => None,
        })
        .collect();
    assert_eq!(
        shown,
        [
            "fleet.host.gpu_shared_ms 12",
            "fleet.host.interrupt_ms 2",
            "fleet.host.lock_ms 6",
            "fleet.host.page_fault_ms 0",
            "fleet.host.network_wait_ms 0",
            "a on 12: 10",
            "b on 12: 4",
            "c on 12: 3",
            "(others) on 12: 9",
            "fleet.host.gpu_shared_by_ms bench.py (PID 7): 12"
        ]
    );
}
