//! Errors of sampling.

use std::io::{self, ErrorKind};

use thiserror::Error;

/// Error of sampling a process.
#[derive(Debug, Error)]
pub enum StackError {
    /// No such process.
    #[error("no such process: {pid}")]
    NoProcess {
        /// Process id.
        pid: u32,
    },
    /// No such thread in the process.
    #[error("process {pid} has no thread {tid}")]
    NoThread {
        /// Process id.
        pid: u32,
        /// Thread id.
        tid: u32,
    },
    /// Process exited while it was sampled.
    #[error("process {pid} has exited")]
    Exited {
        /// Process id.
        pid: u32,
    },
    /// Permission denied.
    #[error(
        "not permitted to read process {pid}: run as root, or with CAP_SYS_PTRACE and CAP_PERFMON"
    )]
    NotPermitted {
        /// Process id.
        pid: u32,
    },
    /// Information of the kernel about the process cannot be read.
    #[error("cannot read /proc/{pid}/{file}")]
    Unreadable {
        /// Process id.
        pid: u32,
        /// File.
        file: &'static str,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// Neither Python lines nor native functions can be read.
    #[error("no stacks of process {pid}: {python}; {native}")]
    Nothing {
        /// Process id.
        pid: u32,
        /// Reason why there are no Python lines.
        python: String,
        /// Reason why there are no native functions.
        native: String,
    },
}

/// `ESRCH`, the same on every architecture of Linux.
const ESRCH: i32 = 3;

impl StackError {
    /// Why a file in the folder of a process could not be read.
    pub(crate) fn of_file(pid: u32, file: &'static str, source: io::Error) -> Self {
        match source.kind() {
            ErrorKind::NotFound => Self::NoProcess { pid },
            ErrorKind::PermissionDenied => Self::NotPermitted { pid },
            _ if source.raw_os_error() == Some(ESRCH) => Self::Exited { pid },
            _ => Self::Unreadable { pid, file, source },
        }
    }
}
