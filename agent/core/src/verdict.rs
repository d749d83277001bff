//! Self-verdicts of a process between two policies: plain data.

use std::fmt;

use fleet_proto::attribute;

use crate::signal::Block;

/// Change of a process's verdict on itself.
#[derive(Debug, Clone, PartialEq)]
pub struct SelfVerdict {
    /// End of the block that caused the change, nanoseconds of the host's wall clock.
    pub time_ns: u64,
    /// Block that caused the change.
    pub block: Block,
    /// New state.
    pub state: State,
    /// Reference of the comparison.
    pub mode: Mode,
    /// Result of the comparison; `None` when there was no reference.
    pub measure: Option<Measure>,
    /// Version of the policy set used; `None` without one.
    pub policy_version: Option<u64>,
}

/// State of a self-verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Straggler from now on, or still but by another mode.
    Raised,
    /// No longer a straggler.
    Cleared,
}

impl State {
    /// Returns the value of the attribute `fleet.straggler.state`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Raised => attribute::STATE_RAISED,
            Self::Cleared => attribute::STATE_CLEARED,
        }
    }
}

/// Reference that a process compares itself with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Its cohort, by a valid policy.
    Fleet,
    /// Its cohort, by a policy that has expired but is not too old.
    Stale,
    /// Its own history. This cannot distinguish a slow rank from a slow cohort.
    Local,
    /// Nothing: no usable policy and too little history.
    None,
}

impl Mode {
    /// Returns the value of the attribute `fleet.straggler.mode`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fleet => attribute::MODE_FLEET,
            Self::Stale => attribute::MODE_STALE,
            Self::Local => attribute::MODE_LOCAL,
            Self::None => attribute::MODE_NONE,
        }
    }
}

/// Lateness of a process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measure {
    /// Lag behind the center, milliseconds per iteration; negative when ahead.
    pub lag_ms: f64,
    /// Lag in standard deviations.
    pub z: f64,
    /// Lag as a fraction of one iteration.
    pub effect_ratio: f64,
}

impl fmt::Display for SelfVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let change = match self.state {
            State::Raised => "classifies itself as a straggler",
            State::Cleared => "no longer classifies itself as a straggler",
        };
        write!(f, "{change} (mode {}", self.mode.name())?;
        if let Some(version) = self.policy_version {
            write!(f, ", policy v{version}")?;
        }
        if let Some(measure) = self.measure {
            let Measure {
                lag_ms,
                z,
                effect_ratio,
            } = measure;
            let percent = effect_ratio * 100.0;
            write!(
                f,
                "): host gap {lag_ms:.2} ms late, z {z:.1}, {percent:.1} % of an iteration"
            )
        } else {
            write!(f, "): no reference to compare with")
        }
    }
}

/// Number of self-judgements of a process and their results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Blocks judged.
    pub blocks: u64,
    /// Number of times the verdict was raised, or continued by another mode.
    pub raised: u64,
    /// Number of times the verdict was cleared.
    pub cleared: u64,
}

impl Tally {
    /// Adds the counts of another process.
    pub fn add(&mut self, other: &Self) {
        self.blocks += other.blocks;
        self.raised += other.raised;
        self.cleared += other.cleared;
    }
}
