//! Advice: what to do about a verdict, from its class and its evidence, with a command where there
//! is one.
//!
//! Only evidence that stands out is a reason for advice, and only what it names is named: a task
//! that had the CPU, a GPU, a node. Without such evidence the advice is how to find the cause.

use echo_core::ids::Rank;
use echo_core::model::detector_output::{CauseClass, Condition, ConditionKind, Culprit};
use echo_core::model::event::Source;
use fleet_proto::{advice, metric};

use crate::evidence::{HostFact, Task};

/// Maximum number of pieces of advice for a verdict.
const MAX_ADVICE: usize = 4;

/// Maximum number of ranks that advice names.
const MAX_RANKS: usize = 8;

/// Placeholder in commands: Echo does not know the process of a rank.
const PID: &str = "PID";

/// Beginning of the UUIDs of NVIDIA's GPUs, which its tools accept.
const NVIDIA: &str = "GPU-";

const TELL_APART: &str = "have the job load the NCCL profiler plugin (NCCL_PROFILER_PLUGIN), which tells a slow host \
     from a slow GPU";

/// Returns what to do about a culprit, for the evidence that stands out, largest difference first.
pub fn for_culprit(culprit: &Culprit, facts: &[HostFact]) -> Vec<String> {
    let notable = facts.iter().filter(|fact| fact.stands_out());
    let mut found: Vec<String> = Vec::new();
    for text in notable.filter_map(|fact| for_fact(culprit, fact)) {
        if !found.contains(&text) {
            found.push(text);
        }
    }
    found.truncate(MAX_ADVICE);
    if found.is_empty() {
        found = without_cause(culprit);
    }
    found
}

/// Returns what to do about a condition; empty where nothing is known that would help.
pub fn for_condition(condition: &Condition) -> Vec<String> {
    let text = match condition.kind {
        ConditionKind::UniformSlowdown => {
            "look at what all ranks share: storage, network, limits of power and clocks, the code; fleet-echo host \
             chains shows what agents found on their hosts, such as one that is short of CPU"
                .to_owned()
        }
        ConditionKind::Network => {
            "look at the errors of the network ports: ip -s link, rdma statistic show link; measure the links when \
             no job uses them: all_reduce_perf of nccl-tests"
                .to_owned()
        }
        ConditionKind::LateNode => format!(
            "look at what the ranks of node {} share: its CPUs, memory, storage and network",
            condition.node.as_ref().map_or_else(String::new, ToString::to_string)
        ),
        ConditionKind::Stall | ConditionKind::Hang => format!(
            "see where the threads of {} are: fleet-echo host stacks has the samples of its agent; on its host, \
             fleet-agent stacks --pid {PID}",
            ranks(&condition.ranks, "a rank")
        ),
        ConditionKind::Crash => format!(
            "read the end of the log of {}, and the kernel's log of its host: journalctl -k has the processes \
             that were killed for memory (oom-kill) and the errors of GPUs (Xid)",
            ranks(&condition.ranks, "the first rank that ended")
        ),
        ConditionKind::IdentityConflict => {
            "give each process of the job a rank of its own (RANK), and each job a name of its own".to_owned()
        }
        ConditionKind::UnhealthyNode => return Vec::new(),
    };
    vec![text]
}

/// Returns the advice for one kind of evidence; `None` when it is no cause that can be removed, or
/// when the class of the verdict excludes it.
fn for_fact(culprit: &Culprit, fact: &HostFact) -> Option<String> {
    let name = fact.metric.as_str();
    // The host of a late device was measured, and was not late.
    let is_of_gpu = [metric::THROTTLED, metric::GPU_SHARED].contains(&name);
    if culprit.class == CauseClass::Device && !is_of_gpu {
        return None;
    }
    let text = match name {
        metric::PREEMPTED => return Some(contention(&fact.tasks)),
        metric::PREEMPTIONS | metric::RUN_QUEUE | metric::PRESSURE_CPU => {
            return Some(contention(&[]));
        }
        metric::LOCK => return Some(advice::lock(PID)),
        metric::THROTTLED => return Some(throttled(culprit)),
        metric::GPU_SHARED => return Some(shared(culprit, &fact.tasks)),
        metric::TCP_RETRANSMITS => advice::TCP_RETRANSMITS,
        metric::RDMA_ERRORS => "look at the errors of the RDMA ports: rdma statistic show link",
        metric::CGROUP_THROTTLED => advice::CGROUP_THROTTLING,
        metric::INTERRUPT => advice::INTERRUPTS,
        metric::BLOCK_IO | metric::PRESSURE_IO => advice::BLOCK_IO,
        metric::PAGE_FAULT | metric::PRESSURE_MEMORY => advice::PAGE_FAULTS,
        metric::NETWORK_WAIT => advice::NETWORK,
        _ => return None,
    };
    Some(text.to_owned())
}

fn contention(tasks: &[Task]) -> String {
    let named = tasks
        .iter()
        .find_map(|task| Some((task.name.as_deref()?, task.cpu?)));
    advice::cpu_contention(named, PID)
}

fn throttled(culprit: &Culprit) -> String {
    let text = "find why the clocks of its GPU are reduced (power, temperature, a limit)";
    match nvidia_uuid(culprit) {
        Some(uuid) => format!("{text}: nvidia-smi -q -d PERFORMANCE -i {uuid}"),
        None => text.to_owned(),
    }
}

fn shared(culprit: &Culprit, processes: &[Task]) -> String {
    let named = processes.iter().filter_map(|process| process.name.clone());
    let named = named.collect::<Vec<_>>().join(", ");
    if named.is_empty() {
        return diagnose(culprit);
    }
    advice::gpu_sharing(format_args!("rank {}", culprit.rank), &named)
}

/// Returns how to find the cause when no evidence shows one.
fn without_cause(culprit: &Culprit) -> Vec<String> {
    let node = &culprit.node;
    let host = || format!("find what its processes lose time to: fleet-agent explain, on {node}");
    let ports = || {
        format!(
            "look at the errors of the network ports of {node}: ip -s link, rdma statistic show link"
        )
    };
    match culprit.class {
        CauseClass::Host => vec![host()],
        CauseClass::Device => vec![diagnose(culprit)],
        CauseClass::Network => vec![ports()],
        CauseClass::Inconclusive => match culprit.source {
            Source::Host => vec![host(), TELL_APART.to_owned()],
            Source::Device => vec![host(), diagnose(culprit)],
        },
    }
}

/// What makes a GPU late, without evidence of damage: another process on it, or reduced clocks.
fn diagnose(culprit: &Culprit) -> String {
    let node = &culprit.node;
    let (gpu, command) = match nvidia_uuid(culprit) {
        Some(uuid) => (
            uuid,
            format!(": nvidia-smi -q -d PIDS,PERFORMANCE,ECC -i {uuid}"),
        ),
        None => ("its GPU", String::new()),
    };
    format!(
        "look for other processes on {gpu} of {node}, reduced clocks and memory errors{command}"
    )
}

/// Returns the UUID of an NVIDIA GPU. It may become part of a command, so anything but a UUID is
/// left out.
fn nvidia_uuid(culprit: &Culprit) -> Option<&str> {
    let uuid = culprit.gpu_uuid.as_deref()?;
    let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    uuid.strip_prefix(NVIDIA)
        .is_some_and(is_plain)
        .then_some(uuid)
}

fn ranks(ranks: &[Rank], unknown: &str) -> String {
    let named = ranks.iter().take(MAX_RANKS).map(ToString::to_string);
    let named = named.collect::<Vec<_>>().join(", ");
    match ranks.len() {
        0 => unknown.to_owned(),
        1 => format!("rank {named}"),
        n if n <= MAX_RANKS => format!("ranks {named}"),
        n => format!("ranks {named} and {} more", n - MAX_RANKS),
    }
}

#[cfg(test)]
mod tests;
