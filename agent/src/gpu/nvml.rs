//! GPUs as reported by NVML. The library is loaded at run time; a query that fails leaves its value
//! unknown.

use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::PerformancePolicy;
use nvml_wrapper::enums::device::UsedGpuMemory;

use crate::gpu::{Driver, Gpu, GpuProcess, Throttling};

/// Totals that are counted. Left out are low utilization, which is idleness, and the two totals
/// that include it.
const POLICIES: [(&str, PerformancePolicy); 5] = [
    ("power", PerformancePolicy::Power),
    ("thermal", PerformancePolicy::Thermal),
    ("sync_boost", PerformancePolicy::SyncBoost),
    ("board_limit", PerformancePolicy::BoardLimit),
    ("reliability", PerformancePolicy::Reliability),
];

/// Reasons that are counted. Left out are idleness and clocks set by an operator.
const REASONS: [(&str, ThrottleReasons); 6] = [
    ("sw_power_cap", ThrottleReasons::SW_POWER_CAP),
    ("hw_slowdown", ThrottleReasons::HW_SLOWDOWN),
    ("sync_boost", ThrottleReasons::SYNC_BOOST),
    ("sw_thermal_slowdown", ThrottleReasons::SW_THERMAL_SLOWDOWN),
    ("hw_thermal_slowdown", ThrottleReasons::HW_THERMAL_SLOWDOWN),
    (
        "hw_power_brake_slowdown",
        ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN,
    ),
];

/// Loaded library.
#[derive(Debug)]
pub(super) struct Library(Nvml);

impl Library {
    /// Loads the library; none without a working driver.
    pub(super) fn open() -> Option<Self> {
        match Nvml::init() {
            Ok(nvml) => Some(Self(nvml)),
            Err(error) => {
                tracing::debug!("NVML cannot be used: {error}");
                None
            }
        }
    }
}

impl Driver for Library {
    fn gpus(&mut self) -> Vec<Gpu> {
        let count = self.0.device_count().unwrap_or(0);
        let gpu = |index| {
            let device = self.0.device_by_index(index).ok()?;
            Some(Gpu {
                index,
                uuid: device.uuid().ok(),
                model: device.name().ok(),
            })
        };
        (0..count).filter_map(gpu).collect()
    }

    fn processes(&mut self, index: u32) -> Vec<GpuProcess> {
        let device = self.0.device_by_index(index);
        let processes = device.and_then(|device| device.running_compute_processes());
        let processes = processes.unwrap_or_default().into_iter();
        processes
            .map(|process| GpuProcess {
                pid: process.pid,
                bytes: match process.used_gpu_memory {
                    UsedGpuMemory::Used(bytes) => bytes,
                    UsedGpuMemory::Unavailable => 0,
                },
            })
            .collect()
    }

    fn throttling(&mut self, index: u32) -> Option<Throttling> {
        let device = self.0.device_by_index(index).ok()?;
        let total = |(name, policy)| Some((name, device.violation_status(policy).ok()?));
        let totals = POLICIES.into_iter().filter_map(total);
        let totals: Vec<_> = totals
            .map(|(name, held)| (name, held.violation_time))
            .collect();
        if !totals.is_empty() {
            return Some(Throttling::Totals(totals));
        }
        let reasons = device.current_throttle_reasons().ok()?;
        let active = REASONS.iter().filter(|(_, one)| reasons.contains(*one));
        Some(Throttling::Now(active.map(|(name, _)| *name).collect()))
    }
}
