use super::*;
use crate::event::{GpuSpan, Op};
use crate::operation_sums::channel::IDLE_NS;
use crate::signal::Value;

const MS: u64 = 1_000_000;

/// Operation `seq` that ends at `ts_ns` and took `duration_ns`.
fn operation(seq: u64, ts_ns: u64, duration_ns: u64) -> GpuOperation {
    GpuOperation {
        ts_ns,
        pid: 1,
        comm_id: 7,
        rank: 0,
        nranks: 4,
        nth: 0,
        op: Op::AllReduce,
        root: None,
        seq,
        count: 1,
        host_ns: ts_ns - duration_ns,
        timer: Some(GpuSpan {
            start_ns: ts_ns - duration_ns + 500,
            stop_ns: ts_ns + 500,
        }),
        nccl_seq: None,
        lost: 0,
    }
}

/// Sums of operations that end every `every_ns`, from operation `first` on.
fn summed(first: u64, n: u64, every_ns: u64) -> OperationSums {
    let mut sums = OperationSums::default();
    for seq in first..first + n {
        sums.record(&operation(seq, 1_000 * MS + seq * every_ns, MS));
    }
    sums
}

/// Operations of the blocks, and the number of durations in each.
fn blocks(sums: &mut OperationSums) -> Vec<(u64, u64, u64)> {
    let points = sums.take_points();
    let of_point = |point: &Point| {
        let Value::Durations { summary, .. } = &point.value else {
            panic!("{point:?}");
        };
        (point.block.seq_first, point.block.seq_last, summary.count)
    };
    points.iter().map(of_point).collect()
}

#[test]
fn blocks_follow_each_other_without_a_gap_and_last_about_half_a_second() {
    let mut sums = summed(3, 20_000, MS);
    let blocks = blocks(&mut sums);
    let mut next = 3;
    for (first, last, count) in &blocks {
        assert_eq!((*first, *count), (next, last - first + 1));
        assert!((last - first + 1).is_power_of_two() && first % (last - first + 1) == 0);
        next = last + 1;
    }
    let (first, last, _) = blocks[blocks.len() - 1];
    assert_eq!(last - first + 1, 512);
}

#[test]
fn the_number_of_points_does_not_depend_on_the_rate_of_operations() {
    let rates = [10 * MS, MS, MS / 10, MS / 100];
    let points = rates.map(|every| {
        let mut sums = summed(0, 60_000 * MS / every, every);
        blocks(&mut sums).len()
    });
    assert!(
        points.iter().all(|points| (60..300).contains(points)),
        "{points:?}"
    );
}

#[test]
fn ranks_that_begin_to_look_at_different_operations_soon_have_the_same_blocks() {
    let of_rank = |first| {
        let mut sums = summed(first, 30_000, MS);
        let mut blocks = blocks(&mut sums);
        blocks.retain(|(first, ..)| (10_000..29_000).contains(first));
        blocks
    };
    assert_eq!(of_rank(0), of_rank(1_237));
}

#[test]
fn a_job_that_begins_slowly_and_then_becomes_fast_sends_no_flood() {
    let mut sums = summed(0, 4, 1_000 * MS);
    for seq in 4..60_000 {
        sums.record(&operation(seq, 6_000 * MS + seq * MS, MS));
    }
    let blocks = blocks(&mut sums).len();
    assert!(blocks < 800, "{blocks}");
}

#[test]
fn rare_operations_are_reported_one_by_one_at_once() {
    let mut sums = summed(0, 3, 10_000 * MS);
    assert_eq!(blocks(&mut sums), [(0, 0, 1), (1, 1, 1), (2, 2, 1)]);
}

#[test]
fn operations_in_which_not_all_wait_and_those_without_times_are_covered_but_not_counted() {
    let mut sums = summed(0, 4_000, MS);
    sums.take_points();
    let mut next = operation(4_000, 5_001 * MS, MS);
    next.op = Op::Broadcast;
    sums.record(&next);
    for seq in 4_001..6_000 {
        let timer = (seq % 2 == 0).then_some(GpuSpan {
            start_ns: 0,
            stop_ns: 5,
        });
        let ts_ns = 1_001 * MS + seq * MS;
        sums.record(&GpuOperation {
            timer,
            ..operation(seq, ts_ns, MS)
        });
    }
    let blocks = blocks(&mut sums);
    let (first, last, count) = blocks[1];
    assert_eq!(2 * count, last - first + 1);
}

#[test]
fn rows_of_a_block_may_come_after_the_first_of_the_next_one() {
    let mut sums = summed(0, 8_000, MS);
    let (first, last, _) = blocks(&mut sums).pop().unwrap();
    let size = last - first + 1;
    let border = 8_000_u64.next_multiple_of(size) + size;
    for seq in (8_000..border - 1).chain([border, border - 1]) {
        sums.record(&operation(seq, 1_000 * MS + seq * MS, MS));
    }
    let blocks = blocks(&mut sums);
    assert_eq!(blocks.last(), Some(&(border - size, border - 1, size)));
    assert_eq!(sums.left_out(), 0);
}

#[test]
fn a_block_whose_job_becomes_slow_ends_early_at_a_common_border() {
    let mut sums = summed(0, 8_000, MS);
    sums.take_points();
    let mut ts_ns = 9_000 * MS;
    for seq in 8_000..8_200 {
        ts_ns += 50 * MS;
        sums.record(&operation(seq, ts_ns, MS));
    }
    let spans = blocks(&mut sums);
    let longest = spans
        .iter()
        .skip(1)
        .map(|(first, last, _)| last - first + 1);
    assert!(longest.max() <= Some(64), "{spans:?}");
}

#[test]
fn what_has_run_is_reported_when_nothing_follows() {
    let mut sums = summed(0, 8_100, MS);
    sums.take_points();
    sums.tick(9_100 * MS + IDLE_NS - MS);
    assert_eq!(sums.take_points(), []);
    sums.tick(9_100 * MS + IDLE_NS);
    let last = blocks(&mut sums);
    assert!(matches!(last.as_slice(), [(_, 8_099, _)]), "{last:?}");
    sums.record(&operation(8_100, 20_000 * MS, MS));
    assert_eq!(sums.left_out(), 0);
}

#[test]
fn transfers_are_counted_apart_from_collectives() {
    let mut sums = OperationSums::default();
    let send = GpuOperation {
        op: Op::Send,
        nranks: 2,
        ..operation(0, 1_000 * MS, MS)
    };
    sums.record(&send);
    sums.record(&operation(0, 2_000 * MS, MS));
    sums.record(&GpuOperation { nranks: 4, ..send });
    assert_eq!(blocks(&mut sums), [(0, 0, 1), (0, 0, 1), (0, 0, 1)]);
    assert_eq!(sums.left_out(), 0);
}

#[test]
fn operations_with_a_root_are_summed_if_all_ranks_take_turns() {
    let broadcasts = |roots: &[u32]| {
        let mut sums = OperationSums::default();
        for seq in 0..16 {
            let root = roots[usize::try_from(seq).unwrap() % roots.len()];
            let is_rooted = seq >= 8;
            sums.record(&GpuOperation {
                op: if is_rooted {
                    Op::Broadcast
                } else {
                    Op::AllReduce
                },
                root: is_rooted.then_some(root),
                ..operation(seq, (1_000 + seq) * MS, MS)
            });
        }
        sums.finish();
        blocks(&mut sums)
            .iter()
            .map(|(.., count)| count)
            .sum::<u64>()
    };
    assert_eq!(broadcasts(&[0, 1, 2, 3]), 16);
    for roots in [&[0, 1, 2][..], &[0], &[0, 1, 2, 7]] {
        assert_eq!(broadcasts(roots), 8, "{roots:?}");
    }
    // Each was the root, but one of them mostly.
    assert_eq!(broadcasts(&[0, 0, 0, 0, 0, 1, 2, 3]), 8);
}

#[test]
fn leads_are_relative_to_the_first_of_the_process() {
    let mut sums = OperationSums::default();
    for (seq, queued_ns) in [(0, 0), (1, 3 * MS)] {
        let one = operation(seq, 1_000 * MS * (seq + 1), MS);
        sums.record(&GpuOperation {
            host_ns: one.host_ns - queued_ns,
            ..one
        });
    }
    let points = sums.take_points();
    let leads = points.iter().map(|point| match &point.value {
        Value::Durations {
            lead: Some(lead), ..
        } => lead.sum_ms,
        _ => f64::NAN,
    });
    assert_eq!(leads.collect::<Vec<_>>(), [0.0, 3.0]);
}

#[test]
fn hostile_numbers_do_no_harm() {
    let mut sums = OperationSums::default();
    for seq in [0, u64::MAX, 1, u64::MAX - 1, 5, u64::MAX] {
        sums.record(&operation(seq, 1_000 * MS, MS));
        sums.record(&GpuOperation {
            timer: Some(GpuSpan {
                start_ns: u64::MAX,
                stop_ns: 0,
            }),
            ..operation(seq, 1_000 * MS, MS)
        });
    }
    sums.tick(u64::MAX);
    sums.finish();
}
