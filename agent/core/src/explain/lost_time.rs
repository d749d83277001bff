//! Time that a process lost to each cause.

use crate::event::LogHistogram;
use crate::explain::cause::Cause;
use crate::explain::observation::Observation;

/// Multiple of the median from which a call is slow.
const SLOW_MULTIPLE: u64 = 8;
/// Duration below which a call is never slow, nanoseconds.
const SLOW_NS: u64 = 1_000_000;

/// Returns the time that a process lost to a cause in a period, nanoseconds; `None` if it could not
/// be seen.
pub(super) fn lost_ns(cause: Cause, seen: &Observation) -> Option<u64> {
    match cause {
        Cause::CpuContention => match seen.threads {
            Some(threads) => {
                let run_queue_ns = threads.run_queue_ns.unwrap_or(0);
                Some(threads.preempted_ns.saturating_add(run_queue_ns))
            }
            // A recording has the tasks only.
            None => seen
                .blocked
                .as_ref()
                .map(|_| seen.preempted_by.values().sum()),
        },
        Cause::CgroupThrottling => seen.cgroup_throttled_ns,
        Cause::Interrupts => seen.interrupt_ns,
        Cause::GpuSharing => {
            let others = seen.gpu_shared_by.as_ref()?;
            Some(others.values().sum())
        }
        Cause::MemoryAllocation | Cause::GraphCreation => {
            let own = seen.calls.iter();
            let own = own.filter(|(function, _)| cause.has_function(function));
            Some(own.map(|(_, calls)| calls.total_ns).sum())
        }
        Cause::Copies | Cause::OwnProgram | Cause::OwnCode => None,
        Cause::SlowCalls => Some(slowest_function(seen).map_or(0, |(_, slow_ns)| slow_ns)),
        Cause::Lock
        | Cause::BlockIo
        | Cause::PageFaults
        | Cause::Network
        | Cause::Pipe
        | Cause::Sleep => seen.blocked_ns(cause.block_reason()?),
    }
}

/// Returns the function whose slow calls took longest beyond its median, and that time,
/// nanoseconds.
pub(super) fn slowest_function(seen: &Observation) -> Option<(&str, u64)> {
    let functions = seen.calls.iter();
    let functions = functions.filter(|(name, _)| Cause::SlowCalls.has_function(name));
    functions
        .map(|(name, calls)| (name.as_str(), slow_ns(&calls.histogram)))
        .filter(|(_, ns)| *ns > 0)
        .max_by_key(|(_, ns)| *ns)
}

/// Time of calls far longer than the median, beyond the median, nanoseconds.
fn slow_ns(histogram: &LogHistogram) -> u64 {
    let Some(median) = histogram.percentile(50) else {
        return 0;
    };
    let limit = median.saturating_mul(SLOW_MULTIPLE).max(SLOW_NS);
    let slow = histogram.buckets().filter_map(|(bucket, times)| {
        let duration = LogHistogram::lower_bound(bucket);
        (duration >= limit).then(|| times.saturating_mul(duration - median))
    });
    slow.fold(0, u64::saturating_add)
}
