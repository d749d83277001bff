//! Links of a causal chain and advice about its cause.

use fleet_proto::advice;

use crate::event::{FunctionDurations, OTHER_TASKS};
use crate::explain::cause::Cause;
use crate::explain::chain::{CausalChain, Reference, percent};
use crate::explain::lost_time::{lost_ns, slowest_function};
use crate::explain::observation::Observation;
use crate::explain::place::Place;
use crate::explain::recapture::Graphs;
use crate::signal::millis;
use crate::statistics::ratio;

/// Maximum number of tasks or functions that a link names.
const MAX_NAMED: usize = 3;
/// Share of the period from which memory or I/O pressure is a link of its own.
const PRESSURE_SHARE: f64 = 0.02;
/// Multiple of the peers' share below which a loss is theirs as well.
const SHARED: f64 = 2.0;
/// Multiple of the median from which the 99th percentile is given as a multiple, too.
const FAR: f64 = 10.0;
/// TCP segments sent again per second from which they are a link of their own.
const RETRANSMITS: f64 = 1.0;

/// Advice for a process that waits for its workers.
pub(super) const WORKERS: &str =
    "let more workers prepare data (num_workers, prefetch_factor), or make their work cheaper";

/// Link from allocations to captures of graphs.
const AFTER_CAPTURES: &str = "graphs are captured since then, and torch.cuda.graph() frees cached GPU memory before each capture";

/// Returns the links from the system to the call, each with its figures for a period.
pub(super) fn links(cause: Cause, seen: &Observation, period_ns: u64) -> Vec<String> {
    let mut links = Vec::new();
    links.extend(pressure(cause, seen, period_ns));
    match cause {
        Cause::CpuContention => links.extend(contention(seen, period_ns)),
        Cause::CgroupThrottling => links.push(format!(
            "the cgroup had used up its CPU quota {}",
            per_second(seen.cgroup_throttled_ns.unwrap_or(0), period_ns)
        )),
        Cause::Interrupts => links.push(format!(
            "interrupts took {}",
            per_second(seen.interrupt_ns.unwrap_or(0), period_ns)
        )),
        Cause::GpuSharing => {
            let others = seen.gpu_neighbours().into_iter().take(MAX_NAMED);
            links.extend(others.map(|(name, ns)| {
                format!("{name} computed on its GPU {}", per_second(ns, period_ns))
            }));
        }
        Cause::MemoryAllocation => links.extend(functions(cause, seen, period_ns)),
        Cause::GraphCreation => {
            links.push(Graphs::new(seen, period_ns).link());
            links.extend(functions(cause, seen, period_ns));
        }
        Cause::SlowCalls => links.extend(slowest(seen)),
        Cause::Copies | Cause::OwnProgram | Cause::OwnCode => {}
        Cause::Lock
        | Cause::BlockIo
        | Cause::PageFaults
        | Cause::Network
        | Cause::Pipe
        | Cause::Sleep => {
            let blocked_ns = lost_ns(cause, seen).unwrap_or(0);
            let reason = cause.block_reason();
            let longest_ns = reason.and_then(|reason| seen.longest_blocked.get(&reason));
            links.push(format!(
                "its threads were {cause} {}{}",
                per_second(blocked_ns, period_ns),
                longest(longest_ns.copied().unwrap_or(0))
            ));
        }
    }
    if cause == Cause::Network
        && let Some(per_second) = retransmits(seen, period_ns)
    {
        links.push(format!(
            "its host sent {per_second:.1} TCP segments again per second"
        ));
    }
    links
}

/// Returns the link of a loss that the peers have as well, so that it is no matter of this process.
pub(super) fn of_peers(cause: Cause, share: f64, reference: Reference) -> Option<String> {
    let Reference::Peers(peers) = reference else {
        return None;
    };
    if share >= SHARED * peers || !cause.is_fault(share) {
        return None;
    }
    let peers = percent(peers);
    Some(match cause {
        Cause::CpuContention => {
            format!(
                "its peers lose {peers} as well: their host, or the CPUs that they share, is short of CPU"
            )
        }
        _ => format!("its peers lose {peers} as well: it is no matter of this process alone"),
    })
}

/// Returns the link from a line to the calls of a GPU library beside it; `None` without calls.
pub(super) fn calls_beside(place: &Place) -> Option<String> {
    let (call, line) = (place.call.as_ref()?, place.stack.python_line()?);
    let share = percent(place.share);
    Some(format!(
        "it was in {call} at {line} in {share} of its samples"
    ))
}

/// Returns what to do, a command where there is one.
pub(super) fn advice(cause: Cause, pid: u32, seen: &Observation, period_ns: u64) -> Vec<String> {
    let text = match cause {
        Cause::CpuContention => {
            let tasks = seen.tasks();
            let named = tasks.iter().find(|(task, ..)| *task != OTHER_TASKS);
            let named = named.map(|(task, cpu, _)| (*task, *cpu));
            return vec![advice::cpu_contention(named, pid)];
        }
        Cause::CgroupThrottling => advice::CGROUP_THROTTLING,
        Cause::Interrupts => advice::INTERRUPTS,
        Cause::GpuSharing => {
            let others = seen.gpu_neighbours().into_iter().take(MAX_NAMED);
            let others: Vec<&str> = others.map(|(name, _)| name).collect();
            return vec![advice::gpu_sharing(
                format_args!("process {pid}"),
                &others.join(", "),
            )];
        }
        Cause::Lock => return vec![advice::lock(pid)],
        Cause::BlockIo => advice::BLOCK_IO,
        Cause::PageFaults => advice::PAGE_FAULTS,
        Cause::Network => {
            let lost = retransmits(seen, period_ns).map(|_| advice::TCP_RETRANSMITS);
            let all = [advice::NETWORK].into_iter().chain(lost);
            return all.map(str::to_owned).collect();
        }
        Cause::Pipe => WORKERS,
        Cause::Sleep => {
            return vec![format!(
                "find the line that sleeps: fleet-agent stacks --pid {pid}"
            )];
        }
        Cause::MemoryAllocation => {
            "allocate once and reuse; with PyTorch call no empty_cache() in the loop, and set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
        }
        Cause::GraphCreation => {
            "keep one graph per shape, or pad batches to few shapes, so that none is captured again"
        }
        Cause::Copies => {
            "copy less, or from and to pinned memory with non_blocking=True: other copies wait for the work of the GPU before them"
        }
        Cause::SlowCalls | Cause::OwnProgram | Cause::OwnCode => return Vec::new(),
    };
    vec![text.to_owned()]
}

/// Says of allocations that began with captures of graphs, or later, that they follow from them: PyTorch frees
/// its cached GPU memory before each capture, and allocates it again.
pub(super) fn relate_allocations_to_captures(chains: &mut [CausalChain]) {
    let mut captures = chains.iter();
    let Some(captures) = captures.find(|chain| chain.cause == Cause::GraphCreation) else {
        return;
    };
    let (since_ns, advice) = (captures.since_ns, captures.advice.clone());
    let follows = |chain: &&mut CausalChain| {
        chain.cause == Cause::MemoryAllocation && chain.since_ns >= since_ns
    };
    for allocations in chains.iter_mut().filter(follows) {
        allocations.links.push(AFTER_CAPTURES.to_owned());
        allocations.advice.clone_from(&advice);
    }
}

/// TCP segments that the host sent again, per second, if they are worth a link.
fn retransmits(seen: &Observation, period_ns: u64) -> Option<f64> {
    let per_second = ratio(seen.tcp_retransmits?, period_ns) * 1e9;
    (per_second >= RETRANSMITS).then_some(per_second)
}

/// Pressure on memory or I/O behind a wait for pages or for a disk.
fn pressure(cause: Cause, seen: &Observation, period_ns: u64) -> Option<String> {
    let pressure = seen.pressure?;
    let (resource, ns) = match cause {
        Cause::PageFaults => ("memory", pressure.memory_ns),
        Cause::BlockIo => ("I/O", pressure.io_ns),
        _ => return None,
    };
    let share = ratio(ns, period_ns);
    (share >= PRESSURE_SHARE).then(|| format!("tasks waited for {resource} {}", percent(share)))
}

fn contention(seen: &Observation, period_ns: u64) -> Vec<String> {
    let named = seen.tasks().into_iter().take(MAX_NAMED);
    let mut links: Vec<String> = named
        .map(|(task, cpu, ns)| {
            let task = if task == OTHER_TASKS {
                "other tasks"
            } else {
                task
            };
            format!("{task} ran on cpu {cpu} {}", per_second(ns, period_ns))
        })
        .collect();
    if let Some(threads) = seen.threads {
        let run_queue_ns = threads.run_queue_ns.unwrap_or(0);
        links.push(format!(
            "its threads were preempted {} times, for {}, and waited for a CPU after waking up {}",
            threads.preemptions,
            per_second(threads.preempted_ns, period_ns),
            per_second(run_queue_ns, period_ns)
        ));
    }
    let longest_ns = seen.longest_preemption_ns.filter(|ns| *ns > 0);
    links.extend(longest_ns.map(|ns| format!("the longest preemption took {:.1} ms", millis(ns))));
    links.extend(most_interrupted(seen));
    links
}

/// Returns the function of a GPU library whose calls lost the CPU most often. Where the thread waits for the GPU in any case,
/// it is no loss.
fn most_interrupted(seen: &Observation) -> Option<String> {
    let calls = seen.calls.iter();
    let calls = calls.filter(|(function, _)| !Cause::waits(function));
    let (_, calls) = calls.max_by_key(|(_, calls)| calls.interrupted)?;
    let interrupted = calls.interrupted.filter(|interrupted| *interrupted > 0)?;
    Some(format!(
        "{} was preempted in {interrupted} of {} calls{}",
        calls.label(),
        calls.calls(),
        percentiles(calls)
    ))
}

fn functions(cause: Cause, seen: &Observation, period_ns: u64) -> Vec<String> {
    let own = seen.calls.iter();
    let own = own.filter(|(function, _)| cause.has_function(function));
    let mut own: Vec<(&String, &FunctionDurations)> = own.collect();
    own.sort_by_key(|(function, calls)| (std::cmp::Reverse(calls.total_ns), *function));
    own.into_iter()
        .take(MAX_NAMED)
        .map(|(function, calls)| {
            format!(
                "{function} was called {} times, for {}{}",
                calls.calls(),
                per_second(calls.total_ns, period_ns),
                percentiles(calls)
            )
        })
        .collect()
}

fn slowest(seen: &Observation) -> Option<String> {
    let (function, _) = slowest_function(seen)?;
    let calls = seen.calls.get(function)?;
    Some(format!(
        "{function} was called {} times{}, longest {:.1} ms",
        calls.calls(),
        percentiles(calls),
        millis(calls.longest_ns)
    ))
}

fn percentiles(calls: &FunctionDurations) -> String {
    match (calls.percentile_ns(50), calls.percentile_ns(99)) {
        (Some(p50), Some(p99)) => {
            let times = ratio(p99, p50);
            let times = if times >= FAR {
                format!(" ({times:.0} times p50)")
            } else {
                String::new()
            };
            format!(
                ", p50 {:.3} ms, p99 {:.3} ms{times}",
                millis(p50),
                millis(p99)
            )
        }
        _ => String::new(),
    }
}

/// Says how long the longest of some delays was, if that is known.
fn longest(ns: u64) -> String {
    if ns == 0 {
        String::new()
    } else {
        format!(", the longest {:.1} ms", millis(ns))
    }
}

/// Formats a time as milliseconds per second of a period.
fn per_second(ns: u64, period_ns: u64) -> String {
    format!("{:.1} ms/s", ratio(ns, period_ns) * 1e3)
}
