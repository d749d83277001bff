use serde_json::Value;

use super::{RankTrace, Reported, trace};
use crate::ToolContext;
use crate::event_history::HistoryEvent;
use crate::explain_rank::{ExplainRank, Explanation};
use crate::fixture;
use crate::registry::Registry;
use crate::tool::Tool;

/// Block of a rank that ends at this time, microseconds.
fn block(rank: u32, seq: u64, end_us: i64) -> HistoryEvent {
    HistoryEvent {
        event_id: seq,
        timestamp: String::new(),
        timestamp_ns: end_us * 1_000,
        received_ns: 0,
        cluster_id: "prod".to_owned(),
        node_id: format!("node-{rank}"),
        rank: Some(rank),
        nranks: None,
        metric_name: "fleet.rank.host_gap_ms".to_owned(),
        value_double: None,
        value_int: None,
        attrs: Value::Null,
        kind: "histogram",
        comm_id: Some("00000000000000aa".to_owned()),
        op: Some("AllReduce".to_owned()),
        source: Some("host"),
        seq_first: Some(seq),
        seq_last: Some(seq + 63),
        count: Some(64),
        sum: Some(128.0),
        min: Some(1.0),
        max: Some(3.0),
        unit: "ms".to_owned(),
        gpu_model: None,
        namespace: None,
        pod: None,
        job: Some("llama".to_owned()),
    }
}

async fn answer(context: &ToolContext) -> Explanation {
    let explain = ExplainRank {
        cluster: "prod".to_owned(),
        rank: 2,
        job: None,
        from: None,
        to: None,
        window: None,
        plot: None,
    };
    explain.run(context).await.unwrap()
}

/// Start and duration of the slices of a process.
fn slices(trace: &Value, pid: u32) -> Vec<(f64, f64)> {
    let events = trace["traceEvents"].as_array().unwrap().iter();
    let own = events.filter(|event| event["ph"] == "X" && event["pid"] == pid);
    let times = |event: &Value| {
        let number = |name: &str| event[name].as_f64().unwrap();
        (number("ts"), number("dur"))
    };
    own.map(times).collect()
}

#[tokio::test]
async fn blocks_are_slices_and_the_peer_is_aligned_by_common_blocks() {
    let answer = answer(&fixture::context().await).await;
    let end_us = |seq: u64| 10_000 * i64::try_from(seq).unwrap();
    let own = [0, 64, 128].map(|seq| block(2, seq, end_us(seq)));
    // The clock of the peer is 5 s ahead.
    let others = [0, 64, 128].map(|seq| block(5, seq, end_us(seq) + 5_000_000));
    let own = Reported {
        rank: 2,
        events: &own,
    };
    let others = Reported {
        rank: 5,
        events: &others,
    };
    let trace = trace(&answer, &own, &others);
    let expected = [(0.0, 640_000.0), (640_000.0, 640_000.0)];
    assert_eq!(slices(&trace, 1), expected);
    assert_eq!(slices(&trace, 2), expected);
    // 2026-06-01T00:04:50Z, and as long as the incident has been open.
    let (start, duration) = slices(&trace, 3)[0];
    assert_eq!((start, duration), (1_780_272_290e6, 310e6));
}

#[tokio::test]
async fn a_trace_has_the_counters_of_both_ranks_and_the_incidents_of_the_only_cluster() {
    let context = fixture::context().await;
    let registry = Registry::standard();
    let request = RankTrace {
        rank: 2,
        ..RankTrace::default()
    };
    let text = Box::pin(request.json(&registry, &context)).await.unwrap();
    let trace: Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let count = |phase: &str, pid: u32| {
        let of_rank = |event: &&Value| event["ph"] == phase && event["pid"] == pid;
        events.iter().filter(of_rank).count()
    };
    // The fixture has an iteration time of each rank every five seconds, in ten minutes.
    assert!(count("C", 1) >= 120 && count("C", 2) >= 120, "{trace}");
    let is_culprit = |event: &Value| event["pid"] == 3 && event["name"] == "culprit";
    assert!(events.iter().any(is_culprit), "{trace}");
    let named = RankTrace {
        cluster: Some("prod".to_owned()),
        ..request
    };
    let named = Box::pin(named.json(&registry, &context)).await;
    assert_eq!(named.unwrap(), text);
}
