//! Faults of a loop, caused from outside.

use std::fmt;
use std::ops::Range;

/// Period of the pulses, milliseconds.
const PULSE_MS: f64 = 1_500.0;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoopFaultKind {
    /// One rank's data loader sleeps.
    Loader,
    /// One rank shares its core with other processes: all work of its host takes longer.
    Core,
    /// Another process computes on one rank's GPU.
    Neighbour,
    /// One rank's process is stopped for a part of every 1.5 s.
    Pulses,
    /// All GPUs are slower.
    Uniform,
    /// Transfers are slower.
    Network,
}

impl LoopFaultKind {
    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::Loader,
        Self::Core,
        Self::Neighbour,
        Self::Pulses,
        Self::Uniform,
        Self::Network,
    ];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loader => "loader",
            Self::Core => "core",
            Self::Neighbour => "neighbour",
            Self::Pulses => "pulses",
            Self::Uniform => "all gpus",
            Self::Network => "network",
        }
    }
}

/// A fault.
#[derive(Debug, Clone, PartialEq)]
pub struct LoopFault {
    /// Kind.
    pub kind: LoopFaultKind,
    /// Affected rank, for a fault of one rank.
    pub rank: u32,
    /// Target cost, as a share of the healthy pace.
    pub severity: f64,
    /// Strength in the unit of its kind: milliseconds of sleep, or a share of the work.
    pub strength: f64,
    /// Active span, milliseconds of the loop.
    pub when: Range<f64>,
}

impl LoopFault {
    /// Duration of `work_ms` of work on a host from `at`, milliseconds.
    pub fn host_ms(&self, rank: u32, at: f64, work_ms: f64) -> f64 {
        match self.kind {
            LoopFaultKind::Core if self.hits(rank, at) => work_ms * (1.0 + self.strength),
            LoopFaultKind::Pulses if rank == self.rank => self.resumes(rank, at, work_ms) - at,
            _ => work_ms,
        }
    }

    /// Duration of loading a batch, milliseconds.
    pub fn load_ms(&self, rank: u32, at: f64, work_ms: f64) -> f64 {
        if self.kind == LoopFaultKind::Loader && self.hits(rank, at) {
            work_ms + self.strength
        } else {
            self.host_ms(rank, at, work_ms)
        }
    }

    /// Duration of a kernel, milliseconds.
    pub fn kernel_ms(&self, rank: u32, at: f64, work_ms: f64) -> f64 {
        let is_hit = match self.kind {
            LoopFaultKind::Neighbour => self.hits(rank, at),
            LoopFaultKind::Uniform => self.when.contains(&at),
            _ => false,
        };
        if is_hit {
            work_ms * (1.0 + self.strength)
        } else {
            work_ms
        }
    }

    /// Duration of a transfer, milliseconds.
    pub fn transfer_ms(&self, at: f64, work_ms: f64) -> f64 {
        if self.kind == LoopFaultKind::Network && self.when.contains(&at) {
            work_ms * (1.0 + self.strength)
        } else {
            work_ms
        }
    }

    /// End of work from `at` in a process that does nothing while it is stopped.
    pub fn resumes(&self, rank: u32, at: f64, work_ms: f64) -> f64 {
        if self.kind != LoopFaultKind::Pulses || rank != self.rank {
            return at + work_ms;
        }
        let stop_ms = PULSE_MS * self.strength.min(0.6);
        let (mut now, mut left) = (at, work_ms);
        loop {
            let (stop, go) = self.next_stop(now, stop_ms);
            if now + left < stop {
                return now + left;
            }
            left -= (stop - now).max(0.0);
            now = go;
        }
    }

    /// Start and end of the stop at `now`, or of the next one.
    fn next_stop(&self, now: f64, stop_ms: f64) -> (f64, f64) {
        let since = (now - self.when.start).max(0.0);
        let began = (since / PULSE_MS)
            .floor()
            .mul_add(PULSE_MS, self.when.start);
        let began = if now < began + stop_ms {
            began
        } else {
            began + PULSE_MS
        };
        if began >= self.when.end {
            return (f64::INFINITY, f64::INFINITY);
        }
        (began, began + stop_ms)
    }

    fn hits(&self, rank: u32, at: f64) -> bool {
        rank == self.rank && self.when.contains(&at)
    }
}

impl fmt::Display for LoopFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:.0} %", self.kind.name(), self.severity * 100.0)?;
        match self.kind {
            LoopFaultKind::Uniform | LoopFaultKind::Network => Ok(()),
            _ => write!(f, " at rank {}", self.rank),
        }
    }
}
