//! Causal chains: what a process lost time to, in figures, where, and what to do about it.

use std::fmt;

use crate::explain::cause::Cause;
use crate::explain::place::Place;

/// Share of its time, from which a loss is of medium severity.
const MEDIUM: f64 = 0.05;
/// Share of its time, from which a loss is of high severity.
const HIGH: f64 = 0.2;

/// Causal chain of one process.
#[derive(Debug, Clone, PartialEq)]
pub struct CausalChain {
    /// Cause.
    pub cause: Cause,
    /// Share of its time that the process lost to it, 0 to 1; of [`Cause::OwnProgram`] what exceeds the past.
    pub share: f64,
    /// What the share was compared with.
    pub reference: Reference,
    /// Start of the first of the periods without a gap in which it held, nanoseconds.
    pub since_ns: u64,
    /// Links from the system to the call, each with its figures.
    pub links: Vec<String>,
    /// Where the process was; `None` without samples.
    pub place: Option<Place>,
    /// What to do, a command where there is one.
    pub advice: Vec<String>,
}

/// What a share of time was compared with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reference {
    /// Median of the other ranks of the job on this host.
    Peers(f64),
    /// Median of the process's own past.
    Past(f64),
    /// Nothing: the amount alone is wrong, or is an excess already.
    None,
}

/// Severity of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Less than 5 % of the process's time.
    Low,
    /// Less than 20 %.
    Medium,
    /// More.
    High,
}

impl Severity {
    /// Returns its name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

impl CausalChain {
    /// Returns the severity.
    pub fn severity(&self) -> Severity {
        if self.share >= HIGH {
            Severity::High
        } else if self.share >= MEDIUM {
            Severity::Medium
        } else {
            Severity::Low
        }
    }
}

impl fmt::Display for CausalChain {
    /// Writes `runnable without a CPU for 21.3 % of its time, peers 0.4 %`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {} of its time", self.cause, percent(self.share))?;
        match self.reference {
            Reference::Peers(share) => write!(f, ", peers {}", percent(share)),
            Reference::Past(share) => write!(f, ", before {}", percent(share)),
            Reference::None => Ok(()),
        }
    }
}

/// Formats a share of 0 to 1.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
