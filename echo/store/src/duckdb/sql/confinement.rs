//! What the process of a statement may use. The guard decides what a statement may do; these limits hold if it is
//! wrong.

use std::collections::BTreeMap;
use std::time::Duration;
use std::{fs, io, process};

use rustix::process::{Resource, Rlimit, getrlimit, nice, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Memory of values that the engine does not count, and of the reply, bytes.
const UNCOUNTED_BYTES: u64 = 64 << 20;

/// CPU time beyond the deadline after which the kernel ends a process that the store has not killed, seconds.
const SPARE_CPU_S: u64 = 2;

/// Steps by which other work goes first.
const NICENESS: i32 = 10;

/// Whether the kernel ends all processes of a container when it ends one for want of memory.
const ENDS_TOGETHER: &str = "/sys/fs/cgroup/memory.oom.group";

/// System calls of a statement: memory, time, locks of threads, and files that are open.
const ALLOWED: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_arch_prctl,
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_statx,
    libc::SYS_sysinfo,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Limits CPU time, has other work go first, and has the kernel end this process first when memory is short.
pub(super) fn limit_time(deadline: Duration) -> io::Result<()> {
    let seconds = deadline.as_secs().saturating_add(SPARE_CPU_S);
    // With the same limits the kernel would not say which one it was.
    limit(Resource::Cpu, (seconds, seconds.saturating_add(1)))?;
    limit(Resource::Core, (0, 0))?;
    limit(Resource::Fsize, (0, 0))?;
    // Without these a statement only takes more from others.
    let _nice = nice(NICENESS);
    let ends_together = fs::read_to_string(ENDS_TOGETHER);
    if !ends_together.is_ok_and(|text| text.trim() == "1") {
        let _first = fs::write("/proc/self/oom_score_adj", "1000");
    }
    Ok(())
}

/// Limits memory to what this process has taken so far, and this much for the engine.
pub(super) fn limit_memory(engine_bytes: u64) -> io::Result<()> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"));
    let kib: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    let taken = kib.ok_or(io::ErrorKind::InvalidData)?.saturating_mul(1024);
    let most = taken
        .saturating_add(engine_bytes)
        .saturating_add(UNCOUNTED_BYTES);
    limit(Resource::Data, (most, most))
}

/// Sets a soft and a hard limit, unless a lower one is in force.
fn limit(resource: Resource, (soft, hard): (u64, u64)) -> io::Result<()> {
    let in_force = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    Ok(setrlimit(
        resource,
        Rlimit {
            current: Some(soft.min(in_force)),
            maximum: Some(hard.min(in_force)),
        },
    )?)
}

/// Has locks of files refused as file systems do that have none: the engine then opens a file for reading without
/// a lock. The store, which has it locked, keeps it unchanged meanwhile.
pub(super) fn refuse_locks() -> Result<(), seccompiler::Error> {
    let locks = [libc::F_SETLK, libc::F_OFD_SETLK].map(|command| has_argument(1, command));
    let locks = locks.into_iter().collect::<Result<_, _>>()?;
    apply(
        [(libc::SYS_fcntl, locks)].into(),
        (SeccompAction::Allow, refusal(libc::ENOTSUP)),
    )
}

/// Has all system calls refused that a statement does not need: it can reach no other file, host or process.
pub(super) fn refuse_reaching_out() -> Result<(), seccompiler::Error> {
    let always = ALLOWED.iter().map(|call| (*call, Vec::new()));
    let mut rules: Rules = always.collect();
    // For a process that ends itself.
    let own = i32::try_from(process::id()).unwrap_or(0);
    rules.insert(libc::SYS_tgkill, vec![has_argument(0, own)?]);
    apply(rules, (refusal(libc::EPERM), SeccompAction::Allow))
}

/// Rules by system call.
type Rules = BTreeMap<libc::c_long, Vec<SeccompRule>>;

fn has_argument(index: u8, value: i32) -> Result<SeccompRule, seccompiler::Error> {
    let value = u64::from(value.unsigned_abs());
    let equal = SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?;
    Ok(SeccompRule::new(vec![equal])?)
}

const fn refusal(error: i32) -> SeccompAction {
    SeccompAction::Errno(error.unsigned_abs())
}

/// Takes one action for system calls that no rule matches, and another for those that one does.
fn apply(
    rules: Rules,
    (otherwise, matching): (SeccompAction, SeccompAction),
) -> Result<(), seccompiler::Error> {
    let arch = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, otherwise, matching, arch)?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&program)
}
