//! Events of a Chrome trace.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::cli::view::{instant, list, text};

/// Process of the incidents.
const INCIDENTS: u32 = 3;

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

/// Returns the events of one rank: a track for each metric and communicator with blocks, a counter
/// for each metric with single values.
pub(super) fn lane(lane: &Lane, stored: &[Value]) -> Vec<Value> {
    let mut events = process(lane.pid, &lane.name);
    let mut tracks: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for event in stored {
        match text(event, "kind").as_str() {
            "histogram" => tracks.entry(track(event)).or_default().push(event),
            _ => events.extend(counter(lane, event)),
        }
    }
    for (tid, (name, blocks)) in (1_u32..).zip(tracks) {
        events.push(metadata(
            lane.pid,
            tid,
            "thread_name",
            &json!({"name": name}),
        ));
        for pair in blocks.windows(2) {
            if let [before, block] = pair {
                events.extend(slice(lane, tid, before, block));
            }
        }
    }
    events
}

/// Returns by how much the clock of `own` is ahead of that of `others`, microseconds: the median
/// difference of the ends of blocks of the same operations, which all ranks complete together.
pub(super) fn shift_us(own: &[Value], others: &[Value]) -> f64 {
    let ends = |events: &[Value]| -> BTreeMap<(String, String), f64> {
        let of_blocks = events
            .iter()
            .filter(|event| text(event, "kind") == "histogram");
        let end = |event: &Value| Some(((track(event), text(event, "seq_last")), end_us(event)?));
        of_blocks.filter_map(end).collect()
    };
    let (own, others) = (ends(own), ends(others));
    let common = own
        .iter()
        .filter_map(|(block, end)| Some(end - others.get(block)?));
    let mut differences: Vec<f64> = common.collect();
    differences.sort_unstable_by(f64::total_cmp);
    differences
        .get(differences.len() / 2)
        .copied()
        .unwrap_or(0.0)
}

/// Returns each incident and condition of the answer as a span.
pub(super) fn incidents(answer: &Value) -> Vec<Value> {
    let found = ["incidents", "victim_of", "conditions"];
    let found = found.iter().flat_map(|name| list(answer, name));
    let mut events = process(INCIDENTS, "incidents");
    for (tid, incident) in (1_u32..).zip(found) {
        let Some(first) = instant(incident, "first_seen") else {
            continue;
        };
        let ended = instant(incident, "cleared_at").or_else(|| instant(incident, "last_seen"));
        let duration_us = ended.map_or(0, |ended| ended.duration_since(first).as_micros());
        let name = ["kind", "role"].map(|name| incident.get(name).and_then(Value::as_str));
        let name = name.into_iter().flatten().next().unwrap_or("incident");
        events.push(json!({
            "ph": "X",
            "name": name,
            "pid": INCIDENTS,
            "tid": tid,
            "ts": first.as_microsecond(),
            "dur": i64::try_from(duration_us).unwrap_or(i64::MAX).max(0),
            "args": {
                "id": incident.get("incident_id"),
                "reason": incident.get("reason"),
                "lag_ms": incident.get("lag_ms"),
                "confidence": incident.get("confidence"),
            },
        }));
    }
    events
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
fn track(event: &Value) -> String {
    let parts = ["metric_name", "source", "op", "comm_id"];
    let parts = parts.map(|name| event.get(name).and_then(Value::as_str));
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Returns the end of a block, microseconds.
#[expect(
    clippy::cast_precision_loss,
    reason = "a quarter of a microsecond, below what the clocks of two hosts agree on"
)]
fn end_us(event: &Value) -> Option<f64> {
    let ns = event.get("timestamp_ns").and_then(Value::as_i64)?;
    Some(ns as f64 / 1e3)
}

fn counter(lane: &Lane, event: &Value) -> Option<Value> {
    let value = ["value_double", "value_int"].map(|name| event.get(name).and_then(Value::as_f64));
    let value = value.into_iter().flatten().next()?;
    Some(json!({
        "ph": "C",
        "name": text(event, "metric_name"),
        "pid": lane.pid,
        "ts": end_us(event)? + lane.shift_us,
        "args": {"value": value},
    }))
}

fn slice(lane: &Lane, tid: u32, before: &Value, block: &Value) -> Option<Value> {
    let (start_us, end_us) = (end_us(before)?, end_us(block)?);
    let number = |name: &str| block.get(name).and_then(Value::as_f64);
    let mean = number("sum")
        .zip(number("count"))
        .map(|(sum, count)| sum / count.max(1.0));
    let mut args = Map::new();
    for name in [
        "seq_first",
        "seq_last",
        "count",
        "min",
        "max",
        "unit",
        "comm_id",
    ] {
        args.insert(
            name.to_owned(),
            block.get(name).cloned().unwrap_or_default(),
        );
    }
    args.insert("mean".to_owned(), mean.into());
    let shown = mean.map_or_else(String::new, |mean| {
        format!("{mean:.2} {}", text(block, "unit"))
    });
    Some(json!({
        "ph": "X",
        "name": format!("mean {shown}"),
        "pid": lane.pid,
        "tid": tid,
        "ts": start_us + lane.shift_us,
        "dur": (end_us - start_us).max(0.0),
        "args": args,
    }))
}
