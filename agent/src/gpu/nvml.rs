//! GPUs as reported by NVML. The library is loaded at run time; a query that fails leaves its value
//! unknown.

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, PerformancePolicy, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use crate::gpu::{DeviceReadings, Driver, Gpu, GpuProcess, Throttling, Utilization};

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

    fn utilization(&mut self, index: u32, later_than_us: u64) -> Option<Vec<Utilization>> {
        let device = self.0.device_by_index(index).ok()?;
        let samples = match device.process_utilization_stats(later_than_us) {
            Ok(samples) => samples,
            // There is no sample later than that.
            Err(NvmlError::NotFound) => Vec::new(),
            Err(error) => {
                tracing::debug!(gpu = index, "what processes compute is unknown: {error}");
                return None;
            }
        };
        let samples = samples.into_iter().map(|sample| Utilization {
            pid: sample.pid,
            at_us: sample.timestamp,
            percent: sample.sm_util,
        });
        Some(samples.collect())
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
        Some(Throttling::Now(active_reasons(&device)?))
    }

    fn readings(&mut self, gpu: &Gpu) -> DeviceReadings {
        let Ok(device) = self.0.device_by_index(gpu.index) else {
            return DeviceReadings::unknown(gpu);
        };
        let utilization = device.utilization_rates().ok();
        let memory = device.memory_info().ok();
        DeviceReadings {
            gpu: gpu.clone(),
            busy_percent: utilization.as_ref().map(|rates| rates.gpu),
            memory_busy_percent: utilization.map(|rates| rates.memory),
            memory_used: memory.as_ref().map(|memory| memory.used),
            memory_total: memory.map(|memory| memory.total),
            power_mw: device.power_usage().ok(),
            temperature: device.temperature(TemperatureSensor::Gpu).ok(),
            sm_clock_mhz: device.clock_info(Clock::SM).ok(),
            memory_clock_mhz: device.clock_info(Clock::Memory).ok(),
            throttle_reasons: active_reasons(&device).unwrap_or_default(),
        }
    }
}

/// Returns the reasons for which the clocks of a GPU are throttled now.
fn active_reasons(device: &Device<'_>) -> Option<Vec<&'static str>> {
    let reasons = device.current_throttle_reasons().ok()?;
    let active = REASONS.iter().filter(|(_, one)| reasons.contains(*one));
    Some(active.map(|(name, _)| *name).collect())
}
