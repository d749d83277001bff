//! Measurements of the host: CPU time, processes that run or wait, memory, pressure.

use std::path::Path;
use std::time::Duration;

use fleet_agent_core::measurement::{Attribute, Kind, Value};
use procfs_core::prelude::{FromRead, FromReadSI};
use procfs_core::{
    CpuPressure, ExplicitSystemInfo, IoPressure, KernelStats, LoadAverage, Meminfo, MemoryPressure,
    PressureRecord,
};

use crate::measurements::{MeasurementSet, Metric};

const CPU_TIME: Metric = Metric {
    name: "system.cpu.time",
    description: "Time of all CPUs by mode",
    unit: "s",
    kind: Kind::Counter,
};
const PROCESSES: Metric = Metric {
    name: "system.process.count",
    description: "Tasks that run or wait for a CPU, and tasks blocked on I/O",
    unit: "{process}",
    kind: Kind::Gauge,
};
const LOAD: Metric = Metric {
    name: "system.cpu.load_average.1m",
    description: "Tasks that run or wait, averaged over a minute",
    unit: "{thread}",
    kind: Kind::Gauge,
};
const MEMORY: Metric = Metric {
    name: "system.memory.usage",
    description: "Memory by state",
    unit: "By",
    kind: Kind::Gauge,
};
const AVAILABLE: Metric = Metric {
    name: "system.linux.memory.available",
    description: "Memory that programs can have without swapping",
    unit: "By",
    kind: Kind::Gauge,
};
const PRESSURE: Metric = Metric {
    name: "system.linux.pressure.time",
    description: "Time for which some or all tasks waited for a resource",
    unit: "s",
    kind: Kind::Counter,
};

/// Unit of times in `/proc/stat`, the same on all architectures of the agent.
const TICKS_PER_SECOND: u64 = 100;

/// Files of the host.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostFiles<'a> {
    proc: &'a Path,
}

impl<'a> HostFiles<'a> {
    /// Uses the files below a mount point of `/proc`.
    pub(super) const fn new(proc: &'a Path) -> Self {
        Self { proc }
    }

    /// Adds what can be read.
    pub(super) fn measure(self, set: &mut MeasurementSet) {
        self.measure_cpus(set);
        self.measure_memory(set);
        let pressure = self.proc.join("pressure");
        let records = [
            (
                "cpu",
                CpuPressure::from_file(pressure.join("cpu")).map(|cpu| [cpu.some, cpu.full]),
            ),
            (
                "memory",
                MemoryPressure::from_file(pressure.join("memory"))
                    .map(|memory| [memory.some, memory.full]),
            ),
            (
                "io",
                IoPressure::from_file(pressure.join("io")).map(|io| [io.some, io.full]),
            ),
        ];
        for (resource, records) in records {
            if let Ok(records) = records {
                push_pressure(set, resource, &records);
            }
        }
    }

    fn measure_cpus(self, set: &mut MeasurementSet) {
        let info = ExplicitSystemInfo {
            boot_time_secs: 0,
            ticks_per_second: TICKS_PER_SECOND,
            page_size: 4096,
            is_little_endian: cfg!(target_endian = "little"),
        };
        if let Ok(stats) = KernelStats::from_file(self.proc.join("stat"), &info) {
            let cpus = &stats.total;
            let modes = [
                ("user", Some(cpus.user_duration())),
                ("nice", Some(cpus.nice_duration())),
                ("system", Some(cpus.system_duration())),
                ("idle", Some(cpus.idle_duration())),
                ("iowait", cpus.iowait_duration()),
                (
                    "interrupt",
                    sum(cpus.irq_duration(), cpus.softirq_duration()),
                ),
                ("steal", cpus.steal_duration()),
            ];
            for (mode, time) in modes {
                if let Some(time) = time {
                    let mode = vec![Attribute::text("cpu.mode", mode)];
                    set.push(CPU_TIME, 0, mode, Value::Number(time.as_secs_f64()));
                }
            }
            for (status, n) in [
                ("running", stats.procs_running),
                ("blocked", stats.procs_blocked),
            ] {
                if let Some(n) = n {
                    let status = vec![Attribute::text("process.status", status)];
                    set.push(PROCESSES, 0, status, Value::Count(n.into()));
                }
            }
        }
        if let Ok(load) = LoadAverage::from_file(self.proc.join("loadavg")) {
            set.push(LOAD, 0, Vec::new(), Value::Number(load.one.into()));
        }
    }

    fn measure_memory(self, set: &mut MeasurementSet) {
        let Ok(memory) = Meminfo::from_file(self.proc.join("meminfo")) else {
            return;
        };
        let other = [memory.mem_free, memory.buffers, memory.cached];
        let used = other
            .iter()
            .fold(memory.mem_total, |left, part| left.saturating_sub(*part));
        for (state, bytes) in [
            ("used", used),
            ("free", memory.mem_free),
            ("buffers", memory.buffers),
            ("cached", memory.cached),
        ] {
            let state = vec![Attribute::text("system.memory.state", state)];
            set.push(MEMORY, 0, state, Value::Count(bytes));
        }
        if let Some(available) = memory.mem_available {
            set.push(AVAILABLE, 0, Vec::new(), Value::Count(available));
        }
    }
}

fn sum(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.zip(other).map(|(one, other)| one + other)
}

fn push_pressure(set: &mut MeasurementSet, resource: &'static str, records: &[PressureRecord; 2]) {
    for (tasks, record) in ["some", "full"].into_iter().zip(records) {
        let attributes = vec![
            Attribute::text("system.linux.pressure.resource", resource),
            Attribute::text("system.linux.pressure.tasks", tasks),
        ];
        let stalled = Duration::from_micros(record.total);
        set.push(
            PRESSURE,
            0,
            attributes,
            Value::Number(stalled.as_secs_f64()),
        );
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use fleet_agent_core::measurement::AttributeValue;

    use super::*;

    fn measured(files: &[(&str, &str)]) -> Vec<String> {
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir(proc.path().join("pressure")).unwrap();
        for (name, text) in files {
            fs::write(proc.path().join(name), text).unwrap();
        }
        let mut set = MeasurementSet::default();
        HostFiles::new(proc.path()).measure(&mut set);
        let line = |name: &str, attributes: &[Attribute], value: &Value| {
            let labels: Vec<String> = attributes
                .iter()
                .map(|attribute| match &attribute.value {
                    AttributeValue::Text(text) => text.to_string(),
                    AttributeValue::Number(number) => number.to_string(),
                })
                .collect();
            let value = match value {
                Value::Count(count) => count.to_string(),
                Value::Number(number) => number.to_string(),
                Value::Distribution(_) => String::new(),
            };
            format!("{name} {} {value}", labels.join(","))
        };
        let measurements = set.0.values();
        measurements
            .flat_map(|measurement| {
                let points = measurement.points.iter();
                points.map(|point| line(measurement.name, &point.attributes, &point.value))
            })
            .collect()
    }

    #[test]
    fn times_and_sizes_are_in_seconds_and_bytes() {
        let pressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=500000\n";
        let lines = measured(&[
            (
                "stat",
                "cpu  200 0 100 700 50 1 2 0 0 0\ncpu0 200 0 100 700 50 1 2 0 0 0\nintr 0\nctxt 1\nbtime 1\nprocesses 9\nprocs_running 3\nprocs_blocked 1\nsoftirq 0\n",
            ),
            ("loadavg", "1.50 1.00 0.50 2/300 4711\n"),
            ("pressure/memory", pressure),
        ]);
        for expected in [
            "system.cpu.time user 2",
            "system.cpu.time interrupt 0.03",
            "system.process.count running 3",
            "system.process.count blocked 1",
            "system.cpu.load_average.1m  1.5",
            "system.linux.pressure.time memory,some 2.5",
            "system.linux.pressure.time memory,full 0.5",
        ] {
            assert!(
                lines.iter().any(|line| line == expected),
                "{expected}: {lines:?}"
            );
        }
    }

    #[test]
    fn files_that_do_not_exist_are_left_out() {
        assert!(measured(&[]).is_empty());
    }

    #[test]
    fn this_host_has_cpus_and_memory() {
        let mut set = MeasurementSet::default();
        HostFiles::new(Path::new("/proc")).measure(&mut set);
        for name in [CPU_TIME.name, MEMORY.name, PROCESSES.name] {
            assert!(set.0.contains_key(name), "{name}");
        }
    }
}
