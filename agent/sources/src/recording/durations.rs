//! Durations of calls on a line of a recording. Pure.

use fleet_agent_core::event::{
    CallDurations, Direction, FunctionDurations, LaunchSizes, LogHistogram,
};
use serde::{Deserialize, Serialize};

/// Buckets with their counts.
type Buckets = Vec<(u8, u64)>;

/// Fields of the durations of the calls of one process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DurationFields {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    calls: Vec<FunctionFields>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    launch_sizes: Option<LaunchSizeFields>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FunctionFields {
    #[serde(rename = "fn")]
    function: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memcpy_kind: Option<u32>,
    buckets: Buckets,
    total_ns: u64,
    longest_ns: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interrupted: Option<u64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    bytes: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct LaunchSizeFields {
    grid: Buckets,
    block: Buckets,
    grid_total: u64,
    block_total: u64,
}

impl DurationFields {
    /// Converts durations to fields.
    pub(crate) fn new(durations: &CallDurations) -> Self {
        let calls = durations.calls.iter().map(|calls| FunctionFields {
            function: calls.function.clone(),
            memcpy_kind: calls.direction.map(Direction::to_cuda_kind),
            buckets: calls.histogram.buckets().collect(),
            total_ns: calls.total_ns,
            longest_ns: calls.longest_ns,
            interrupted: calls.interrupted,
            bytes: calls.bytes,
        });
        let sizes = durations.launch_sizes.as_ref();
        Self {
            calls: calls.collect(),
            launch_sizes: sizes.map(|sizes| LaunchSizeFields {
                grid: sizes.grid.buckets().collect(),
                block: sizes.block.buckets().collect(),
                grid_total: sizes.grid_total,
                block_total: sizes.block_total,
            }),
        }
    }

    /// Converts the fields to durations.
    pub(crate) fn durations(&self, ts_ns: u64, pid: u32) -> CallDurations {
        let calls = self.calls.iter().map(|calls| FunctionDurations {
            function: calls.function.clone(),
            direction: calls.memcpy_kind.map(Direction::from_cuda_kind),
            histogram: histogram(&calls.buckets),
            total_ns: calls.total_ns,
            longest_ns: calls.longest_ns,
            interrupted: calls.interrupted,
            bytes: calls.bytes,
        });
        let sizes = self.launch_sizes.as_ref();
        CallDurations {
            ts_ns,
            pid,
            calls: calls.collect(),
            launch_sizes: sizes.map(|sizes| LaunchSizes {
                grid: histogram(&sizes.grid),
                block: histogram(&sizes.block),
                grid_total: sizes.grid_total,
                block_total: sizes.block_total,
            }),
        }
    }
}

fn histogram(buckets: &Buckets) -> LogHistogram {
    let mut histogram = LogHistogram::default();
    for (bucket, times) in buckets {
        histogram.add(*bucket, *times);
    }
    histogram
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes the field by reference"
)]
pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durations() -> CallDurations {
        let mut histogram = LogHistogram::default();
        histogram.record(1000, 3);
        histogram.record(90_000, 1);
        let calls = |function: &str, direction| FunctionDurations {
            function: function.to_owned(),
            direction,
            histogram: histogram.clone(),
            total_ns: 93_000,
            longest_ns: 90_000,
            interrupted: Some(3),
            bytes: 4096,
        };
        CallDurations {
            ts_ns: 5,
            pid: 7,
            calls: vec![
                calls("cudaMalloc", None),
                calls("cudaMemcpyAsync", Some(Direction::Unspecified)),
                calls("cudaMemcpy", Some(Direction::ToHost)),
            ],
            launch_sizes: Some(LaunchSizes {
                grid: histogram.clone(),
                block: histogram,
                grid_total: 4,
                block_total: 1024,
            }),
        }
    }

    #[test]
    fn durations_are_read_back_unchanged() {
        let fields = DurationFields::new(&durations());
        let line = serde_json::to_string(&fields).unwrap();
        let read: DurationFields = serde_json::from_str(&line).unwrap();
        assert_eq!(read.durations(5, 7), durations());
    }

    #[test]
    fn buckets_that_do_not_exist_are_ignored() {
        let line =
            r#"{"calls":[{"fn":"f","buckets":[[252,1],[30,2]],"total_ns":1,"longest_ns":1}]}"#;
        let read: DurationFields = serde_json::from_str(line).unwrap();
        assert_eq!(read.durations(1, 1).calls[0].calls(), 2);
    }
}
