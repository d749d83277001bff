//! One simulated job with its faults.

use super::fault::Fault;
use super::mesh::Mesh;
use super::noise::NoiseModel;

/// Measurements available to the agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sources {
    /// Library calls on the host.
    Host,
    /// Timestamps of the GPU.
    Device,
    /// Both.
    Both,
}

impl Sources {
    /// True when the agents see library calls.
    pub const fn has_host(self) -> bool {
        matches!(self, Self::Host | Self::Both)
    }

    /// True when the agents see GPU timestamps.
    pub const fn has_device(self) -> bool {
        matches!(self, Self::Device | Self::Both)
    }

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Device => "device",
            Self::Both => "both",
        }
    }
}

/// Telemetry faults. Duplicate batches are not simulated: the store drops them by key before a
/// detector sees them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Telemetry {
    /// Share of the batches that are lost.
    pub lost: f64,
    /// Share of the batches that arrive one to three blocks late.
    pub late: f64,
    /// Largest error of a node's clock, milliseconds.
    pub skew_ms: f64,
    /// Sampling: one operation in this many is reported, the others are dropped.
    pub one_in: u32,
    /// First of five blocks without the agent of the first node.
    pub restart: Option<u32>,
    /// The agent of rank 1 attached to the running job: it does not know sequence numbers.
    pub attached: bool,
}

impl Telemetry {
    /// No telemetry faults.
    pub const CLEAN: Self = Self {
        lost: 0.0,
        late: 0.0,
        skew_ms: 0.0,
        one_in: 1,
        restart: None,
        attached: false,
    };
}

/// One simulated job.
#[derive(Debug, Clone)]
pub struct Case {
    /// Table in which the case counts.
    pub group: String,
    /// Row in which the case counts in the table of the detector alone.
    pub detail: String,
    /// Name, filtered by `--only`.
    pub name: String,
    /// Layout.
    pub mesh: Mesh,
    /// Noise of healthy ranks.
    pub noise: NoiseModel,
    /// Faults.
    pub faults: Vec<Fault>,
    /// Measurements available to the agents.
    pub sources: Sources,
    /// Telemetry faults.
    pub telemetry: Telemetry,
    /// Duration of a healthy step, milliseconds.
    pub step_ms: f64,
    /// Steps in a block, a power of two.
    pub block_steps: u32,
    /// Steps of the job.
    pub n_steps: u32,
    /// Random seed.
    pub seed: u64,
}

impl Case {
    /// Returns the case with a random seed of its own, so that cases are independent.
    #[must_use]
    pub fn reseeded(self) -> Self {
        let seed = xxhash_rust::xxh64::xxh64(self.name.as_bytes(), self.seed);
        Self { seed, ..self }
    }

    /// Ranks times days.
    pub fn gpu_days(&self) -> f64 {
        let ms = f64::from(self.mesh.n_ranks()) * f64::from(self.n_steps) * self.step_ms;
        ms / 86_400_000.0
    }
}
