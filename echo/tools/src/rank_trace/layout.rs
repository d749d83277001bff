//! Events of a Chrome trace.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::event_history::HistoryEvent;
use crate::explain_rank::Explanation;
use crate::outlier::{Condition, Lifecycle, Outlier};

/// Process of the incidents.
const INCIDENTS: u32 = 3;

/// Kind of the events that are blocks.
const BLOCK: &str = "histogram";

/// Process of a trace: one rank.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    /// Number of the process.
    pub(super) pid: u32,
    /// Shown name.
    pub(super) name: String,
    /// Added to the times of the rank, microseconds.
    pub(super) shift_us: f64,
}

/// Incident or condition as a span.
struct Span<'a> {
    id: &'a str,
    name: &'a str,
    reason: &'a str,
    lag_ms: Option<f64>,
    confidence: f64,
    lifecycle: &'a Lifecycle,
}

/// Returns the events of one rank: a track for each metric and communicator with blocks, a counter
/// for each metric with single values.
pub(super) fn lane(lane: &Lane, stored: &[HistoryEvent]) -> Vec<Value> {
    let mut events = process(lane.pid, &lane.name);
    let mut tracks: BTreeMap<String, Vec<&HistoryEvent>> = BTreeMap::new();
    for event in stored {
        if event.kind == BLOCK {
            tracks.entry(track(event)).or_default().push(event);
        } else {
            events.extend(counter(lane, event));
        }
    }
    for (tid, (name, blocks)) in (1_u32..).zip(tracks) {
        let name = json!({"name": name});
        events.push(metadata(lane.pid, tid, "thread_name", &name));
        for pair in blocks.windows(2) {
            if let [before, block] = pair {
                events.push(slice(lane, tid, before, block));
            }
        }
    }
    events
}

/// Returns by how much the clock of `own` is ahead of that of `others`, microseconds: the median
/// difference of the ends of blocks of the same operations, which all ranks complete together.
pub(super) fn shift_us(own: &[HistoryEvent], others: &[HistoryEvent]) -> f64 {
    let ends = |events: &[HistoryEvent]| -> BTreeMap<(String, Option<u64>), f64> {
        let blocks = events.iter().filter(|event| event.kind == BLOCK);
        let end = |event: &HistoryEvent| ((track(event), event.seq_last), end_us(event));
        blocks.map(end).collect()
    };
    let (own, others) = (ends(own), ends(others));
    let common = own
        .iter()
        .filter_map(|(block, end)| Some(end - others.get(block)?));
    let mut differences: Vec<f64> = common.collect();
    differences.sort_unstable_by(f64::total_cmp);
    let median = differences.get(differences.len() / 2);
    median.copied().unwrap_or(0.0)
}

/// Returns each incident and condition of the answer as a span.
pub(super) fn incidents(answer: &Explanation) -> Vec<Value> {
    let outliers = answer.incidents.iter();
    let outliers = outliers.map(|one| Span::from_outlier(&one.outlier));
    let conditions = answer.conditions.iter().map(Span::from_condition);
    let mut events = process(INCIDENTS, "incidents");
    for (tid, span) in (1_u32..).zip(outliers.chain(conditions)) {
        events.extend(span.event(tid));
    }
    events
}

impl<'a> Span<'a> {
    fn from_outlier(one: &'a Outlier) -> Self {
        Self {
            id: &one.incident_id,
            name: one.role,
            reason: &one.reason,
            lag_ms: one.lag_ms,
            confidence: one.confidence,
            lifecycle: &one.lifecycle,
        }
    }

    fn from_condition(one: &'a Condition) -> Self {
        Self {
            id: &one.incident_id,
            name: one.kind,
            reason: &one.reason,
            lag_ms: None,
            confidence: one.confidence,
            lifecycle: &one.lifecycle,
        }
    }

    /// Returns the event; `None` if the beginning is not an instant.
    fn event(&self, tid: u32) -> Option<Value> {
        let course = self.lifecycle;
        let first: Timestamp = course.first_seen.parse().ok()?;
        let end = course.cleared_at.as_ref().unwrap_or(&course.last_seen);
        let end: Option<Timestamp> = end.parse().ok();
        let duration_us = end.map_or(0, |end| end.duration_since(first).as_micros());
        Some(json!({
            "ph": "X",
            "name": self.name,
            "pid": INCIDENTS,
            "tid": tid,
            "ts": first.as_microsecond(),
            "dur": i64::try_from(duration_us).unwrap_or(i64::MAX).max(0),
            "args": {
                "id": self.id,
                "reason": self.reason,
                "lag_ms": self.lag_ms,
                "confidence": self.confidence,
            },
        }))
    }
}

fn process(pid: u32, name: &str) -> Vec<Value> {
    vec![
        metadata(pid, 0, "process_name", &json!({"name": name})),
        metadata(pid, 0, "process_sort_index", &json!({"sort_index": pid})),
    ]
}

fn metadata(pid: u32, tid: u32, name: &str, args: &Value) -> Value {
    json!({"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args})
}

/// Returns the name of the track of a block.
fn track(event: &HistoryEvent) -> String {
    let parts = [
        Some(event.metric_name.as_str()),
        event.source,
        event.op.as_deref(),
        event.comm_id.as_deref(),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Returns the time of an event, of a block its end, microseconds.
#[expect(
    clippy::cast_precision_loss,
    reason = "a quarter of a microsecond, below what the clocks of two hosts agree on"
)]
const fn end_us(event: &HistoryEvent) -> f64 {
    event.timestamp_ns as f64 / 1e3
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counters are drawn; above 2^53 the last digits are not visible"
)]
fn counter(lane: &Lane, event: &HistoryEvent) -> Option<Value> {
    let value = event.value_double;
    let value = value.or_else(|| event.value_int.map(|value| value as f64))?;
    Some(json!({
        "ph": "C",
        "name": event.metric_name,
        "pid": lane.pid,
        "ts": end_us(event) + lane.shift_us,
        "args": {"value": value},
    }))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a block has far fewer than 2^53 operations"
)]
fn slice(lane: &Lane, tid: u32, before: &HistoryEvent, block: &HistoryEvent) -> Value {
    let (start_us, end_us) = (end_us(before), end_us(block));
    let mean = block.sum.zip(block.count);
    let mean = mean.map(|(sum, count)| sum / (count as f64).max(1.0));
    let shown = mean.map(|mean| format!("{mean:.2} {}", block.unit));
    json!({
        "ph": "X",
        "name": format!("mean {}", shown.unwrap_or_default()),
        "pid": lane.pid,
        "tid": tid,
        "ts": start_us + lane.shift_us,
        "dur": (end_us - start_us).max(0.0),
        "args": {
            "seq_first": block.seq_first,
            "seq_last": block.seq_last,
            "count": block.count,
            "mean": mean,
            "min": block.min,
            "max": block.max,
            "unit": block.unit,
            "comm_id": block.comm_id,
        },
    })
}
