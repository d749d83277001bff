//! Measurements of the host: calls of its GPU processes, its CPUs, memory and GPUs. Served to
//! Prometheus and sent to any OTLP receiver. Echo receives what processes lose time to instead.

mod calls;
mod device;
mod host;
mod process;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fleet_agent_core::event::Event;
use fleet_agent_core::measurement::{Attribute, Kind, Measurement, Sample, Value};
use fleet_agent_sources::process::Processes;

use crate::gpu::DeviceReadings;
use crate::measurements::calls::CallMeter;
use crate::measurements::host::HostFiles;

/// Measurements, shared by the tasks that take, serve and send them.
#[derive(Debug, Clone, Default)]
pub struct Measurements(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    calls: CallMeter,
    devices: Vec<DeviceReadings>,
}

impl Measurements {
    /// Counts an event. The labels of a process without a rank are read from `processes`.
    pub fn record_event(&self, event: &Event, processes: &Processes) {
        self.lock().calls.record_event(event, processes);
    }

    /// Sets the readings of the GPUs.
    pub fn set_devices(&self, devices: Vec<DeviceReadings>) {
        self.lock().devices = devices;
    }

    /// Returns all measurements at `now_ns` of the events' clock, with those of the host from the
    /// files below `proc`.
    pub fn read(&self, proc: &Path, now_ns: u64) -> Vec<Measurement> {
        let mut set = MeasurementSet::default();
        HostFiles::new(proc).measure(&mut set);
        let mut state = self.lock();
        device::measure(&state.devices, &mut set);
        state.calls.measure(now_ns, &mut set);
        set.0.into_values().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Name, description and unit of a metric.
#[derive(Debug, Clone, Copy)]
struct Metric {
    name: &'static str,
    description: &'static str,
    unit: &'static str,
    kind: Kind,
}

/// Measurements by name.
#[derive(Debug, Default)]
struct MeasurementSet(BTreeMap<&'static str, Measurement>);

impl MeasurementSet {
    /// Adds a point.
    fn push(&mut self, metric: Metric, since_ns: u64, attributes: Vec<Attribute>, value: Value) {
        let Metric {
            name,
            description,
            unit,
            kind,
        } = metric;
        let measurement = self.0.entry(name).or_insert_with(|| Measurement {
            name,
            description,
            unit,
            kind,
            points: Vec::new(),
        });
        measurement.points.push(Sample {
            since_ns,
            attributes,
            value,
        });
    }
}
