//! Access to `/proc`: information of the kernel about processes.

mod cgroup;
mod program;

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use crate::placement::{Network, Placement};
pub use crate::process::cgroup::CgroupTotals;

/// Maximum bytes of an environment. The kernel gives arguments and environment together a quarter
/// of the stack, by default 2 MiB. Less would suffice for most, but a pod has seven variables for
/// each service of its namespace, and launchers append theirs.
const MAX_ENVIRON: u64 = 2 << 20;

/// Maximum bytes of `cgroup`: a path of at most 4 KiB for each of the dozen hierarchies of version
/// 1.
const MAX_CGROUP: u64 = 64 << 10;

/// Maximum bytes of other files: `stat` has 52 numbers, `status` some 60 lines.
const MAX_LINES: u64 = 16 << 10;

/// Ticks of `stat` per second, the same on every architecture of interest.
const TICKS_PER_SECOND: u64 = 100;

/// Error of reading information about a process.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// Process has exited.
    #[error("process {pid} has exited")]
    Gone {
        /// Process id.
        pid: u32,
    },
    /// Permission denied.
    #[error("permission denied: {path}; the agent needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH")]
    Forbidden {
        /// Path.
        path: String,
    },
    /// Reading failed otherwise, or the contents are malformed.
    #[error("cannot read {path}")]
    Unreadable {
        /// Path.
        path: String,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
}

/// Identity of a process. Process ids are reused; the pair of id and start time is unique.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// Process id.
    pub pid: u32,
    /// Start time in ticks of 1/100 s since boot.
    pub start_ticks: u64,
    /// Command name without control characters.
    pub command: String,
}

/// Resource usage of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// CPU time since its start, in user and kernel mode.
    pub cpu: Duration,
    /// Resident memory, bytes.
    pub rss_bytes: u64,
}

/// Mounted `/proc`.
#[derive(Debug, Clone)]
pub struct Processes {
    root: PathBuf,
}

impl Processes {
    /// Opens the processes below `root`, which is `/proc` except in tests and containers.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the placement of a process.
    pub fn placement(&self, pid: u32) -> Result<Placement, ProcessError> {
        let mut environ = self.read(pid, "environ", MAX_ENVIRON)?;
        if u64::try_from(environ.len()) == Ok(MAX_ENVIRON) {
            // The last variable may be truncated, and a prefix of a number is a number.
            let whole = environ.iter().rposition(|byte| *byte == 0);
            environ.truncate(whole.unwrap_or(0));
        }
        let cgroup = self.read(pid, "cgroup", MAX_CGROUP)?;
        let cgroup = String::from_utf8_lossy(&cgroup);
        Ok(Placement::parse(&environ, &cgroup, self.network(pid)))
    }

    /// Returns the identity of a process.
    pub fn identity(&self, pid: u32) -> Result<ProcessIdentity, ProcessError> {
        let stat = self.stat(pid)?;
        let command = self.read(pid, "comm", MAX_LINES)?;
        let command = String::from_utf8_lossy(&command);
        Ok(ProcessIdentity {
            pid,
            start_ticks: stat.start_ticks,
            command: command.chars().filter(|c| !c.is_control()).collect(),
        })
    }

    /// Returns the start time of a process in ticks of 1/100 s since boot.
    pub fn start_ticks(&self, pid: u32) -> Result<u64, ProcessError> {
        self.stat(pid).map(|stat| stat.start_ticks)
    }

    /// Returns whether a process is stopped by a signal or a debugger.
    pub fn is_stopped(&self, pid: u32) -> Result<bool, ProcessError> {
        self.stat(pid).map(|stat| matches!(stat.state, 'T' | 't'))
    }

    /// Returns the name of the program of a process: that of its executable, or of the script that an
    /// interpreter runs, as in `train.py`. None if it cannot be read.
    pub fn program(&self, pid: u32) -> Option<String> {
        let line = self.read(pid, "cmdline", MAX_LINES).ok()?;
        program::name(&String::from_utf8_lossy(&line))
    }

    /// Returns the id of a process in its innermost namespace: in a container, its own id of itself.
    pub fn namespace_pid(&self, pid: u32) -> Result<u32, ProcessError> {
        let status = self.read(pid, "status", MAX_LINES)?;
        let status = String::from_utf8_lossy(&status);
        let own = status
            .lines()
            .find_map(|line| line.strip_prefix("NSpid:"))
            .and_then(|pids| pids.split_whitespace().last()?.parse().ok());
        // Kernels without namespaces have no such line.
        Ok(own.unwrap_or(pid))
    }

    /// Returns the resource usage of a process so far.
    pub fn usage(&self, pid: u32) -> Result<Usage, ProcessError> {
        let stat = self.stat(pid)?;
        let status = self.read(pid, "status", MAX_LINES)?;
        let status = String::from_utf8_lossy(&status);
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let rss_kib = rss.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        Ok(Usage {
            cpu: Duration::from_millis(stat.cpu_ticks.saturating_mul(1000 / TICKS_PER_SECOND)),
            // A process without memory of its own, such as a kernel thread, has no such line.
            rss_bytes: rss_kib.unwrap_or(0).saturating_mul(1024),
        })
    }

    /// Returns so many bytes of the memory of a process; an error if they cannot be read, as after its end.
    pub fn memory(&self, pid: u32, address: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let mut memory = vec![0; bytes];
        File::open(self.path(pid, "mem"))?.read_exact_at(&mut memory, address)?;
        Ok(memory)
    }

    /// Compares with the network namespace of process 1, which is the host's.
    fn network(&self, pid: u32) -> Network {
        let namespace = |pid| fs::read_link(self.path(pid, "ns/net")).ok();
        match (namespace(pid), namespace(1)) {
            (Some(own), Some(host)) if own != host => Network::Container,
            _ => Network::Host,
        }
    }

    fn stat(&self, pid: u32) -> Result<Stat, ProcessError> {
        let text = self.read(pid, "stat", MAX_LINES)?;
        Stat::parse(&text).ok_or_else(|| ProcessError::Unreadable {
            path: self.path(pid, "stat").display().to_string(),
            source: ErrorKind::InvalidData.into(),
        })
    }

    fn read(&self, pid: u32, file: &str, max: u64) -> Result<Vec<u8>, ProcessError> {
        let path = self.path(pid, file);
        bounded(&path, max).map_err(|source| match source.kind() {
            // ESRCH: the process exited between opening and reading.
            ErrorKind::NotFound => ProcessError::Gone { pid },
            _ if source.raw_os_error() == Some(ESRCH) => ProcessError::Gone { pid },
            ErrorKind::PermissionDenied => ProcessError::Forbidden {
                path: path.display().to_string(),
            },
            _ => ProcessError::Unreadable {
                path: path.display().to_string(),
                source,
            },
        })
    }

    fn path(&self, pid: u32, file: &str) -> PathBuf {
        self.root.join(pid.to_string()).join(file)
    }
}

/// `ESRCH`, the same on every architecture of Linux.
const ESRCH: i32 = 3;

fn bounded(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    cpu_ticks: u64,
    start_ticks: u64,
}

impl Stat {
    fn parse(text: &[u8]) -> Option<Self> {
        // The name in parentheses may contain anything, including parentheses and spaces; only
        // numbers follow the last one.
        let name_ends = text.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(text.get(name_ends + 1..)?).ok()?;
        // According to proc(5), the state is field 3, user and kernel time are 14 and 15, the start
        // is 22.
        let field = |number: usize| rest.split_whitespace().nth(number - 3)?.parse::<u64>().ok();
        Some(Self {
            state: rest.split_whitespace().next()?.chars().next()?,
            cpu_ticks: field(14)?.saturating_add(field(15)?),
            start_ticks: field(22)?,
        })
    }
}

#[cfg(test)]
mod tests;
