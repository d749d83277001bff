//! Advice that agents and Echo give for the same causes, in the same words.

use std::fmt::Display;

/// Advice when the control group of a process is throttled at its CPU quota.
pub const CGROUP_THROTTLING: &str =
    "raise the CPU limit of its container, or start fewer threads (OMP_NUM_THREADS, num_workers)";

/// Advice when interrupts run on the CPUs of a process.
pub const INTERRUPTS: &str =
    "move the interrupts to other CPUs: /proc/irq/N/smp_affinity_list, or irqbalance --banirq=N";

/// Advice when a process waits for a block device.
pub const BLOCK_IO: &str =
    "copy the data to a local disk, or let more workers read ahead (num_workers, prefetch_factor)";

/// Advice when a process waits for memory pages.
pub const PAGE_FAULTS: &str = "raise the memory limit of its container, or use less memory";

/// Advice when a process waits for sockets.
pub const NETWORK: &str = "look at the connection that it reads: ss -tip";

/// Advice when a host sends TCP segments again.
pub const TCP_RETRANSMITS: &str =
    "look at the errors of the network ports: ip -s link, nstat -az TcpRetransSegs";

/// Returns the advice when other tasks have the CPUs of a process: `task` is the name and the CPU of
/// one of them, `pid` the process, or a placeholder for it.
pub fn cpu_contention(task: Option<(&str, u32)>, pid: impl Display) -> String {
    match task {
        Some((task, cpu)) => format!(
            "keep {task} off cpu {cpu}, or move the process: taskset -apc CPUS {pid}, or a cpuset of its own"
        ),
        None => format!("give it CPUs of its own: taskset -apc CPUS {pid}, or a cpuset"),
    }
}

/// Returns the advice when other processes compute on the GPU of `whose`.
pub fn gpu_sharing(whose: impl Display, others: &str) -> String {
    format!("give the GPU of {whose} to it alone: stop or move {others}")
}

/// Returns the advice when threads of a process wait for a lock.
pub fn lock(pid: impl Display) -> String {
    format!("find the thread that holds it: fleet-agent stacks --pid {pid}")
}
