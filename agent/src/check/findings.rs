//! What the facts of a host mean for the agent. Pure.

mod jobs;

use fleet_agent_bpf::programs::Mechanism;

use crate::check::facts::{Facts, Watching};
use crate::check::report::{Finding, Report, State};

/// First release that is supported.
const FLOOR: (u32, u32) = (5, 15);
/// First release that probes with few rights.
const RECOMMENDED: (u32, u32) = (6, 6);
/// Inode of the pid namespace that the host begins with.
const HOST_PIDS: u64 = 4_026_531_836;
/// Of ports and the like, so many are named.
const MAX_NAMED: usize = 8;

const SYS_ADMIN: u32 = 21;

/// A right of a process that is not root.
struct Capability {
    name: &'static str,
    bit: u32,
    /// Another one that contains it.
    within: u32,
    /// What it is for.
    gives: &'static str,
    is_needed: bool,
}

/// `CAP_DAC_OVERRIDE` contains the right to read.
const CAPABILITIES: [Capability; 5] = [
    Capability {
        name: "CAP_BPF",
        bit: 39,
        within: SYS_ADMIN,
        gives: "load BPF programs",
        is_needed: true,
    },
    Capability {
        name: "CAP_PERFMON",
        bit: 38,
        within: SYS_ADMIN,
        gives: "probe functions, hear of new processes",
        is_needed: true,
    },
    Capability {
        name: "CAP_SYS_PTRACE",
        bit: 19,
        within: 19,
        gives: "see what other users' processes have mapped",
        is_needed: false,
    },
    Capability {
        name: "CAP_DAC_READ_SEARCH",
        bit: 2,
        within: 1,
        gives: "read the ranks of other users' processes",
        is_needed: false,
    },
    Capability {
        name: "CAP_CHECKPOINT_RESTORE",
        bit: 40,
        within: SYS_ADMIN,
        gives: "open libraries in containers and deleted ones",
        is_needed: false,
    },
];

/// Everything that is to be said of these facts.
pub(super) fn of(facts: &Facts) -> Report {
    let mut findings = vec![kernel(&facts.release), btf(facts)];
    findings.extend(CAPABILITIES.iter().map(|one| capability(facts, one)));
    findings.push(sys_admin(facts));
    findings.push(programs(facts));
    if let Ok(watching) = &facts.watch {
        findings.extend([
            probes(facts, watching),
            evidence(facts, watching),
            process_events(watching),
        ]);
    }
    findings.extend([
        pins(facts),
        pid_namespace(facts),
        seccomp(facts),
        lockdown(facts),
        gpus(facts),
        ports(facts),
    ]);
    if let Ok(watching) = &facts.watch {
        findings.extend(jobs::of(watching));
    }
    Report { findings }
}

fn fine(name: &'static str, detail: impl Into<String>) -> Finding {
    Finding {
        name,
        state: State::Ok,
        detail: detail.into(),
        advice: None,
    }
}

fn degraded(name: &'static str, detail: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding {
        state: State::Degraded,
        advice: Some(advice.into()),
        ..fine(name, detail)
    }
}

fn kernel(release: &str) -> Finding {
    let name = "kernel";
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return degraded(
            name,
            "its release cannot be read",
            "mount /proc, so that what it can do need not be guessed",
        );
    };
    match (major, minor) {
        version if version >= RECOMMENDED => fine(name, format!("Linux {release}")),
        version if version >= FLOOR => fine(
            name,
            format!("Linux {release}; from 6.6 on the agent needs fewer rights"),
        ),
        // Distributions bring features to older releases, so whether the programs load decides.
        _ => degraded(
            name,
            format!("Linux {release} is older than 5.15"),
            "use Linux 6.6 or later, 5.15 at least, unless the programs load as they are",
        ),
    }
}

fn btf(facts: &Facts) -> Finding {
    let name = "BTF";
    match &facts.btf {
        Ok(()) => fine(name, "/sys/kernel/btf/vmlinux can be read"),
        Err(error) => degraded(
            name,
            format!("/sys/kernel/btf/vmlinux: {error}"),
            "mount /sys; else take a kernel built with CONFIG_DEBUG_INFO_BTF",
        ),
    }
}

fn holds(facts: &Facts, bit: u32) -> bool {
    facts.capabilities.is_some_and(|bits| bits >> bit & 1 == 1)
}

fn capability(facts: &Facts, one: &Capability) -> Finding {
    let Capability {
        name, bit, gives, ..
    } = *one;
    if holds(facts, bit) {
        return fine(name, format!("held: {gives}"));
    }
    if holds(facts, one.within) {
        return fine(name, format!("contained in another one: {gives}"));
    }
    let advice = "run as root, or give it to the agent (pod: securityContext.capabilities.add)";
    let missing = degraded(name, format!("not held: {gives}"), advice);
    match &facts.watch {
        Err(_) if one.is_needed => Finding {
            state: State::Missing,
            ..missing
        },
        _ => missing,
    }
}

fn sys_admin(facts: &Facts) -> Finding {
    let name = "CAP_SYS_ADMIN";
    if holds(facts, SYS_ADMIN) {
        return fine(name, "held");
    }
    match &facts.watch {
        Ok(watching) if watching.health.abilities.mechanism == Mechanism::PerfEvent => degraded(
            name,
            "not held: probe functions on a kernel without uprobe_multi",
            "give it to the agent, or use Linux 6.6 or later",
        ),
        _ => fine(name, "not held, and not needed from Linux 6.6 on"),
    }
}

fn programs(facts: &Facts) -> Finding {
    let name = "BPF programs";
    match &facts.watch {
        Ok(_) => fine(name, "load"),
        Err(error) => Finding {
            state: State::Missing,
            advice: Some("see the kernel and the capabilities above".to_owned()),
            ..fine(name, error.as_str())
        },
    }
}

fn probes(facts: &Facts, watching: &Watching) -> Finding {
    let name = "probes";
    let mechanism = watching.health.abilities.mechanism;
    match mechanism {
        Mechanism::UprobeMulti => fine(name, format!("{mechanism}: one for all of a library")),
        Mechanism::PerfEvent if holds(facts, SYS_ADMIN) => fine(
            name,
            format!("{mechanism}: one for each function, which takes seconds to take out"),
        ),
        Mechanism::PerfEvent => degraded(
            name,
            format!("{mechanism}, which most kernels allow with CAP_SYS_ADMIN only"),
            "give it CAP_SYS_ADMIN, or use Linux 6.6 or later",
        ),
    }
}

fn evidence(facts: &Facts, watching: &Watching) -> Finding {
    let name = "kernel evidence";
    match &watching.health.abilities.no_host {
        None => fine(name, "time off the CPU, page allocations, block I/O, TCP"),
        Some(reason) => degraded(
            name,
            format!("none: {reason}"),
            if facts.btf.is_err() {
                "give the agent BTF, see above"
            } else {
                "stragglers are still found, but not why they are late on their host"
            },
        ),
    }
}

fn process_events(watching: &Watching) -> Finding {
    let name = "process events";
    match &watching.health.no_lifecycle {
        None => fine(name, "the kernel tells of new processes at once"),
        Some(reason) => degraded(
            name,
            format!("none: {reason}"),
            "new jobs are found every 30 s only: give the agent CAP_PERFMON, and /sys",
        ),
    }
}

fn pins(facts: &Facts) -> Finding {
    let name = "BPF file system";
    match &facts.bpf_fs {
        Ok(()) => fine(name, "/sys/fs/bpf: probes outlive an agent that is killed"),
        Err(error) => degraded(
            name,
            format!("/sys/fs/bpf: {error}"),
            "mount -t bpf bpf /sys/fs/bpf (pod: a hostPath), give this user a folder there (--pin), or run with --pin none",
        ),
    }
}

fn pid_namespace(facts: &Facts) -> Finding {
    let name = "pid namespace";
    match facts.pid_namespace {
        Some(HOST_PIDS) => fine(name, "that of the host"),
        other => degraded(
            name,
            if other.is_some() {
                "not that of the host: the agent cannot look up the processes that it sees calling"
            } else {
                "cannot be told"
            },
            "run it in the host's (pod: hostPID: true; docker: --pid=host)",
        ),
    }
}

fn seccomp(facts: &Facts) -> Finding {
    let name = "seccomp";
    if facts.needs_guard {
        degraded(
            name,
            "libraries of processes under a seccomp filter are left alone, which this kernel would kill",
            "use Linux 6.14 or later, or 6.10 or earlier",
        )
    } else {
        fine(name, "return probes pass every filter on this kernel")
    }
}

fn lockdown(facts: &Facts) -> Finding {
    let name = "lockdown";
    match facts.lockdown.as_deref() {
        None | Some("none") => fine(name, "none"),
        Some("integrity") => fine(name, "integrity, which allows what the agent does"),
        Some(mode) => degraded(
            name,
            format!("{mode}: the kernel's own data stay closed"),
            "boot without lockdown=confidentiality for evidence from the kernel and process events",
        ),
    }
}

fn gpus(facts: &Facts) -> Finding {
    let name = "GPUs";
    match facts.gpus.as_deref() {
        None => degraded(
            name,
            "the driver does not answer within a second",
            "see whether nvidia-smi hangs, too",
        ),
        Some([]) => degraded(
            name,
            "none by NVML or /proc/driver/nvidia",
            "points will name no GPU: install the driver, or give the container libnvidia-ml.so.1",
        ),
        Some(gpus) => {
            let models = gpus.iter().filter_map(|gpu| gpu.model.as_deref());
            let mut models: Vec<&str> = models.collect();
            models.sort_unstable();
            models.dedup();
            fine(name, format!("{}: {}", gpus.len(), models.join(", ")))
        }
    }
}

fn ports(facts: &Facts) -> Finding {
    let name = "InfiniBand and RoCE";
    let named = facts.ports.iter().take(MAX_NAMED);
    let named: Vec<String> = named
        .map(|port| format!("{}/{}", port.device, port.number))
        .collect();
    let more = if facts.ports.len() > MAX_NAMED {
        " and more"
    } else {
        ""
    };
    match facts.ports.len() {
        0 => fine(name, "no ports, nothing to count"),
        ports => fine(name, format!("{ports} ports: {}{more}", named.join(" "))),
    }
}

#[cfg(test)]
mod tests;
