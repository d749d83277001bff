//! Interpretation of the facts about a host. Pure.

mod jobs;

use fleet_agent_bpf::programs::Mechanism;

use crate::check::facts::{Facts, WatchFacts};
use crate::check::report::{Finding, Report, State};

/// Oldest supported kernel.
const MINIMUM: (u32, u32) = (5, 15);
/// Oldest kernel on which the agent needs few capabilities.
const RECOMMENDED: (u32, u32) = (6, 6);
/// Inode of the host's initial pid namespace.
const HOST_PID_NAMESPACE: u64 = 4_026_531_836;
/// Maximum number of ports listed.
const MAX_LISTED: usize = 8;

const SYS_ADMIN: u32 = 21;

/// Linux capability that the agent uses.
struct Capability {
    name: &'static str,
    bit: u32,
    /// Capability that implies it.
    implied_by: u32,
    /// Purpose in the agent.
    purpose: &'static str,
    is_needed: bool,
}

/// `CAP_DAC_OVERRIDE` (1) implies `CAP_DAC_READ_SEARCH` (2).
const CAPABILITIES: [Capability; 5] = [
    Capability {
        name: "CAP_BPF",
        bit: 39,
        implied_by: SYS_ADMIN,
        purpose: "load BPF programs",
        is_needed: true,
    },
    Capability {
        name: "CAP_PERFMON",
        bit: 38,
        implied_by: SYS_ADMIN,
        purpose: "attach probes, receive process events",
        is_needed: true,
    },
    Capability {
        name: "CAP_SYS_PTRACE",
        bit: 19,
        implied_by: 19,
        purpose: "read the memory maps of other users' processes",
        is_needed: false,
    },
    Capability {
        name: "CAP_DAC_READ_SEARCH",
        bit: 2,
        implied_by: 1,
        purpose: "read the ranks of other users' processes",
        is_needed: false,
    },
    Capability {
        name: "CAP_CHECKPOINT_RESTORE",
        bit: 40,
        implied_by: SYS_ADMIN,
        purpose: "open libraries in containers and deleted libraries",
        is_needed: false,
    },
];

/// Derives all findings from the facts.
pub(super) fn from_facts(facts: &Facts) -> Report {
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
        findings.extend(jobs::findings(watching));
    }
    Report { findings }
}

fn ok(name: &'static str, detail: impl Into<String>) -> Finding {
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
        ..ok(name, detail)
    }
}

fn kernel(release: &str) -> Finding {
    let name = "kernel";
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return degraded(
            name,
            "release unknown: /proc/sys/kernel/osrelease cannot be read",
            "mount /proc",
        );
    };
    match (major, minor) {
        version if version >= RECOMMENDED => ok(name, format!("Linux {release}")),
        version if version >= MINIMUM => ok(
            name,
            format!("Linux {release}; Linux 6.6 and later need fewer capabilities"),
        ),
        // Distributions backport features to older releases, so the test is whether the programs
        // load.
        _ => degraded(
            name,
            format!("Linux {release} is older than 5.15"),
            "use Linux 6.6 or later (5.15 is the minimum), unless the BPF programs load on this kernel",
        ),
    }
}

fn btf(facts: &Facts) -> Finding {
    let name = "BTF";
    match &facts.btf {
        Ok(()) => ok(name, "/sys/kernel/btf/vmlinux is readable"),
        Err(error) => degraded(
            name,
            format!("/sys/kernel/btf/vmlinux: {error}"),
            "mount /sys, or use a kernel built with CONFIG_DEBUG_INFO_BTF",
        ),
    }
}

fn has_capability(facts: &Facts, bit: u32) -> bool {
    facts.capabilities.is_some_and(|bits| bits >> bit & 1 == 1)
}

fn capability(facts: &Facts, one: &Capability) -> Finding {
    let Capability {
        name, bit, purpose, ..
    } = *one;
    if has_capability(facts, bit) {
        return ok(name, format!("held: {purpose}"));
    }
    if has_capability(facts, one.implied_by) {
        return ok(name, format!("implied by another capability: {purpose}"));
    }
    let advice = "run as root, or grant it to the agent (pod: securityContext.capabilities.add)";
    let missing = degraded(name, format!("not held: {purpose}"), advice);
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
    if has_capability(facts, SYS_ADMIN) {
        return ok(name, "held");
    }
    match &facts.watch {
        Ok(watching) if watching.health.abilities.mechanism == Mechanism::PerfEvent => degraded(
            name,
            "not held: attach probes on a kernel without uprobe_multi",
            "grant it to the agent, or use Linux 6.6 or later",
        ),
        _ => ok(name, "not held, and not needed on Linux 6.6 and later"),
    }
}

fn programs(facts: &Facts) -> Finding {
    let name = "BPF programs";
    match &facts.watch {
        Ok(_) => ok(name, "loaded"),
        Err(error) => Finding {
            state: State::Missing,
            advice: Some("see the kernel and the capabilities above".to_owned()),
            ..ok(name, error.as_str())
        },
    }
}

fn probes(facts: &Facts, watching: &WatchFacts) -> Finding {
    let name = "probes";
    let mechanism = watching.health.abilities.mechanism;
    match mechanism {
        Mechanism::UprobeMulti => ok(name, format!("{mechanism}: one link per library")),
        Mechanism::PerfEvent if has_capability(facts, SYS_ADMIN) => ok(
            name,
            format!("{mechanism}: one probe per function; removing them takes seconds"),
        ),
        Mechanism::PerfEvent => degraded(
            name,
            format!("{mechanism}, which most kernels allow only with CAP_SYS_ADMIN"),
            "grant CAP_SYS_ADMIN, or use Linux 6.6 or later",
        ),
    }
}

fn evidence(facts: &Facts, watching: &WatchFacts) -> Finding {
    let name = "kernel evidence";
    match &watching.health.abilities.no_host {
        None => ok(name, "time off the CPU, page allocations, block I/O, TCP"),
        Some(reason) => degraded(
            name,
            format!("none: {reason}"),
            if facts.btf.is_err() {
                "provide BTF, see above"
            } else {
                "stragglers are still found, but not the reason why a host is late"
            },
        ),
    }
}

fn process_events(watching: &WatchFacts) -> Finding {
    let name = "process events";
    match &watching.health.no_lifecycle {
        None => ok(name, "the kernel reports new processes at once"),
        Some(reason) => degraded(
            name,
            format!("none: {reason}"),
            "new jobs are found only every 30 s: grant CAP_PERFMON and mount /sys",
        ),
    }
}

fn pins(facts: &Facts) -> Finding {
    let name = "BPF file system";
    match &facts.bpf_fs {
        Ok(()) => ok(name, "/sys/fs/bpf: probes survive an agent that is killed"),
        Err(error) => degraded(
            name,
            format!("/sys/fs/bpf: {error}"),
            "mount -t bpf bpf /sys/fs/bpf (pod: a hostPath), give this user a directory there (--pin), or run with --pin none",
        ),
    }
}

fn pid_namespace(facts: &Facts) -> Finding {
    let name = "pid namespace";
    match facts.pid_namespace {
        Some(HOST_PID_NAMESPACE) => ok(name, "the host's"),
        other => degraded(
            name,
            if other.is_some() {
                "not the host's: processes that call the libraries cannot be looked up"
            } else {
                "unknown: /proc/self/ns/pid cannot be read"
            },
            "run in the host's pid namespace (pod: hostPID: true; docker: --pid=host)",
        ),
    }
}

fn seccomp(facts: &Facts) -> Finding {
    let name = "seccomp";
    if facts.needs_seccomp_guard {
        degraded(
            name,
            "processes with a seccomp filter are not probed, because this kernel would kill them",
            "use Linux 6.14 or later, or 6.10 or earlier",
        )
    } else {
        ok(
            name,
            "return probes pass every seccomp filter on this kernel",
        )
    }
}

fn lockdown(facts: &Facts) -> Finding {
    let name = "lockdown";
    match facts.lockdown.as_deref() {
        None | Some("none") => ok(name, "none"),
        Some("integrity") => ok(name, "integrity, which permits the agent"),
        Some(mode) => degraded(
            name,
            format!("{mode}: kernel memory cannot be read"),
            "boot without lockdown=confidentiality to get kernel evidence and process events",
        ),
    }
}

fn gpus(facts: &Facts) -> Finding {
    let name = "GPUs";
    match facts.gpus.as_deref() {
        None => degraded(
            name,
            "the driver did not respond within a second",
            "check whether nvidia-smi hangs as well",
        ),
        Some([]) => degraded(
            name,
            "none found by NVML or in /proc/driver/nvidia",
            "points will not name a GPU: install the driver, or mount libnvidia-ml.so.1 into the container",
        ),
        Some(gpus) => {
            let models = gpus.iter().filter_map(|gpu| gpu.model.as_deref());
            let mut models: Vec<&str> = models.collect();
            models.sort_unstable();
            models.dedup();
            ok(name, format!("{}: {}", gpus.len(), models.join(", ")))
        }
    }
}

fn ports(facts: &Facts) -> Finding {
    let name = "InfiniBand and RoCE";
    let named = facts.ports.iter().take(MAX_LISTED);
    let named: Vec<String> = named
        .map(|port| format!("{}/{}", port.device, port.number))
        .collect();
    let more = if facts.ports.len() > MAX_LISTED {
        " and more"
    } else {
        ""
    };
    match facts.ports.len() {
        0 => ok(name, "no ports"),
        ports => ok(name, format!("{ports} ports: {}{more}", named.join(" "))),
    }
}

#[cfg(test)]
mod tests;
