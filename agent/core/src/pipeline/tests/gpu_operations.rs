//! What a pipeline counts of operations on the GPU.

use super::{MS, call, init, pipeline};
use crate::event::{GpuOperation, GpuSpan, Op};
use crate::vitals::LostOperations;

/// Returns an operation on the GPU, on a communicator of two ranks, whose number is its time.
fn gpu_operation(at_ms: u64, op: Op) -> GpuOperation {
    GpuOperation {
        ts_ns: (at_ms + 2) * MS,
        pid: 1,
        comm_id: 9,
        rank: 0,
        nranks: 2,
        nth: 0,
        op,
        root: None,
        seq: at_ms,
        nccl_seq: None,
        count: 1,
        host_ns: at_ms * MS,
        timer: Some(GpuSpan {
            start_ns: (at_ms + 1) * MS,
            stop_ns: (at_ms + 2) * MS,
        }),
        lost: 0,
    }
}

#[test]
fn plugin_losses_are_the_maximum_reported() {
    let mut pipeline = pipeline();
    pipeline.on_call(&call(0, 1, init(9, 2)));
    // The counter is per process, and its threads report it out of order.
    for (at_ms, op, lost) in [
        (10, Op::AllReduce, 2),
        (20, Op::Send, 5),
        (30, Op::AllReduce, 4),
    ] {
        pipeline.on_gpu_operation(&GpuOperation {
            lost,
            ..gpu_operation(at_ms, op)
        });
    }
    let expected = LostOperations {
        plugin: 5,
        ..LostOperations::default()
    };
    assert_eq!(pipeline.lost_operations(), expected);
}

#[test]
fn gpu_operations_on_an_unknown_communicator_are_counted() {
    let mut pipeline = pipeline();
    pipeline.on_gpu_operation(&gpu_operation(10, Op::AllReduce));
    // A transfer counts as kernel time on any communicator.
    pipeline.on_gpu_operation(&gpu_operation(20, Op::Send));
    pipeline.on_gpu_operation(&gpu_operation(30, Op::AllGather));
    pipeline.on_call(&call(40 * MS, 1, init(9, 2)));
    pipeline.on_gpu_operation(&gpu_operation(50, Op::AllReduce));
    let expected = LostOperations {
        unknown_comm: 2,
        ..LostOperations::default()
    };
    assert_eq!(pipeline.lost_operations(), expected);
}

#[test]
fn times_of_another_operation_are_counted_for_collectives_and_transfers() {
    let mut pipeline = pipeline();
    pipeline.on_call(&call(0, 1, init(9, 2)));
    for op in [Op::AllReduce, Op::Send] {
        pipeline.on_gpu_operation(&gpu_operation(10, op));
        // It would have started nine milliseconds before it was enqueued.
        pipeline.on_gpu_operation(&GpuOperation {
            host_ns: 20 * MS,
            ts_ns: 30 * MS,
            seq: 20,
            ..gpu_operation(10, op)
        });
    }
    let expected = LostOperations {
        implausible: 2,
        ..LostOperations::default()
    };
    assert_eq!(pipeline.lost_operations(), expected);
}

#[test]
fn an_operation_whose_sums_were_sent_before_is_counted() {
    let mut pipeline = pipeline();
    pipeline.on_call(&call(0, 1, init(9, 2)));
    for _ in 0..2 {
        pipeline.on_gpu_operation(&gpu_operation(10, Op::AllReduce));
    }
    assert_eq!(pipeline.lost_operations().not_summed, 1);
}
