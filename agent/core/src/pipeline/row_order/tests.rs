//! Release order of rows, and detection of rows that contain the times of another operation.

use super::*;
use crate::discover::{Comm, CommIndex};
use crate::event::GpuSpan;
use crate::signal::CommId;

const US: u64 = 1_000;

fn comm() -> CommIndex {
    let comms = [Comm {
        id: CommId::new(7),
        rank: 0,
        nranks: 2,
        parent: None,
    }];
    CommIndex::enumerate(&comms).next().unwrap().0
}

/// Returns the row of an operation that started 10 us after its enqueue; operations are enqueued
/// every 100 us.
fn row(seq: u64, kernel_us: u64) -> Row {
    let host_ns = seq * 100 * US;
    let (start_ns, stop_ns) = (host_ns + 10 * US, host_ns + (10 + kernel_us) * US);
    let op = Op::AllReduce;
    Row {
        operation: GpuOperation {
            ts_ns: stop_ns,
            pid: 1,
            comm_id: 7,
            rank: 0,
            nranks: 2,
            nth: 0,
            op,
            root: None,
            seq,
            nccl_seq: Some(seq),
            count: 1,
            host_ns,
            timer: Some(GpuSpan { start_ns, stop_ns }),
            lost: 0,
        },
        at: OpRef {
            comm: comm(),
            seq,
            op,
        },
        times: Some(GpuTiming {
            queue_ns: 10 * US,
            kernel_ns: kernel_us * US,
            exclusive_ns: kernel_us * US,
            end_ns: stop_ns,
        }),
    }
}

/// Returns the numbers of the rows, and whether their ends are those of later operations.
fn released(rows: &[Released]) -> Vec<(u64, bool)> {
    let of = |released: &Released| (released.row.at.seq, released.is_overwritten);
    rows.iter().map(of).collect()
}

#[test]
fn a_row_is_held_until_the_next_operation_is_known() {
    let mut order = RowOrder::default();
    assert_eq!(order.push(row(0, 50)), []);
    assert_eq!(released(&order.push(row(1, 50))), [(0, false)]);
    assert_eq!(released(&order.push(row(2, 50))), [(1, false)]);
    assert_eq!(released(&order.release_until(u64::MAX)), [(2, false)]);
}

#[test]
fn an_end_after_the_start_of_the_next_operation_is_that_of_a_later_one() {
    let mut order = RowOrder::default();
    order.push(row(0, 95));
    // It ended at most 5 us after the start of the next one, which is the resolution of the GPU's
    // timer.
    assert_eq!(released(&order.push(row(1, 106))), [(0, false)]);
    assert_eq!(released(&order.push(row(2, 50))), [(1, true)]);
    assert_eq!(released(&order.push(row(3, 50))), [(2, false)]);
}

#[test]
fn rows_that_arrive_out_of_order_are_released_in_order_of_operations() {
    let mut order = RowOrder::default();
    order.push(row(0, 50));
    order.push(row(1, 50));
    assert_eq!(order.push(row(3, 50)), []);
    assert_eq!(released(&order.push(row(2, 50))), [(1, false), (2, false)]);
}

#[test]
fn a_missing_row_delays_the_others_by_a_bounded_number_and_time() {
    let mut by_number = RowOrder::default();
    by_number.push(row(0, 50));
    let mut n_released = 0;
    for seq in 2..=100 {
        n_released += by_number.push(row(seq, 50)).len();
        assert!(by_number.held.len() <= MAX_HELD);
    }
    assert_eq!(n_released, 99, "all but the last");
    let mut by_time = RowOrder::default();
    by_time.push(row(0, 50));
    by_time.push(row(2, 50));
    let last_ns = row(2, 50).operation.ts_ns;
    assert_eq!(
        released(&by_time.release_until(last_ns + MAX_HELD_NS)),
        [(0, false)]
    );
    assert_eq!(
        released(&by_time.release_until(last_ns + MAX_HELD_NS + 1)),
        [(2, false)]
    );
}

#[test]
fn a_row_that_arrives_after_its_successor_was_released_is_released_at_once() {
    let mut order = RowOrder::default();
    order.push(row(4, 50));
    order.push(row(5, 50));
    assert_eq!(released(&order.push(row(3, 50))), [(3, false)]);
}

#[test]
fn a_communicator_with_most_rows_before_their_enqueue_is_lost_permanently() {
    let mut order = RowOrder::default();
    for _ in 0..32 {
        order.record_early_start(true);
    }
    assert!(!order.is_lost());
    order.record_early_start(true);
    for _ in 0..1000 {
        assert!(order.is_lost() && order.is_doubtful());
        order.record_early_start(false);
    }
}

#[test]
fn a_communicator_with_mostly_wrong_ends_is_doubtful_until_they_are_right_again() {
    let mut order = RowOrder::default();
    for seq in 0..64 {
        order.push(row(seq, 500));
    }
    assert!(order.is_doubtful() && !order.is_lost());
    for seq in 64..128 {
        order.push(row(seq, 50));
    }
    assert!(!order.is_doubtful());
}

#[test]
fn rows_stand_for_calls_once_the_number_of_a_function_does_not_advance() {
    let mut order = RowOrder::default();
    let replayed = |seq: u64| {
        let mut row = row(seq, 50);
        row.operation.nccl_seq = Some(seq.min(2));
        row
    };
    let rows: Vec<Released> = (0..5).flat_map(|seq| order.push(replayed(seq))).collect();
    let calls: Vec<u64> = rows
        .iter()
        .filter(|released| released.is_call)
        .map(|released| released.row.at.seq)
        .collect();
    assert_eq!(calls, [2, 3], "the last one is held");
}
