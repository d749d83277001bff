//! Reports of agents on single processes.

use std::sync::Arc;
use std::time::Duration;

use echo_core::ids::Rank;
use echo_core::model::event::{Event, Origin, Reading, Summary};
use serde_json::{Value, json};

use crate::EventStore;
use crate::contract::sample::{at, bare_origin, batch, gauge, origin, window};
use crate::duckdb::DuckDbStore;
use crate::process_reports::{ProcessQuery, ProcessReports};
use crate::sql::SqlQuery;

/// Report on the period of ten seconds that ends at `second`.
fn report(
    origin: &Arc<Origin>,
    metric: &str,
    second: i64,
    (reading, attrs): (Reading, &Value),
) -> Event {
    let mut attrs = attrs.clone();
    let pid = origin.rank.map_or(99, |rank| 4_000 + rank.rank().value());
    attrs["process.pid"] = json!(pid);
    attrs["process.executable.name"] = json!("python3");
    Event {
        start: Some(at((second - 10) * 1_000)),
        attrs: Arc::from(attrs.to_string()),
        ..gauge(origin, metric, second * 1_000, reading)
    }
}

/// Calls of one period, of which one in ten took longer.
fn calls(origin: &Arc<Origin>, second: i64, count: u64, p99_ms: f64) -> Event {
    let longer = count / 10;
    let durations = format!("1000000={} {p99_ms:.0}000000={longer}", count - longer);
    let summary = Summary {
        count,
        sum: 2.0 * f64::from(u32::try_from(count).unwrap()),
        min: Some(0.5),
        max: Some(p99_ms + 1.0),
    };
    let attrs = json!({
        "fleet.function": "cudaMalloc", "fleet.p50_ms": 1.0, "fleet.p95_ms": 2.0, "fleet.p99_ms": p99_ms,
        "fleet.bytes": 4096, "fleet.durations_ns": durations,
    });
    report(
        origin,
        "fleet.process.calls_ms",
        second,
        (Reading::Histogram(summary), &attrs),
    )
}

fn chain(origin: &Arc<Origin>, second: i64, severity: &str, share: f64) -> Event {
    let attrs = json!({
        "fleet.chain.cause": "cpu_contention", "fleet.chain.severity": severity,
        "fleet.chain.summary": format!("lost {share} to `kworker/3:1H`"),
        "fleet.chain.links": "cpu 12 is shared\npreempted 38 times a step",
    });
    report(
        origin,
        "fleet.process.chain",
        second,
        (Reading::Double(share), &attrs),
    )
}

fn stack(origin: &Arc<Origin>, second: i64, samples: i64, stack: &str) -> Event {
    let attrs = json!({ "fleet.stack": stack });
    report(
        origin,
        "fleet.process.stack_samples",
        second,
        (Reading::Int(samples), &attrs),
    )
}

fn file_part(origin: &Arc<Origin>, second: i64, part: i64, content: &str) -> Event {
    let attrs = json!({
        "fleet.file.name": "threads.txt", "fleet.file.part": part, "fleet.file.parts": 2,
        "fleet.file.content": content,
    });
    report(
        origin,
        "fleet.process.file_bytes",
        second,
        (Reading::Int(9), &attrs),
    )
}

fn everything() -> ProcessQuery {
    ProcessQuery::new(window(0, 1_000_000), 100)
}

#[tokio::test]
async fn calls_of_a_function_are_merged_over_periods() {
    let store = DuckDbStore::scratch();
    let (rank, node) = (origin("prod", "node-1", 5), bare_origin("prod", "node-1"));
    let events = vec![
        calls(&rank, 10, 30, 4.0),
        calls(&rank, 20, 10, 8.0),
        calls(&node, 20, 1, 1.0),
    ];
    store.append(batch(1, events)).await.unwrap();
    let found = store.call_totals(everything()).await.unwrap();
    let [of_rank, of_node] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(of_rank.process.rank, Some(Rank::new(5)));
    assert_eq!(of_rank.process.pid, Some(4_005));
    assert_eq!(of_rank.process.name.as_deref(), Some("python3"));
    assert_eq!(
        (of_rank.n_calls, of_rank.total_ms, of_rank.max_ms),
        (40, 80.0, Some(9.0))
    );
    assert_eq!(
        (of_rank.p50_ms, of_rank.p99_ms, of_rank.worst_p99_ms),
        (Some(1.0), Some(8.0), Some(8.0))
    );
    assert_eq!(
        (of_rank.bytes, of_rank.covered_nanos),
        (Some(8_192), 20_000_000_000)
    );
    assert_eq!((of_node.process.rank, of_node.n_calls), (None, 1));
    let mut without_bytes = calls(&node, 30, 1, 1.0);
    without_bytes.attrs = Arc::from(without_bytes.attrs.replace("fleet.bytes", "other"));
    let other = DuckDbStore::scratch();
    other.append(batch(1, vec![without_bytes])).await.unwrap();
    assert_eq!(
        other.call_totals(everything()).await.unwrap()[0].bytes,
        None
    );
    let graphs = ProcessQuery {
        only_graphs: true,
        ..everything()
    };
    assert_eq!(store.call_totals(graphs).await.unwrap(), []);
}

#[tokio::test]
async fn a_chain_has_its_latest_state_and_the_beginning_of_its_last_run() {
    let store = DuckDbStore::scratch();
    let (one, other) = (origin("prod", "node-1", 1), origin("prod", "node-2", 2));
    let events = vec![
        chain(&one, 10, "high", 0.9),
        chain(&one, 200, "medium", 0.3),
        chain(&one, 210, "low", 0.25),
        chain(&other, 210, "high", 0.2),
    ];
    store.append(batch(1, events)).await.unwrap();
    let found = store.chains(everything()).await.unwrap();
    let ranks: Vec<_> = found
        .iter()
        .filter_map(|chain| chain.process.rank)
        .collect();
    assert_eq!(ranks, [Rank::new(2), Rank::new(1)], "the most severe first");
    let latest = found.last().unwrap();
    assert_eq!(latest.severity.as_deref(), Some("low"));
    assert_eq!((latest.share, latest.max_share), (Some(0.25), Some(0.9)));
    assert_eq!((latest.since, latest.last), (at(190_000), at(210_000)));
    assert_eq!(latest.stack, None);
    let only = ProcessQuery {
        rank: Some(Rank::new(2)),
        cluster: Some("prod".parse().unwrap()),
        node: Some("node-2".parse().unwrap()),
        job: Some("llama".parse().unwrap()),
        pid: Some(4_002),
        ..everything()
    };
    assert_eq!(store.chains(only.clone()).await.unwrap().len(), 1);
    let nowhere = ProcessQuery {
        pid: Some(1),
        ..only
    };
    assert_eq!(store.chains(nowhere).await.unwrap(), []);
}

#[tokio::test]
async fn samples_of_a_stack_are_summed_and_compared_with_those_of_its_process() {
    let store = DuckDbStore::scratch();
    let rank = origin("prod", "node-1", 1);
    let lines = "[Python] train.py:142 in forward()\nmain";
    let events = vec![
        stack(&rank, 10, 30, lines),
        stack(&rank, 20, 30, lines),
        stack(&rank, 20, 20, "main"),
    ];
    store.append(batch(1, events)).await.unwrap();
    let found = store.stack_totals(everything()).await.unwrap();
    let totals: Vec<_> = found
        .iter()
        .map(|one| (one.stack.as_str(), one.samples, one.process_samples))
        .collect();
    assert_eq!(totals, [(lines, 60, 80), ("main", 20, 80)]);
}

#[tokio::test]
async fn processes_and_nodes_are_listed_with_their_last_report() {
    let store = DuckDbStore::scratch();
    let (rank, node) = (origin("prod", "node-1", 1), bare_origin("prod", "node-2"));
    let events = vec![
        calls(&rank, 10, 3, 1.0),
        chain(&rank, 20, "low", 0.1),
        stack(&node, 30, 1, "main"),
        gauge(&node, "fleet.agent.events_lost", 30_000, Reading::Int(7)),
        gauge(&node, "unrelated", 40_000, Reading::Int(7)),
    ];
    store.append(batch(1, events)).await.unwrap();
    let seen = store.processes(everything()).await.unwrap();
    let times: Vec<_> = seen
        .iter()
        .map(|one| (one.process.pid, one.first, one.last))
        .collect();
    assert_eq!(
        times,
        [
            (Some(4_001), at(0), at(20_000)),
            (Some(99), at(20_000), at(30_000))
        ]
    );
    let nodes = store
        .node_reports(None, window(0, 1_000_000), None)
        .await
        .unwrap();
    let lost = store
        .node_reports(None, window(0, 1_000_000), Some("fleet.agent.events_lost"))
        .await
        .unwrap();
    let lost: Vec<f64> = lost.iter().map(|one| one.total).collect();
    assert_eq!(lost, [7.0]);
    let of_node = nodes.iter().filter(|one| one.node.as_str() == "node-2");
    let of_node: Vec<_> = of_node
        .map(|one| (one.metric.as_str(), one.total))
        .collect();
    assert_eq!(
        of_node,
        [
            ("fleet.agent.events_lost", 7.0),
            ("fleet.process.stack_samples", 1.0)
        ]
    );
}

#[tokio::test]
async fn files_are_returned_in_parts_by_time_and_process() {
    let store = DuckDbStore::scratch();
    let ranks = [0, 1].map(|rank| origin("prod", "node-1", rank));
    let events = vec![
        file_part(&ranks[1], 20, 1, "b"),
        file_part(&ranks[1], 20, 0, "a"),
        file_part(&ranks[0], 10, 0, "c"),
        // There are two parts.
        file_part(&ranks[0], 10, 2, "d"),
    ];
    store.append(batch(1, events)).await.unwrap();
    let found = store.file_parts(everything()).await.unwrap();
    let seen = found
        .iter()
        .map(|one| (one.process.pid, one.content.as_str()));
    let expected = [(Some(4_000), "c"), (Some(4_001), "a"), (Some(4_001), "b")];
    assert_eq!(seen.collect::<Vec<_>>(), expected);
    let of_rank = ProcessQuery {
        rank: Some(Rank::new(0)),
        ..everything()
    };
    assert_eq!(store.file_parts(of_rank).await.unwrap().len(), 1);
}

#[tokio::test]
async fn sql_reads_the_reports_as_views() {
    let store = DuckDbStore::scratch();
    let rank = origin("prod", "node-1", 1);
    let events = vec![
        calls(&rank, 10, 3, 1.0),
        chain(&rank, 10, "low", 0.1),
        stack(&rank, 10, 4, "main"),
    ];
    store.append(batch(1, events)).await.unwrap();
    for (text, expected) in [
        (
            "SELECT rank, pid, process, function, n_calls, p99_ms, bytes FROM process_calls",
            json!([1, 4_001, "python3", "cudaMalloc", 3, 1.0, 4_096]),
        ),
        (
            "SELECT cause, share, left(links, 21) FROM process_chains WHERE severity = 'low'",
            json!(["cpu_contention", 0.1, "cpu 12 is shared\npree"]),
        ),
        (
            "SELECT stack, sum(samples)::BIGINT FROM process_stacks GROUP BY stack",
            json!(["main", 4]),
        ),
    ] {
        let query = SqlQuery {
            text: text.to_owned(),
            max_rows: 10,
            max_bytes: 10_000,
            deadline: Duration::from_secs(10),
        };
        let table = store.run_sql(query).await.unwrap();
        assert_eq!(json!(table.rows), json!([expected]), "{text}");
    }
}
