mod gpu_operations;
mod late;

use fleet_proto::metric;
use proptest::prelude::*;

use super::*;
use crate::event::{CallKind, CommInit, ExitStatus, Op, Operation};
use crate::signal::Value;

const MS: u64 = 1_000_000;
const RULE: BlockRule = BlockRule {
    target_ns: 1e9,
    exponent: None,
};

fn pipeline() -> Pipeline {
    let process = Process {
        pid: 1,
        rank: 0,
        world_size: 4,
    };
    Pipeline::new(process, RULE)
}

fn call(ts_ns: u64, dur_ns: u64, kind: CallKind) -> Call {
    Call {
        ts_ns,
        dur_ns,
        pid: 1,
        tid: 1,
        kind,
    }
}

fn operation(comm: u64, op: Op) -> CallKind {
    CallKind::Operation(Operation {
        op,
        count: 1,
        datatype: 7,
        comm,
        seq: None,
        peer: None,
    })
}

fn init(unique_id: u64, nranks: u32) -> CallKind {
    CallKind::CommInit(CommInit {
        nranks,
        rank: 0,
        unique_id,
        comm: None,
    })
}

/// Runs iterations of `ops` operations and one wait on one communicator of the whole job.
fn run(pipeline: &mut Pipeline, iterations: u64, iteration_ms: u64, ops: u64) {
    pipeline.on_call(&call(0, 1, init(7, 4)));
    for iteration in 0..iterations {
        let start_ns = (iteration * iteration_ms + 1) * MS;
        for op in 0..ops {
            pipeline.on_call(&call(start_ns + op, 1, operation(1, Op::AllReduce)));
        }
        pipeline.on_call(&call(start_ns + MS, MS, CallKind::Synchronize));
    }
}

fn arrivals(pipeline: &mut Pipeline) -> Vec<(u64, u64)> {
    let points = pipeline.take_points();
    let blocks = points
        .iter()
        .filter(|point| point.metric == metric::ARRIVAL);
    blocks
        .map(|point| (point.block.seq_first, point.block.seq_last))
        .collect()
}

/// Returns the host gaps of each block: their number, and their mean in milliseconds.
#[expect(clippy::cast_precision_loss, reason = "few")]
fn host_gaps(pipeline: &mut Pipeline) -> Vec<(u64, f64)> {
    let points = pipeline.take_points();
    let gaps = points
        .iter()
        .filter(|point| point.metric == metric::HOST_GAP);
    gaps.map(|point| match &point.value {
        Value::Summary { summary, .. } => (summary.count, summary.sum_ms / summary.count as f64),
        other => panic!("{other:?}"),
    })
    .collect()
}

/// Runs iterations of 10 ms with 4 operations and one synchronization of `wait_ns`.
fn synchronize(pipeline: &mut Pipeline, iterations: std::ops::Range<u64>, wait_ns: u64) {
    for iteration in iterations {
        let start_ns = (iteration * 10 + 1) * MS;
        for op in 0..4 {
            pipeline.on_call(&call(start_ns + op, 1, operation(1, Op::AllReduce)));
        }
        // Before and after it, synchronizations of another stream.
        pipeline.on_call(&call(start_ns + MS / 2, 20_000, CallKind::Synchronize));
        pipeline.on_call(&call(start_ns + MS, wait_ns, CallKind::Synchronize));
        pipeline.on_call(&call(start_ns + 4 * MS, 20_000, CallKind::Synchronize));
    }
}

#[test]
fn a_rank_without_long_waits_is_judged_by_its_short_synchronizations() {
    let mut pipeline = pipeline();
    pipeline.on_call(&call(0, 1, init(7, 4)));
    synchronize(&mut pipeline, 0..1200, 100_000);
    let gaps = host_gaps(&mut pipeline);
    // From 1.1 ms after the start of an iteration, where a synchronization returns, to the next.
    let is_whole = |(_, mean): &(u64, f64)| (mean - 8.9).abs() < 1e-3;
    assert!(gaps.iter().any(is_whole), "{gaps:?}");
}

#[test]
fn in_a_job_with_occasional_long_waits_short_synchronizations_do_not_count() {
    let mut pipeline = pipeline();
    pipeline.on_call(&call(0, 1, init(7, 4)));
    for hundred in 0..8 {
        synchronize(&mut pipeline, hundred * 100..hundred * 100 + 99, 100_000);
        synchronize(
            &mut pipeline,
            hundred * 100 + 99..hundred * 100 + 100,
            2 * MS,
        );
    }
    let gaps: u64 = host_gaps(&mut pipeline)
        .iter()
        .map(|(count, _)| count)
        .sum();
    assert!(gaps <= 8, "{gaps}");
}

#[test]
fn a_rank_that_stops_waiting_stays_comparable() {
    let mut pipeline = pipeline();
    pipeline.on_call(&call(0, 1, init(7, 4)));
    synchronize(&mut pipeline, 0..400, 2 * MS);
    let waiting = host_gaps(&mut pipeline);
    synchronize(&mut pipeline, 400..1200, 100_000);
    let not_waiting = host_gaps(&mut pipeline);
    assert_eq!(waiting.last().unwrap().0, not_waiting.last().unwrap().0);
    let means = [waiting, not_waiting].map(|gaps| gaps.last().unwrap().1);
    assert!(
        (means[0] - 7.0).abs() < 1e-3 && (means[1] - 8.9).abs() < 1e-3,
        "{means:?}"
    );
}

#[test]
fn no_operations_are_lost_before_the_iteration_pattern_is_known() {
    let mut pipeline = pipeline();
    run(&mut pipeline, 100, 125, 4);
    let blocks = arrivals(&mut pipeline);
    assert_eq!((blocks.first(), blocks.len()), (Some(&(0, 31)), 12));
    assert_eq!(pipeline.job(), Some(CommId::new(7)));
}

#[test]
fn a_slow_job_is_reported_before_its_pattern_is_known() {
    let mut pipeline = pipeline();
    run(&mut pipeline, 6, 10_000, 1);
    let blocks = arrivals(&mut pipeline);
    assert_eq!(blocks, [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]);
}

#[test]
fn a_short_job_is_reported_at_its_end() {
    let mut pipeline = pipeline();
    run(&mut pipeline, 3, 10, 2);
    assert!(arrivals(&mut pipeline).is_empty());
    pipeline.finish(Ending::Complete);
    assert_eq!(arrivals(&mut pipeline).last(), Some(&(0, 5)));
}

#[test]
fn sends_have_no_sequence_number() {
    let mut pipeline = pipeline();
    pipeline.on_call(&call(0, 1, init(7, 4)));
    for at in 1..5 {
        pipeline.on_call(&call(at, 1, operation(1, Op::Send)));
    }
    pipeline.on_call(&call(9, 1, operation(1, Op::AllReduce)));
    pipeline.finish(Ending::Complete);
    assert_eq!(arrivals(&mut pipeline), [(0, 0)]);
}

#[test]
fn operations_on_an_unknown_communicator_are_counted() {
    let mut pipeline = pipeline();
    pipeline.on_call(&call(0, 1, operation(1, Op::AllReduce)));
    pipeline.finish(Ending::Complete);
    assert_eq!(
        (pipeline.unknown_comm_ops(), pipeline.take_points().len()),
        (1, 0)
    );
}

#[test]
fn the_rollup_follows_a_change_of_the_busiest_communicator() {
    let mut pipeline = pipeline();
    run(&mut pipeline, 100, 125, 4);
    pipeline.take_points();
    let start_ns = 20_000 * MS;
    pipeline.on_call(&call(start_ns, 1, init(8, 2)));
    for at in 1..=3000 {
        let at_ns = start_ns + at * 10 * MS;
        pipeline.on_call(&call(at_ns, 1, operation(2, Op::AllGather)));
        pipeline.on_call(&call(at_ns + 2 * MS, MS, CallKind::Synchronize));
    }
    let points = pipeline.take_points();
    let last = points
        .iter()
        .rfind(|point| point.metric == metric::ARRIVAL)
        .unwrap();
    assert_eq!(last.block.comm, CommId::new(8));
    assert_eq!(last.block.seq_last + 1 - last.block.seq_first, 64);
}

fn any_call() -> impl Strategy<Value = Call> {
    let ops = (
        1_u64..4,
        prop::sample::select(vec![Op::AllReduce, Op::Send, Op::Reduce]),
    );
    let kind = prop_oneof![
        4 => ops.prop_map(|(comm, op)| operation(comm, op)),
        1 => (0_u64..3, 0_u32..4).prop_map(|(id, nranks)| init(id, nranks)),
        1 => Just(CallKind::CommDestroy { comm: Some(1) }),
        4 => Just(CallKind::Synchronize),
        1 => Just(CallKind::Other),
    ];
    let time = prop_oneof![0..100 * MS, any::<u64>()];
    (time.clone(), time, 0_u32..3, kind).prop_map(|(ts_ns, dur_ns, tid, kind)| Call {
        ts_ns,
        dur_ns,
        pid: 1,
        tid,
        kind,
    })
}

proptest! {
    #[test]
    fn arbitrary_calls_do_not_panic(calls in prop::collection::vec(any_call(), 0..600)) {
        let mut pipeline = pipeline();
        for call in &calls {
            pipeline.on_call(call);
        }
        pipeline.finish(Ending::Complete);
        for point in pipeline.take_points() {
            prop_assert!(point.block.seq_first <= point.block.seq_last);
            let numbers = match point.value {
                Value::Gauge(ms)
                | Value::Increase(ms)
                | Value::Elapsed { ms, .. }
                | Value::TaskTime { ms, .. }
                | Value::Issued { waiting_ms: ms, .. } => vec![ms],
                Value::Summary { summary, .. } => {
                    prop_assert!(summary.count > 0);
                    vec![summary.sum_ms, summary.min_ms, summary.max_ms]
                }
                Value::Durations { summary, .. } => vec![summary.sum_ms, summary.min_ms],
            };
            prop_assert!(numbers.iter().all(|number| number.is_finite() && *number >= 0.0));
        }
    }
}

fn issued(pipeline: &mut Pipeline) -> Vec<(u64, u64)> {
    let points = pipeline.take_points();
    let progress = points.iter().filter(|point| point.metric == metric::ISSUED);
    let count = |point: &Point| match point.value {
        Value::Issued { total, .. } => (point.time_ns / MS, total),
        _ => panic!("{point:?}"),
    };
    progress.map(count).collect()
}

#[test]
fn a_silent_process_still_reports_its_progress() {
    let mut pipeline = pipeline();
    pipeline.tick(1);
    assert_eq!(issued(&mut pipeline), [], "nothing was issued yet");
    run(&mut pipeline, 3, 10, 4);
    for second in 1..=10 {
        pipeline.tick(second * 1000 * MS);
    }
    assert_eq!(issued(&mut pipeline), [(1000, 12), (5000, 12), (9000, 12)]);
}

#[test]
fn no_progress_is_reported_for_a_destroyed_communicator() {
    let mut pipeline = pipeline();
    run(&mut pipeline, 3, 10, 4);
    pipeline.on_call(&call(100 * MS, 1, CallKind::CommDestroy { comm: Some(1) }));
    assert_eq!(issued(&mut pipeline), [(21, 12)], "its final progress");
    pipeline.tick(200 * MS);
    assert_eq!(issued(&mut pipeline), []);
}

#[test]
fn progress_is_reported_only_for_communicators_of_the_iteration_and_the_job() {
    let mut pipeline = pipeline();
    for (at, (unique_id, nranks)) in [(7, 4), (8, 2), (9, 2)].into_iter().enumerate() {
        let at = at as u64;
        pipeline.on_call(&call(at, 0, init(unique_id, nranks)));
        pipeline.on_call(&call(at, 0, operation(unique_id, Op::AllReduce)));
    }
    // The first communicator spans the job, the second is the busiest, the third was used once.
    for at in 0..300 {
        pipeline.on_call(&call((at + 1) * 10 * MS, 1, operation(8, Op::AllGather)));
    }
    pipeline.tick(10_000 * MS);
    assert_eq!(issued(&mut pipeline), [(10_000, 1), (10_000, 301)]);
}

#[test]
fn the_end_of_a_process_is_reported_though_it_aborted_its_communicators_before() {
    let mut pipeline = pipeline();
    run(&mut pipeline, 3, 10, 4);
    pipeline.on_call(&call(100 * MS, 1, CallKind::CommDestroy { comm: Some(1) }));
    pipeline.take_points();
    pipeline.end(Some(Exit {
        ts_ns: 200 * MS,
        status: ExitStatus::Code(1),
    }));
    let points = pipeline.take_points();
    let ends = points.iter().filter_map(|point| match point.value {
        Value::Issued { exit, total, .. } => Some((point.time_ns, exit, total)),
        _ => None,
    });
    let expected = (200 * MS, Some(ExitStatus::Code(1)), 12);
    assert_eq!(ends.collect::<Vec<_>>(), [expected]);
}
