//! A fleet of three instances, seen through their lake, answers as one instance with all clusters.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fleet_test_harness::NIGHTLY;
use serde_json::{Value, json};

use super::postgres::{POSTGRES, Postgres};
use crate::lake::reader::{Reader, answer};
use crate::lake::{EXTENSIONS, Lake, copied};
use crate::report::wait_until_closed;
use crate::testbed::{ECHO, Echo, recording, replay_all};

/// Clusters, each of an instance, with their recordings.
const FLEET: [(&str, &str); 3] = [
    ("lab", "host-sleep-rank2"),
    ("prod", "gpu-extra-rank1"),
    ("test", "healthy"),
];

/// Flags with which hours are closed as soon as they are over.
const NO_GRACE: [&str; 2] = ["--cost-grace", "0s"];

/// Largest relative difference of sums of the same numbers in another order.
const ROUNDING: f64 = 1e-12;

/// Speed of the replays.
const SPEED: &str = "50";

fn database(folder: &Path, cluster: &str) -> PathBuf {
    folder.join(format!("{cluster}.duckdb"))
}

/// Waits until the reader, which is started with the first instance, shows what an instance has
/// stored about its cluster. Stops the instance.
fn hand_over(echo: Echo, (lake, reader): (&Lake, &mut Option<Reader>), cluster: &str) {
    copied(&echo);
    let reader = reader.get_or_insert_with(|| Reader::start(lake));
    reader.wait_for_copy(&echo, cluster);
    assert_eq!(echo.terminate(), 0);
}

/// Questions about all ranks of a cluster.
fn explanations(cluster: &str) -> impl Iterator<Item = (&'static str, Value)> {
    (0..4).map(move |rank| {
        let input = json!({ "cluster": cluster, "rank": rank, "window": "all" });
        ("fleet.cluster.explain_rank", input)
    })
}

/// Fails where two answers differ. Sums of other orders may be rounded differently.
fn assert_equal(found: &Value, expected: &Value, path: &str) {
    match (found, expected) {
        (Value::Object(a), Value::Object(b)) => {
            let keys = |of: &serde_json::Map<String, Value>| -> Vec<String> {
                of.keys().cloned().collect()
            };
            assert_eq!(keys(a), keys(b), "{path}");
            for (key, value) in a {
                assert_equal(value, &b[key], &format!("{path}.{key}"));
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len(), "{path}: {found} {expected}");
            for (index, (one, other)) in a.iter().zip(b).enumerate() {
                assert_equal(one, other, &format!("{path}[{index}]"));
            }
        }
        _ if found.is_f64() && expected.is_f64() => {
            let (a, b) = (found.as_f64().unwrap(), expected.as_f64().unwrap());
            let tolerance = ROUNDING * a.abs().max(b.abs());
            assert!((a - b).abs() <= tolerance, "{path}: {a} {b}");
        }
        _ => assert_eq!(found, expected, "{path}"),
    }
}

/// Runs `fleet-echo report` for the day, of all clusters or of one.
fn report(http: &str, cluster: Option<&str>, flags: &[&str]) -> Output {
    let mut report = Command::new(ECHO);
    report.args(["report", "--server", &format!("http://{http}")]);
    report.args(["--day", "2026-11-01"]).args(flags);
    if let Some(cluster) = cluster {
        report.args(["--cluster", cluster]);
    }
    report.output().unwrap()
}

/// Returns the report of the day as CSV.
fn costs(http: &str, cluster: Option<&str>) -> String {
    let output = report(http, cluster, &["--format", "csv"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the sums of the day, and whether its hours are closed.
fn sums(http: &str, flags: &[&str]) -> (Value, bool) {
    let output = report(http, None, &[&["--format", "json"], flags].concat());
    let mut answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let is_closed = answer["metadata"]["is_closed"].as_bool().unwrap();
    (answer["summary"].take(), is_closed)
}

#[test]
#[needs(NIGHTLY, EXTENSIONS, POSTGRES)]
fn three_instances_answer_through_their_lake_as_one_with_all_clusters() {
    let postgres = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::new(postgres.catalog(), folder.path());
    let mut reader = None;
    let mut explained = Vec::new();
    for (cluster, name) in FLEET {
        let echo = lake.serve_with(&database(folder.path(), cluster), &NO_GRACE);
        replay_all(&recording(name), &echo, cluster, SPEED);
        echo.caught_up();
        wait_until_closed(&echo);
        // Agents judge themselves when a response brings limits, so two replays differ in when.
        let own = explanations(cluster).map(|(tool, input)| answer(&echo, tool, &input));
        explained.extend(own);
        hand_over(echo, (&lake, &mut reader), cluster);
    }
    let reader = reader.unwrap();
    let one = Echo::serve_with(&database(folder.path(), "all"), &NO_GRACE);
    for (cluster, name) in FLEET {
        replay_all(&recording(name), &one, cluster, SPEED);
    }
    one.caught_up();
    wait_until_closed(&one);
    let clusters = [None, Some("lab"), Some("prod"), Some("test")];
    for cluster in clusters {
        for tool in ["find_outlier_nodes", "get_cost"] {
            let tool = format!("fleet.cluster.{tool}");
            let mut input = json!({ "window": "all" });
            if let Some(cluster) = cluster {
                input["cluster"] = json!(cluster);
            }
            let (found, expected) = (reader.query(&tool, &input), answer(&one, &tool, &input));
            assert_equal(&found, &expected, &format!("{tool} {cluster:?} "));
        }
        assert_eq!(costs(&reader.http, cluster), costs(&one.http, cluster));
    }
    let asked = FLEET.iter().flat_map(|(cluster, _)| explanations(cluster));
    for ((tool, input), expected) in asked.zip(&explained) {
        let found = reader.query(tool, &input);
        assert_equal(&found, expected, &format!("{tool} {input} "));
    }
    // The report of the fleet has the rows of all clusters.
    let fleet = costs(&reader.http, None);
    let rows = FLEET.map(|(cluster, _)| costs(&reader.http, Some(cluster)).lines().count() - 1);
    assert_eq!(fleet.lines().count() - 1, rows.iter().sum::<usize>());
    assert!(rows.iter().all(|rows| *rows >= 4), "{rows:?}");
}

#[test]
#[needs(NIGHTLY, EXTENSIONS, POSTGRES)]
fn an_hour_that_one_instance_has_not_closed_is_open_for_the_fleet_and_counted_once() {
    let postgres = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::new(postgres.catalog(), folder.path());
    let start = |cluster: &str, name: &str, flags: &[&str]| {
        let echo = lake.serve_with(&database(folder.path(), cluster), flags);
        replay_all(&recording(name), &echo, cluster, SPEED);
        echo.caught_up();
        echo
    };
    let closed = start("lab", "host-sleep-rank2", &NO_GRACE);
    wait_until_closed(&closed);
    // An instance closes an hour that has ended after its grace, of 15 minutes.
    let open = start("prod", "gpu-extra-rank1", &[]);
    copied(&closed);
    copied(&open);
    let reader = Reader::start(&lake);
    reader.wait_for_copy(&closed, "lab");
    reader.wait_for_copy(&open, "prod");
    let one = Echo::serve_with(&database(folder.path(), "all"), &NO_GRACE);
    for (cluster, name) in &FLEET[..2] {
        replay_all(&recording(name), &one, cluster, SPEED);
    }
    one.caught_up();
    wait_until_closed(&one);

    let tool = "fleet.cluster.get_cost";
    let input = json!({ "window": "all" });
    let expected = answer(&one, tool, &input);
    assert_equal(&reader.query(tool, &input), &expected, "reader ");
    let (_, status) = lake.command("status");
    let instances = status["instances"].as_array().unwrap();
    let has_open = instances.iter().filter(|one| one["open_since_ns"].is_i64());
    assert_eq!((instances.len(), has_open.count()), (2, 1), "{status}");
    let (whole, _) = sums(&one.http, &[]);
    let refused = report(&reader.http, None, &[]);
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(stderr.contains("not closed yet"), "{stderr}");
    let (preliminary, is_closed) = sums(&reader.http, &["--allow-open"]);
    assert_equal(&preliminary, &whole, "sums ");
    assert!(!is_closed);
    let lab = Some("lab");
    assert_eq!(costs(&reader.http, lab), costs(&one.http, lab));
}

/// Sets the GPU of all culprits in the database of a stopped instance: recordings do not have it.
#[expect(clippy::disallowed_methods, reason = "the instance is stopped")]
fn set_gpu(db: &Path, uuid: &str) {
    let connection = duckdb::Connection::open(db).unwrap();
    let set = "UPDATE verdict_rows SET gpu_uuid = ? WHERE finding = 'culprit'";
    assert!(connection.execute(set, [uuid]).unwrap() > 0);
}

#[test]
#[needs(NIGHTLY, EXTENSIONS, POSTGRES)]
fn incidents_of_a_gpu_that_moved_to_the_cluster_of_another_instance_count_together() {
    let postgres = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::new(postgres.catalog(), folder.path());
    let mut reader = None;
    for (cluster, name) in [FLEET[0], ("prod", "mesh-host-sleep-rank3")] {
        let db = database(folder.path(), cluster);
        let echo = Echo::serve(&db);
        replay_all(&recording(name), &echo, cluster, SPEED);
        echo.caught_up();
        assert_eq!(echo.terminate(), 0);
        set_gpu(&db, "GPU-1");
        hand_over(lake.serve(&db), (&lake, &mut reader), cluster);
    }
    let answer = reader.unwrap().query(
        "fleet.cluster.find_outlier_nodes",
        &json!({ "window": "all" }),
    );
    let outliers = answer["outliers"].as_array().unwrap();
    let counts = outliers
        .iter()
        .filter_map(|one| one["recurrence"]["gpu_incidents"].as_u64());
    assert_eq!(counts.max(), Some(2), "{answer}");
    assert!(
        answer.to_string().contains("in 2 jobs of 2 clusters"),
        "{answer}"
    );
}
