//! Measurements of GPUs. Pure.

use fleet_agent_core::measurement::{Attribute, Kind, Value};

use crate::gpu::DeviceReadings;
use crate::measurements::{MeasurementSet, Metric};

const fn gauge(name: &'static str, description: &'static str, unit: &'static str) -> Metric {
    Metric {
        name,
        description,
        unit,
        kind: Kind::Gauge,
    }
}

const UTILIZATION: Metric = gauge(
    "hw.gpu.utilization",
    "Part of the time in which a kernel was running on the GPU",
    "1",
);
const MEMORY_ACTIVITY: Metric = gauge(
    "hw.gpu.memory.activity",
    "Part of the time in which memory of the GPU was read or written",
    "1",
);
const MEMORY_USAGE: Metric = gauge("hw.gpu.memory.usage", "Memory of the GPU in use", "By");
const MEMORY_LIMIT: Metric = gauge("hw.gpu.memory.limit", "Memory of the GPU", "By");
const POWER: Metric = gauge("hw.power", "Power draw", "W");
const TEMPERATURE: Metric = gauge("hw.temperature", "Temperature", "Cel");
const CLOCK: Metric = gauge("hw.gpu.clock.frequency", "Clock of the GPU", "Hz");
const THROTTLED: Metric = gauge(
    "hw.gpu.throttled",
    "Reasons for which the clocks of the GPU are throttled now",
    "1",
);

/// Adds the measurements of GPUs.
pub(super) fn measure(devices: &[DeviceReadings], set: &mut MeasurementSet) {
    for readings in devices {
        let gpu = &readings.gpu;
        let id = gpu.uuid.clone().unwrap_or_else(|| gpu.index.to_string());
        let model = gpu.model.clone();
        let attributes: Vec<Attribute> = [Attribute::text("hw.id", id)]
            .into_iter()
            .chain(model.map(|model| Attribute::text("hw.name", model)))
            .chain([Attribute::text("hw.type", "gpu")])
            .collect();
        let mut push = |metric, more: Option<Attribute>, value: Option<Value>| {
            if let Some(value) = value {
                let attributes = attributes.iter().cloned().chain(more).collect();
                set.push(metric, 0, attributes, value);
            }
        };
        let part = |percent: u32| Value::Number(f64::from(percent) / 100.0);
        push(UTILIZATION, None, readings.busy_percent.map(part));
        push(
            MEMORY_ACTIVITY,
            None,
            readings.memory_busy_percent.map(part),
        );
        push(MEMORY_USAGE, None, readings.memory_used.map(Value::Count));
        push(MEMORY_LIMIT, None, readings.memory_total.map(Value::Count));
        let watts = |mw: u32| Value::Number(f64::from(mw) / 1000.0);
        push(POWER, None, readings.power_mw.map(watts));
        let degrees = readings
            .temperature
            .map(|degrees| Value::Count(degrees.into()));
        push(TEMPERATURE, None, degrees);
        for (name, mhz) in [
            ("sm", readings.sm_clock_mhz),
            ("memory", readings.memory_clock_mhz),
        ] {
            let hertz = mhz.map(|mhz| Value::Count(u64::from(mhz) * 1_000_000));
            push(CLOCK, Some(Attribute::text("hw.gpu.clock", name)), hertz);
        }
        for reason in &readings.throttle_reasons {
            let reason = Attribute::text("hw.gpu.throttle.reason", *reason);
            push(THROTTLED, Some(reason), Some(Value::Count(1)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::Gpu;

    #[test]
    fn a_gpu_is_measured_in_base_units_and_unknown_values_are_left_out() {
        let gpu = Gpu {
            index: 3,
            uuid: Some("GPU-7".to_owned()),
            model: None,
        };
        let readings = DeviceReadings {
            busy_percent: Some(98),
            power_mw: Some(312_500),
            sm_clock_mhz: Some(1410),
            throttle_reasons: vec!["sw_power_cap"],
            ..DeviceReadings::unknown(&gpu)
        };
        let mut set = MeasurementSet::default();
        measure(&[readings], &mut set);
        let values: Vec<(&str, &Value)> = set
            .0
            .values()
            .flat_map(|measurement| {
                let points = measurement.points.iter();
                points.map(|point| (measurement.name, &point.value))
            })
            .collect();
        assert_eq!(
            values,
            [
                ("hw.gpu.clock.frequency", &Value::Count(1_410_000_000)),
                ("hw.gpu.throttled", &Value::Count(1)),
                ("hw.gpu.utilization", &Value::Number(0.98)),
                ("hw.power", &Value::Number(312.5)),
            ]
        );
    }
}
