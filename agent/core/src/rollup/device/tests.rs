//! Device points of blocks, and when they are closed.

use crate::correlate::{CompletedOp, GpuTiming, Observation, OpRef};
use crate::rollup::tests::{MS, Rank, ranges, samples};
use crate::signal::{Point, Source};
use fleet_proto::metric;

/// Returns an operation that waited a millisecond and ran for `kernel_ms`.
fn completed(at: OpRef, kernel_ms: u64, end_ms: u64) -> Observation {
    Observation::Completed(CompletedOp {
        at,
        times: Some(GpuTiming {
            queue_ns: MS,
            kernel_ns: kernel_ms * MS,
            exclusive_ns: kernel_ms * MS,
            end_ns: end_ms * MS,
        }),
    })
}

fn of_gpu(points: &[Point]) -> Vec<Point> {
    let of_gpu = |point: &&Point| point.block.source == Source::Device;
    points.iter().filter(of_gpu).cloned().collect()
}

#[test]
fn a_block_waits_for_its_operations_to_run_and_its_arrivals_come_last() {
    let mut rank = Rank::new(1);
    let ops: Vec<OpRef> = (0..2).map(|op| rank.issue(1, 10 * op)).collect();
    rank.feed(completed(ops[0], 3, 15));
    let next = rank.issue(1, 30);
    assert_eq!(rank.points(), [], "its second operation is still running");
    rank.feed(completed(ops[1], 4, 40));
    let points = rank.points();
    let last = points.last().unwrap();
    assert_eq!((last.metric, last.block.seq_last), (metric::ARRIVAL, 1));
    let device = of_gpu(&points);
    let (_, wait) = samples(&device, metric::WAIT)[0];
    assert_eq!((wait.count, wait.sum_ms, wait.max_ms), (2, 7.0, 4.0));
    let (_, queue) = samples(&device, metric::QUEUE)[0];
    assert_eq!((queue.count, queue.sum_ms), (2, 2.0));
    let (_, blocked) = samples(&device, metric::BLOCKED)[0];
    assert!((blocked.sum_ms - 7.0).abs() < 1e-9);
    assert_eq!(next.seq, 2);
}

#[test]
fn a_missing_record_delays_a_block_until_a_later_operation_has_run() {
    let mut rank = Rank::new(1);
    let first = rank.issue(1, 0);
    rank.feed(completed(first, 3, 5));
    let ops: Vec<OpRef> = (1..5).map(|op| rank.issue(1, 10 * op)).collect();
    // The second operation is not reported.
    assert_eq!(rank.points(), []);
    rank.feed(completed(ops[1], 3, 65));
    let points = rank.points();
    assert_eq!(ranges(&points, metric::ARRIVAL), [(0, 1)]);
    assert_eq!(ranges(&of_gpu(&points), metric::WAIT), [(0, 1)]);
    rank.feed(completed(ops[2], 3, 66));
    assert_eq!(ranges(&rank.points(), metric::ARRIVAL), [(2, 3)]);
}

#[test]
fn records_missing_from_every_block_delay_no_block_for_long() {
    let mut rank = Rank::new(2);
    for op in 0..40 {
        let at = rank.issue(1, 10 * op);
        if op % 4 != 1 {
            rank.feed(completed(at, 3, 10 * op + 5));
        }
    }
    let closed = ranges(&rank.points(), metric::ARRIVAL);
    assert_eq!(closed.len(), 9, "all but the open one: {closed:?}");
}

#[test]
fn blocks_are_reported_without_the_gpu_when_its_records_stop() {
    let mut rank = Rank::new(0);
    let first = rank.issue(1, 0);
    rank.feed(completed(first, 3, 5));
    for op in 1..40 {
        rank.issue(1, 10 * op);
    }
    let closed = ranges(&rank.points(), metric::ARRIVAL);
    assert_eq!(closed.len(), 39, "all but the open one");
}

#[test]
fn operations_without_times_are_not_missing() {
    let mut rank = Rank::new(0);
    let at = rank.issue(1, 0);
    rank.feed(Observation::Completed(CompletedOp { at, times: None }));
    rank.issue(1, 10);
    let points = rank.points();
    assert_eq!(ranges(&points, metric::ARRIVAL), [(0, 0)]);
    assert_eq!(of_gpu(&points), []);
}

#[test]
fn a_block_with_more_than_a_quarter_untimed_has_no_device_points() {
    for (n_without, has_device) in [(1, true), (2, false)] {
        let mut rank = Rank::new(2);
        for op in 0..4 {
            let at = rank.issue(1, 10 * op);
            rank.feed(if op < n_without {
                Observation::Completed(CompletedOp { at, times: None })
            } else {
                completed(at, 3, 10 * op + 5)
            });
        }
        rank.issue(1, 50);
        let points = rank.points();
        assert_eq!(ranges(&points, metric::ARRIVAL), [(0, 3)]);
        let device = of_gpu(&points);
        for metric in [metric::WAIT, metric::QUEUE, metric::BLOCKED] {
            let n_told = ranges(&device, metric).len();
            assert_eq!(n_told, usize::from(has_device), "{metric} {n_without}");
        }
    }
}

#[test]
fn kernel_time_is_not_reported_while_another_communicator_lacks_times() {
    let mut rank = Rank::new(0);
    let first = rank.issue(1, 0);
    rank.feed(completed(first, 3, 5));
    let other = rank.issue(2, 6);
    rank.feed(Observation::Completed(CompletedOp {
        at: other,
        times: None,
    }));
    let second = rank.issue(1, 10);
    rank.feed(completed(second, 3, 15));
    rank.issue(1, 20);
    let device = of_gpu(&rank.points());
    assert_eq!(ranges(&device, metric::WAIT), [(0, 0), (1, 1)]);
    assert_eq!(ranges(&device, metric::BLOCKED), [(0, 0)]);
}
