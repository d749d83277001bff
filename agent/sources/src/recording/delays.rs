//! Delays of a process on a line of a recording. Pure.

use fleet_agent_core::event::{BlockReason, BlockedTime, DelaySample, Delays, Pressure, TaskTime};
use serde::{Deserialize, Serialize};

use crate::recording::durations::is_zero;

/// Fields of the delays of one process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DelayFields {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    preempted_by: Vec<TaskFields>,
    #[serde(skip_serializing_if = "Option::is_none")]
    longest_preemption_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu_shared_by: Option<Vec<TaskFields>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    blocked: Vec<BlockedFields>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup_throttled_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interrupt_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pressure: Option<PressureFields>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct TaskFields {
    task: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<u32>,
    ns: u64,
    switches: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct BlockedFields {
    reason: String,
    ns: u64,
    count: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    longest_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct PressureFields {
    cpu_ns: u64,
    memory_ns: u64,
    io_ns: u64,
}

impl DelayFields {
    /// Converts delays to fields.
    pub(crate) fn new(delays: &Delays) -> Self {
        let task = |task: &TaskTime| TaskFields {
            task: task.task.clone(),
            cpu: task.cpu,
            ns: task.ns,
            switches: task.switches,
        };
        let blocked = |blocked: &BlockedTime| BlockedFields {
            reason: blocked.reason.name().to_owned(),
            ns: blocked.ns,
            count: blocked.count,
            longest_ns: blocked.longest_ns,
        };
        Self {
            preempted_by: delays.preempted_by.iter().map(task).collect(),
            longest_preemption_ns: delays.longest_preemption_ns,
            gpu_shared_by: delays
                .gpu_shared_by
                .as_ref()
                .map(|all| all.iter().map(task).collect()),
            blocked: delays.blocked.iter().map(blocked).collect(),
            cgroup_throttled_ns: delays.cgroup_throttled_ns,
            interrupt_ns: delays.interrupt_ns,
            pressure: delays.pressure.map(|pressure| PressureFields {
                cpu_ns: pressure.cpu_ns,
                memory_ns: pressure.memory_ns,
                io_ns: pressure.io_ns,
            }),
        }
    }

    /// Returns the delays of a window, given its beginning and end. Reasons that only a later agent knows
    /// count as other ones.
    pub(super) fn sample(&self, (from_ns, ts_ns): (u64, u64), pid: u32) -> DelaySample {
        let task = |task: &TaskFields| TaskTime {
            task: task.task.clone(),
            cpu: task.cpu,
            ns: task.ns,
            switches: task.switches,
        };
        let blocked = |blocked: &BlockedFields| BlockedTime {
            reason: BlockReason::from_name(&blocked.reason).unwrap_or(BlockReason::Other),
            ns: blocked.ns,
            count: blocked.count,
            longest_ns: blocked.longest_ns,
        };
        let delays = Delays {
            preempted_by: self.preempted_by.iter().map(task).collect(),
            longest_preemption_ns: self.longest_preemption_ns,
            gpu_shared_by: self
                .gpu_shared_by
                .as_ref()
                .map(|all| all.iter().map(task).collect()),
            blocked: self.blocked.iter().map(blocked).collect(),
            cgroup_throttled_ns: self.cgroup_throttled_ns,
            interrupt_ns: self.interrupt_ns,
            pressure: self.pressure.map(|pressure| Pressure {
                cpu_ns: pressure.cpu_ns,
                memory_ns: pressure.memory_ns,
                io_ns: pressure.io_ns,
            }),
        };
        DelaySample {
            from_ns,
            ts_ns,
            pid,
            delays,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_read_back_unchanged() {
        let delays = Delays {
            gpu_shared_by: Some(vec![TaskTime {
                task: "bench.py (PID 4711)".to_owned(),
                cpu: None,
                ns: 7_000,
                switches: 0,
            }]),
            preempted_by: vec![TaskTime {
                task: "node \"exporter\"".to_owned(),
                cpu: Some(12),
                ns: 44,
                switches: 2,
            }],
            longest_preemption_ns: Some(30),
            blocked: BlockReason::ALL
                .map(|reason| BlockedTime {
                    reason,
                    ns: 9,
                    count: 3,
                    longest_ns: 5,
                })
                .to_vec(),
            cgroup_throttled_ns: Some(7),
            interrupt_ns: None,
            pressure: Some(Pressure {
                cpu_ns: 1,
                memory_ns: 2,
                io_ns: 3,
            }),
        };
        let line = serde_json::to_string(&DelayFields::new(&delays)).unwrap();
        let fields: DelayFields = serde_json::from_str(&line).unwrap();
        let sample = fields.sample((4, 5), 8);
        assert_eq!((sample.from_ns, sample.ts_ns, sample.pid), (4, 5, 8));
        assert_eq!(sample.delays, delays);
    }

    #[test]
    fn a_reason_of_a_later_agent_is_another_one() {
        let line = r#"{"blocked":[{"reason":"moon","ns":4,"count":1,"phase":2}]}"#;
        let fields: DelayFields = serde_json::from_str(line).unwrap();
        let blocked = &fields.sample((4, 5), 8).delays.blocked[0];
        assert_eq!((blocked.reason, blocked.ns), (BlockReason::Other, 4));
    }
}
