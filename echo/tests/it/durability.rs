//! Acknowledged points survive a SIGKILL and are stored once.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Child;

use serde_json::{Value, json};

use crate::testbed::{Echo, recording, replay_command, summary, wait_for};

const CLUSTER: &str = "crash";

/// Returns all events of the cluster, read page by page.
fn history(echo: &Echo) -> Vec<Value> {
    let mut events = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let input = if cursor.is_null() {
            json!({ "cluster": CLUSTER, "window": "all", "limit": 1000 })
        } else {
            json!({ "cluster": CLUSTER, "limit": 1000, "cursor": cursor })
        };
        let (status, page) = echo.post("fleet.cluster.event_history", &input);
        if status == 404 {
            return events;
        }
        assert_eq!(status, 200, "{page}");
        events.extend(page["events"].as_array().unwrap().iter().cloned());
        cursor = page["next_cursor"].clone();
        if cursor.is_null() {
            return events;
        }
    }
}

/// Returns how often each point is stored. Points are identical if they differ only in the event
/// id.
fn copies(events: &[Value]) -> BTreeMap<String, u32> {
    let mut copies = BTreeMap::new();
    for event in events {
        let name = [
            "node_id",
            "metric_name",
            "comm_id",
            "op",
            "seq_first",
            "seq_last",
            "timestamp_ns",
        ]
        .map(|column| event[column].to_string())
        .join("|");
        *copies.entry(name).or_default() += 1;
    }
    copies
}

fn start_agents(echo: &Echo) -> Vec<Child> {
    (0..4)
        .map(|rank| {
            let mut command =
                replay_command(&recording("host-sleep-rank2"), rank, &echo.otlp, CLUSTER);
            command.args(["--speed", "8"]).spawn().unwrap()
        })
        .collect()
}

fn serve_at(db: &Path, otlp: &str) -> Echo {
    Echo::serve_with(db, &["--otlp-listen", otlp])
}

#[test]
fn every_acknowledged_point_is_stored_exactly_once_after_sigkill() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("fleet.duckdb");
    let echo = Echo::serve(&db);
    let otlp = echo.otlp.clone();
    let agents = start_agents(&echo);
    wait_for("the first events to be stored", || {
        history(&echo).len() > 100
    });
    let before = copies(&history(&echo));
    echo.kill();

    // The agents retry the same address; batches in flight are sent again with the same number.
    let echo = serve_at(&db, &otlp);
    let after = copies(&history(&echo));
    for point in before.keys() {
        assert!(after.contains_key(point), "acknowledged and lost: {point}");
    }
    let mut sent = 0;
    for agent in agents {
        let summary = summary(&agent.wait_with_output().unwrap());
        assert_eq!(summary["points_dropped"], 0, "{summary}");
        sent += summary["points_sent"].as_u64().unwrap();
    }
    let stored = copies(&history(&echo));
    assert!(
        stored.values().all(|copies| *copies == 1),
        "a point is stored twice"
    );
    // The agents count their verdicts, which are log records, separately.
    let points = stored
        .keys()
        .filter(|name| !name.contains("fleet.straggler"));
    assert_eq!(
        points.count() as u64,
        sent,
        "acknowledged points against stored points"
    );

    echo.caught_up();
    let outliers = echo.query("find_outlier_nodes", CLUSTER);
    let ranks: Vec<&Value> = outliers["outliers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|outlier| &outlier["rank"])
        .collect();
    assert_eq!(ranks, [2], "{outliers:#}");
}
