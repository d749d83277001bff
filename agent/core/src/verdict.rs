//! What a process holds of itself between two policies: plain data.

use std::fmt;

use fleet_proto::attribute;

use crate::signal::Block;

/// A change of what a process holds of itself.
#[derive(Debug, Clone, PartialEq)]
pub struct SelfVerdict {
    /// End of the block that brought the change, nanoseconds on the host's wall clock.
    pub time_ns: u64,
    /// That block.
    pub block: Block,
    /// What changed.
    pub state: State,
    /// What the process was compared with.
    pub mode: Mode,
    /// The comparison; none when nothing was there to compare with.
    pub measure: Option<Measure>,
    /// Version of the policy set that was used; none without one.
    pub policy_version: Option<u64>,
}

/// Whether a process holds itself to be a straggler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// From now on, or still, but by another mode.
    Raised,
    /// No longer.
    Cleared,
}

impl State {
    /// The value of the attribute `fleet.straggler.state`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Raised => attribute::STATE_RAISED,
            Self::Cleared => attribute::STATE_CLEARED,
        }
    }
}

/// What a process compares itself with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Its cohort, by a policy in force.
    Fleet,
    /// Its cohort, by a policy that has run out and is not yet too old.
    Stale,
    /// Its own past. This cannot tell a slow rank from a slow cohort.
    Local,
    /// Nothing: there is no usable policy and too little past.
    None,
}

impl Mode {
    /// The value of the attribute `fleet.straggler.mode`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fleet => attribute::MODE_FLEET,
            Self::Stale => attribute::MODE_STALE,
            Self::Local => attribute::MODE_LOCAL,
            Self::None => attribute::MODE_NONE,
        }
    }
}

/// How late a process is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measure {
    /// Behind the centre, milliseconds per iteration; negative when ahead.
    pub lag_ms: f64,
    /// The same in standard deviations.
    pub z: f64,
    /// The same as a share of one iteration.
    pub effect_ratio: f64,
}

impl fmt::Display for SelfVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = match self.state {
            State::Raised => "holds itself to be a straggler",
            State::Cleared => "no longer holds itself to be a straggler",
        };
        write!(f, "{said} (mode {}", self.mode.name())?;
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
            write!(f, "): nothing to compare with")
        }
    }
}

/// How often a process judged itself, and what came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Blocks that were judged.
    pub blocks: u64,
    /// Times that the process began to hold itself to be a straggler, or went on by another mode.
    pub raised: u64,
    /// Times that it ceased to.
    pub cleared: u64,
}

impl Tally {
    /// Adds another process's.
    pub fn add(&mut self, other: &Self) {
        self.blocks += other.blocks;
        self.raised += other.raised;
        self.cleared += other.cleared;
    }
}
