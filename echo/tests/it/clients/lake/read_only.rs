//! An instance that reads a lake: its answers are those of the instances that wrote to it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::postgres::Postgres;
use super::{Lake, copied};
use crate::testbed::{ECHO, Echo, recording, replay_all, repository, wait_for};

const SQL: &str = "fleet.cluster.run_analysis";

/// Password in the catalog, which the server does not ask for.
const PASSWORD: &str = "pa55-w0rd";

/// A running `fleet-echo serve --read-only`, killed on drop.
pub(super) struct Reader {
    child: Child,
    /// Address of the HTTP listener.
    pub(super) http: String,
    log: NamedTempFile,
}

impl Reader {
    pub(super) fn start(lake: &Lake) -> Self {
        let log = NamedTempFile::new().unwrap();
        let mut serve = Command::new(ECHO);
        serve.args(["serve", "--read-only", "--insecure-no-tls", "--log", "info"]);
        serve.args(["--http-listen", "127.0.0.1:0", "--rates"]);
        serve.arg(repository("testdata/rates.yaml"));
        let serve = serve.args(&lake.flags).stdout(Stdio::piped());
        let mut child = serve.stderr(log.reopen().unwrap()).spawn().unwrap();
        let mut ready = String::new();
        let out = child.stdout.as_mut().unwrap();
        BufReader::new(out).read_line(&mut ready).unwrap();
        let mut words = ready.split_whitespace();
        let http = words.find_map(|word| word.strip_prefix("http="));
        let http = http.unwrap_or_else(|| panic!("{ready:?}")).to_owned();
        Self { child, http, log }
    }

    /// Returns status and body of a page.
    pub(super) fn get(&self, path: &str) -> (u16, String) {
        let config = ureq::Agent::config_builder().http_status_as_error(false);
        let agent = ureq::Agent::new_with_config(config.build());
        let url = format!("http://{}{path}", self.http);
        let mut response = agent.get(&url).call().unwrap();
        (
            response.status().as_u16(),
            response.body_mut().read_to_string().unwrap(),
        )
    }

    /// Calls a tool. Returns status and body.
    fn post(&self, tool: &str, input: &Value) -> (u16, Value) {
        let config = ureq::Agent::config_builder().http_status_as_error(false);
        let agent = ureq::Agent::new_with_config(config.build());
        let url = format!("http://{}/api/v1/tools/{tool}", self.http);
        let mut response = agent.post(&url).send_json(input).unwrap();
        (
            response.status().as_u16(),
            response.body_mut().read_json().unwrap(),
        )
    }

    /// Calls a tool, which must succeed.
    pub(super) fn query(&self, tool: &str, input: &Value) -> Value {
        let (status, answer) = self.post(tool, input);
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// Returns the rows of a statement.
    pub(super) fn rows(&self, sql: &str) -> Value {
        self.query(SQL, &json!({ "sql": sql }))["rows"].take()
    }

    /// Waits until it shows what a running instance has stored about its cluster. What an instance
    /// has not copied when it is stopped is copied by its next start.
    pub(super) fn wait_for_copy(&self, echo: &Echo, cluster: &str) {
        wait_for("the reader to see what the instance stored", || {
            stored(|tool, input| answer(echo, tool, input), cluster)
                == stored(|tool, input| self.query(tool, input), cluster)
        });
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // It has ended if a test stopped it.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Calls a tool of an instance, which must succeed.
pub(super) fn answer(echo: &Echo, tool: &str, input: &Value) -> Value {
    let (status, answer) = echo.post(tool, input);
    assert_eq!(status, 200, "{answer}");
    answer
}

/// What is stored about one cluster: events, states of incidents, lost time and closed hours.
fn stored(query: impl Fn(&str, &Value) -> Value, cluster: &str) -> Value {
    let [events, incidents, lost, hours] = [
        ("count(*)", "events"),
        ("[count(*), max(revision)]", "verdict_history"),
        ("[count(*), round(sum(lost_gpu_ms), 3)]", "lost_time"),
        ("[count(*), max(revision)]", "cost_hour_history"),
    ]
    .map(|(rows, view)| format!("(SELECT {rows} FROM {view} WHERE cluster_id = '{cluster}')"));
    let sql = format!("SELECT {events}, {incidents}, {lost}, {hours}");
    query(SQL, &json!({ "sql": sql }))["rows"][0].take()
}

/// Waits until the reader shows what the instance has stored, and stops the instance. Returns its
/// answers about its cluster.
fn hand_over(echo: Echo, reader: &Reader, cluster: &str) -> Vec<(&'static str, Value, Value)> {
    reader.wait_for_copy(&echo, cluster);
    let tools = [
        ("fleet.cluster.find_outlier_nodes", json!({})),
        ("fleet.cluster.get_cost", json!({})),
        ("fleet.cluster.explain_rank", json!({ "rank": 1 })),
        ("fleet.cluster.explain_rank", json!({ "rank": 2 })),
        ("fleet.cluster.event_history", json!({ "limit": 50 })),
    ];
    let answers = tools.map(|(tool, mut input)| {
        input["cluster"] = json!(cluster);
        input["window"] = json!("all");
        let answer = answer(&echo, tool, &input);
        (tool, input, answer)
    });
    assert_eq!(echo.terminate(), 0);
    answers.into()
}

/// The numbers of events distinguish the instances in a lake.
fn without_event_ids(mut answer: Value) -> Value {
    let events = answer.get_mut("events").and_then(Value::as_array_mut);
    for event in events.into_iter().flatten() {
        event.as_object_mut().unwrap().remove("event_id");
    }
    if let Some(answer) = answer.as_object_mut() {
        answer.remove("next_cursor");
    }
    answer
}

#[test]
#[ignore = "installs packages: make clients"]
fn the_lake_answers_for_all_instances_as_each_does_for_its_clusters() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
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
    for (tool, input, expected) in own {
        let found = reader.query(tool, &input);
        assert_eq!(
            without_event_ids(found),
            without_event_ids(expected),
            "{tool} {input}"
        );
    }
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
