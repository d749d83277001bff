//! Readings of a GPU at one instant.

use crate::gpu::Gpu;

/// State of a GPU; `None` for what the driver does not report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceReadings {
    /// The GPU.
    pub gpu: Gpu,
    /// Time with a kernel running, per cent of a recent second.
    pub busy_percent: Option<u32>,
    /// Time with memory being read or written, per cent of a recent second.
    pub memory_busy_percent: Option<u32>,
    /// Memory in use, bytes.
    pub memory_used: Option<u64>,
    /// Memory of the GPU, bytes.
    pub memory_total: Option<u64>,
    /// Power draw, milliwatts.
    pub power_mw: Option<u32>,
    /// Temperature, degrees Celsius.
    pub temperature: Option<u32>,
    /// Clock of the multiprocessors, megahertz.
    pub sm_clock_mhz: Option<u32>,
    /// Clock of the memory, megahertz.
    pub memory_clock_mhz: Option<u32>,
    /// Reasons for which its clocks are throttled now.
    pub throttle_reasons: Vec<&'static str>,
}

impl DeviceReadings {
    /// Returns the readings of a GPU of which nothing is known.
    pub fn unknown(gpu: &Gpu) -> Self {
        Self {
            gpu: gpu.clone(),
            busy_percent: None,
            memory_busy_percent: None,
            memory_used: None,
            memory_total: None,
            power_mw: None,
            temperature: None,
            sm_clock_mhz: None,
            memory_clock_mhz: None,
            throttle_reasons: Vec::new(),
        }
    }
}
