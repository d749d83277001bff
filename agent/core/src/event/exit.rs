//! Ends of processes.

use std::fmt;

/// End of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// Time, nanoseconds.
    pub ts_ns: u64,
    /// How it ended.
    pub status: ExitStatus,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// Killed by the signal of this number.
    Signal(i32),
    /// Returned this number.
    Code(i32),
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Code(code) => write!(f, "exit code {code}"),
        }
    }
}
