//! An instance that receives events and has a lake: it answers from its database and from the lake
//! as one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;

use fleet_test_harness::NIGHTLY;
use serde_json::{Value, json};

use super::postgres::{POSTGRES, Postgres};
use crate::lake::{EXTENSIONS, Lake, copied, metric};
use crate::load::{Sent, request, send, sender};
use crate::testbed::{Echo, recording, replay_all, wait_for};

const SQL: &str = "fleet.cluster.run_analysis";
const COST: &str = "fleet.cluster.get_cost";
const HISTORY: &str = "fleet.cluster.event_history";

/// Shortest age at which events are deleted.
const AGE: [&str; 2] = ["--retention-age", "1m"];

/// Points of a batch.
const POINTS: u64 = 500;

/// Calls a tool, which must succeed.
fn ask(echo: &Echo, tool: &str, input: &Value) -> Value {
    let (status, answer) = echo.post(tool, input);
    assert_eq!(status, 200, "{answer}");
    answer
}

/// Returns the only row of a statement, and the note of the answer.
fn row(echo: &Echo, sql: &str) -> (Value, Value) {
    let mut answer = ask(echo, SQL, &json!({ "sql": sql }));
    (answer["rows"][0].take(), answer["note"].take())
}

fn deleted(echo: &Echo) -> f64 {
    metric(echo, "echo_store_deleted_events_total")
}

/// Answers about everything of a cluster.
fn answers(echo: &Echo, cluster: &str) -> Vec<Value> {
    let tools = [
        ("fleet.cluster.find_outlier_nodes", json!({})),
        (COST, json!({})),
        ("fleet.cluster.explain_rank", json!({ "rank": 2 })),
        (HISTORY, json!({ "limit": 50 })),
    ];
    let answers = tools.map(|(tool, mut input)| {
        input["cluster"] = json!(cluster);
        input["window"] = json!("all");
        ask(echo, tool, &input)
    });
    // Sums of another order are rounded differently.
    let sql = format!(
        "SELECT count(*), count(DISTINCT event_id), min(event_id), round(sum(sum), 3), max(timestamp_ns)
         FROM events WHERE cluster_id = '{cluster}'"
    );
    let (row, note) = row(echo, &sql);
    assert_eq!(note, Value::Null);
    answers.into_iter().chain([row]).collect()
}

#[test]
#[needs(NIGHTLY, EXTENSIONS, POSTGRES)]
fn deleted_events_and_clusters_of_other_instances_are_answered_from_the_lake() {
    let postgres = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::new(postgres.catalog(), folder.path());
    let echo = lake.serve_with(&folder.path().join("lab.duckdb"), &AGE);
    replay_all(&recording("host-sleep-rank2"), &echo, "lab", "50");
    echo.caught_up();
    copied(&echo);
    let count = "SELECT count(*) FROM events";
    wait_for("the lake to be read", || row(&echo, count).1.is_null());
    let stored = metric(&echo, "echo_store_events_total");
    let kept = answers(&echo, "lab");
    let mut is_deleted = false;
    while !is_deleted {
        is_deleted = deleted(&echo) >= stored;
        assert_eq!(answers(&echo, "lab"), kept);
    }

    let other = lake.serve(&folder.path().join("prod.duckdb"));
    replay_all(&recording("gpu-extra-rank1"), &other, "prod", "50");
    other.caught_up();
    copied(&other);
    let input = json!({ "cluster": "prod", "window": "all", "limit": 5 });
    let history = ask(&echo, HISTORY, &input);
    assert_eq!(history["events"].as_array().unwrap().len(), 5, "{history}");
    let counts =
        "SELECT count(*) = count(DISTINCT event_id), count(DISTINCT cluster_id) FROM events";
    assert_eq!(row(&echo, counts).0, json!([true, 2]));
    let cost = ask(&echo, COST, &json!({ "window": "all" }));
    assert_eq!(cost["data_quality"]["note"], Value::Null, "{cost}");
    assert_nothing_of_the_lake_is_seen(&echo, &lake);

    // Metrics are those of the instance.
    let url = format!("http://{}/metrics", echo.http);
    let mut metrics = ureq::get(&url).call().unwrap();
    let metrics = metrics.body_mut().read_to_string().unwrap();
    assert!(!metrics.contains("\"prod\""), "{metrics}");

    postgres.crash();
    let (counted, note) = row(&echo, count);
    assert_eq!(counted, json!([0]));
    assert!(note.to_string().contains("lake"), "{note}");
    let sent = send(
        &sender(),
        &echo.otlp_http,
        "agent-1",
        2,
        &request(2, POINTS),
    );
    assert_eq!(sent, Sent::Acknowledged);
    let recent = ask(&echo, COST, &json!({ "cluster": "load", "window": "30s" }));
    let note = recent["data_quality"]["note"].to_string();
    assert!(!note.contains("lake"), "{note}");
    postgres.run();
    wait_for("the lake to be read again", || {
        row(&echo, counts).0 == json!([true, 3])
    });
}

/// SQL of users sees neither the tables nor the location of the lake.
fn assert_nothing_of_the_lake_is_seen(echo: &Echo, lake: &Lake) {
    for attack in [
        "SELECT * FROM duckdb_databases()",
        "SELECT * FROM duckdb_secrets()",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM duckdb_views()",
        "SELECT current_setting('allowed_directories')",
        "SELECT * FROM lake.events",
        "SELECT * FROM lake.main.event_rows",
        "SELECT * FROM event_rows",
        "SELECT * FROM hot_event_rows",
        "SELECT * FROM main.hot_event_rows",
        "SELECT * FROM __ducklake_metadata_lake.ducklake_metadata",
        "SELECT * FROM postgres_query('__ducklake_metadata_lake', 'SELECT 1')",
        "CALL postgres_execute('__ducklake_metadata_lake', 'DROP TABLE ducklake_snapshot')",
        "SELECT * FROM ducklake_list_files('lake', 'event_rows')",
        "SELECT * FROM read_parquet('**')",
        "SELECT filename FROM events",
        "USE lake",
        "DETACH lake",
        "DELETE FROM hot_event_rows",
    ] {
        let (status, answer) = echo.post(SQL, &json!({ "sql": attack }));
        assert!(status == 422 || status == 400, "{attack}: {answer}");
        let answer = answer.to_string();
        for secret in ["postgres:", "127.0.0.1", lake.data.as_str()] {
            assert!(!answer.contains(secret), "{attack}: {answer}");
        }
    }
}

#[test]
#[needs(NIGHTLY, EXTENSIONS, POSTGRES)]
fn each_acknowledged_event_is_counted_once_while_events_are_stored_copied_and_deleted() {
    let postgres = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::new(postgres.catalog(), folder.path());
    let echo = lake.serve_with(&folder.path().join("fleet.duckdb"), &AGE);
    let (begun, acknowledged) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        // A batch for each count, so that the counts can follow. It ends with this closure.
        let (permits, permitted) = sync_channel(1);
        let (begun, acknowledged, echo) = (&begun, &acknowledged, &echo);
        scope.spawn(move || {
            let sender = sender();
            for () in permitted {
                let batch = begun.fetch_add(1, Ordering::SeqCst) + 1;
                let body = request(batch, POINTS);
                let sent = send(&sender, &echo.otlp_http, "agent-1", batch, &body);
                // The test fails at the first count if one is missing.
                if sent == Sent::Acknowledged {
                    acknowledged.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        let counts = "SELECT count(*), count(DISTINCT value_int) FROM events";
        wait_for("the lake to be read", || row(echo, counts).1.is_null());
        let mut rounds = 0;
        while rounds < 20 || deleted(echo) < 1.0 {
            let _still_sending = permits.try_send(());
            let least = acknowledged.load(Ordering::SeqCst) * POINTS;
            let (counted, note) = row(echo, counts);
            let most = begun.load(Ordering::SeqCst) * POINTS;
            let all = counted[0].as_u64().unwrap();
            let is_right = least <= all && all <= most && counted[1] == all && note.is_null();
            assert!(is_right, "{least} to {most}: {counted} {note}");
            // Some rounds after the first deletion.
            if deleted(echo) > 0.0 || rounds < 10 {
                rounds += 1;
            }
        }
    });
    assert!(metric(&echo, "echo_lake_slices_total") > 1.0);
}
