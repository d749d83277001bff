//! An instance that reads a lake while others write to it.

use fleet_test_harness::NIGHTLY;
use serde_json::{Value, json};

use super::postgres::{POSTGRES, Postgres};
use crate::lake::reader::{Reader, answers, assert_answers};
use crate::lake::{EXTENSIONS, Lake, copied};
use crate::testbed::{Echo, recording, replay_all};

const SQL: &str = "fleet.cluster.run_analysis";

/// Password in the catalog, which the server does not ask for.
const PASSWORD: &str = "pa55-w0rd";

/// Waits until the reader shows what the instance has stored, and stops the instance. Returns its
/// answers about its cluster.
fn hand_over(echo: Echo, reader: &Reader, cluster: &str) -> Vec<(&'static str, Value, Value)> {
    reader.wait_for_copy(&echo, cluster);
    let answers = answers(&echo, cluster);
    assert_eq!(echo.terminate(), 0);
    answers
}

#[test]
#[needs(NIGHTLY, EXTENSIONS, POSTGRES)]
fn the_lake_answers_for_all_instances_as_each_does_for_its_clusters() {
    let postgres = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    let catalog = format!("{} password={PASSWORD}", postgres.catalog());
    let lake = Lake::new(catalog, folder.path());
    let replayed = |cluster: &str, name: &str| {
        let echo = lake.serve(&folder.path().join(format!("{cluster}.duckdb")));
        replay_all(&recording(name), &echo, cluster, "50");
        echo.caught_up();
        copied(&echo);
        echo
    };
    let lab = replayed("lab", "host-sleep-rank2");
    let reader = Reader::start(&lake);
    let mut own = hand_over(lab, &reader, "lab");
    let culprits = |cluster: Value| {
        let input = json!({ "cluster": cluster, "window": "all" });
        let mut found = reader.query("fleet.cluster.find_outlier_nodes", &input);
        found["outliers"].take()
    };
    assert_eq!(culprits(Value::Null)[0]["rank"], 2);
    own.extend(hand_over(
        replayed("prod", "gpu-extra-rank1"),
        &reader,
        "prod",
    ));
    assert_answers(&reader, own);
    let counts =
        "SELECT count(*) = count(DISTINCT event_id), count(DISTINCT cluster_id) FROM events";
    assert_eq!(reader.rows(counts), json!([[true, 2]]));

    let cost = reader.query("fleet.cluster.get_cost", &json!({ "window": "all" }));
    let by_cluster = cost["by_cluster"].as_array().unwrap();
    assert_eq!(by_cluster.len(), 2, "{cost}");
    assert_eq!(reader.get("/").0, 200);
    assert_eq!(reader.get("/readyz").0, 200);
    assert!(reader.get("/metrics").1.contains("echo_build_info"));

    assert_nothing_of_the_lake_is_seen(&reader, &lake);
    postgres.crash();
    let (status, refused) = reader.post("fleet.cluster.get_cost", &json!({ "window": "all" }));
    assert_eq!(status, 500, "{refused}");
    assert!(!refused.to_string().contains(PASSWORD), "{refused}");
    postgres.run();
    let again = reader.query("fleet.cluster.get_cost", &json!({ "window": "all" }));
    assert_eq!(again["by_cluster"], cost["by_cluster"]);
    let log = std::fs::read_to_string(reader.log.path()).unwrap();
    assert!(
        log.contains("Connection refused") || log.contains("terminat"),
        "{log}"
    );
    assert!(!log.contains(PASSWORD), "{log}");
}

/// SQL of users sees neither the tables nor the location or the credentials of the lake.
fn assert_nothing_of_the_lake_is_seen(reader: &Reader, lake: &Lake) {
    for attack in [
        "SELECT * FROM duckdb_databases()",
        "SELECT * FROM duckdb_secrets()",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM duckdb_views()",
        "SELECT * FROM duckdb_tables()",
        "SELECT * FROM duckdb_logs",
        "SELECT * FROM which_secret('s3://bucket/x', 's3')",
        "SELECT current_setting('allowed_directories')",
        "SELECT current_setting('secret_directory')",
        "SELECT current_database(), current_catalog()",
        "SELECT getenv('FLEET_ECHO_LAKE')",
        "SELECT * FROM lake.events",
        "SELECT * FROM lake.main.event_rows",
        "SELECT lake.main.event_rows.attrs FROM event_rows",
        "SELECT * FROM event_rows",
        "SELECT * FROM fleet.main.event_rows",
        "SELECT * FROM __ducklake_metadata_lake.ducklake_metadata",
        "SELECT * FROM postgres_query('__ducklake_metadata_lake', 'SELECT 1')",
        "SELECT * FROM postgres_scan('', 'public', 'ducklake_metadata')",
        "CALL postgres_execute('__ducklake_metadata_lake', 'DROP TABLE ducklake_snapshot')",
        "CALL ducklake_expire_snapshots('lake', older_than => now())",
        "SELECT * FROM ducklake_snapshots('lake')",
        "SELECT * FROM ducklake_list_files('lake', 'event_rows')",
        "SELECT * FROM ducklake_options('lake')",
        "SELECT * FROM read_parquet('**')",
        "SELECT * FROM glob('**')",
        "SELECT * FROM 'event_rows/*.parquet'",
        "SELECT * FROM information_schema.schemata",
        "SELECT filename FROM events",
        "SHOW DATABASES",
        "DESCRIBE lake.events",
        "EXPLAIN SELECT * FROM events",
        "PRAGMA database_list",
        "ATTACH 'x.duckdb'",
        "DETACH lake",
        "COPY events TO 'x.csv'",
        "DROP VIEW event_rows",
    ] {
        let (status, answer) = reader.post(SQL, &json!({ "sql": attack }));
        assert!(status == 422 || status == 400, "{attack}: {answer}");
        let answer = answer.to_string();
        for secret in [PASSWORD, "postgres:", "127.0.0.1", lake.data.as_str()] {
            assert!(!answer.contains(secret), "{attack}: {answer}");
        }
    }
}
