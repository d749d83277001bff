//! Host evidence of one block.

use fleet_proto::metric;

use crate::event::{Activity, BlockReason, Delays};
use crate::signal::{Value, millis};

/// Returns the evidence of one block that the source can see.
pub(super) fn values<'a>(
    activity: &Activity,
    delays: Option<&'a Delays>,
) -> impl Iterator<Item = (&'static str, Value)> + use<'a> {
    let increases = of_activity(activity).chain(delays.into_iter().flat_map(of_delays));
    let increases = increases.map(|(metric, amount)| (metric, Value::Increase(amount)));
    increases.chain(delays.into_iter().flat_map(of_tasks))
}

/// Returns the metrics of delays that the source can see. Interrupts are seen where blocked threads
/// are.
fn of_delays(delays: &Delays) -> impl Iterator<Item = (&'static str, f64)> + use<> {
    let interrupt_ms = delays.interrupt_ns.map(millis);
    let blocked = |reason| interrupt_ms.map(|_| millis(delays.blocked_ns(reason)));
    let pressure = delays.pressure;
    let processes = delays.gpu_shared_by.as_deref();
    let shared_ns = processes.map(|all| all.iter().map(|process| process.ns).sum());
    let amounts = [
        (metric::GPU_SHARED, shared_ns.map(millis)),
        (
            metric::CGROUP_THROTTLED,
            delays.cgroup_throttled_ns.map(millis),
        ),
        (metric::INTERRUPT, interrupt_ms),
        (metric::LOCK, blocked(BlockReason::Lock)),
        (metric::PAGE_FAULT, blocked(BlockReason::PageFault)),
        (metric::NETWORK_WAIT, blocked(BlockReason::Network)),
        (
            metric::PRESSURE_CPU,
            pressure.map(|pressure| millis(pressure.cpu_ns)),
        ),
        (
            metric::PRESSURE_MEMORY,
            pressure.map(|pressure| millis(pressure.memory_ns)),
        ),
        (
            metric::PRESSURE_IO,
            pressure.map(|pressure| millis(pressure.io_ns)),
        ),
    ];
    let seen = |(metric, amount): (&'static str, Option<f64>)| Some((metric, amount?));
    amounts.into_iter().filter_map(seen)
}

/// Returns the tasks that ran in the place of the process, and those beside it on its GPU.
fn of_tasks(delays: &Delays) -> impl Iterator<Item = (&'static str, Value)> + use<> {
    let mut delays = Delays {
        preempted_by: delays.preempted_by.clone(),
        gpu_shared_by: delays.gpu_shared_by.clone(),
        ..Delays::default()
    };
    delays.name_largest_tasks();
    let on_cpu = delays.preempted_by.into_iter();
    let on_gpu = delays.gpu_shared_by.into_iter().flatten();
    let on_cpu = on_cpu.map(|task| (metric::PREEMPTED_BY, task));
    let all = on_cpu.chain(on_gpu.map(|task| (metric::GPU_SHARED_BY, task)));
    all.map(|(metric, task)| {
        let value = Value::TaskTime {
            ms: millis(task.ns),
            task: task.task,
            cpu: task.cpu,
        };
        (metric, value)
    })
}

/// Returns the metrics of activity that the source can see.
#[expect(
    clippy::cast_precision_loss,
    reason = "bytes and counts of one block stay below 2^53"
)]
fn of_activity(activity: &Activity) -> impl Iterator<Item = (&'static str, f64)> + use<> {
    let (threads, copied, kernel) = (activity.threads, activity.memcpy_bytes, activity.kernel);
    let count = |n: Option<u64>| n.map(|n| n as f64);
    let amounts = [
        (metric::OFF_CPU, threads.map(|sum| millis(sum.off_cpu_ns))),
        (
            metric::RUN_QUEUE,
            threads.and_then(|sum| sum.run_queue_ns).map(millis),
        ),
        (
            metric::PREEMPTED,
            threads.map(|sum| millis(sum.preempted_ns)),
        ),
        (
            metric::PREEMPTIONS,
            count(threads.map(|sum| sum.preemptions)),
        ),
        (metric::MEMCPY, count(copied.map(|bytes| bytes.total()))),
        (
            metric::MEMCPY_TO_HOST,
            count(copied.map(|bytes| bytes.to_host)),
        ),
        (metric::LAUNCHES, count(activity.launches)),
        (metric::GRAPH_LAUNCHES, count(activity.graph_launches)),
        (
            metric::PAGE_ALLOCATIONS,
            count(kernel.map(|work| work.page_allocations)),
        ),
        (
            metric::BLOCK_IO,
            kernel.map(|work| millis(work.block_io_ns)),
        ),
        (metric::TCP_RETRANSMITS, count(activity.tcp_retransmits)),
        (metric::THROTTLED, activity.throttled_ns.map(millis)),
        (metric::RDMA_ERRORS, count(activity.rdma_errors)),
    ];
    let seen = |(metric, amount): (&'static str, Option<f64>)| Some((metric, amount?));
    amounts.into_iter().filter_map(seen)
}
