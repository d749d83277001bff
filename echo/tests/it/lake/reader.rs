//! An instance that reads a lake: its answers are those of the instance that wrote it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::{EXTENSIONS, Lake, copied, metric};
use crate::testbed::{ECHO, Echo, recording, replay_all, repository, wait_for};

const SQL: &str = "fleet.cluster.run_analysis";

/// A running `fleet-echo serve --read-only`, killed on drop.
pub(crate) struct Reader {
    child: Child,
    /// Address of the HTTP listener.
    pub(crate) http: String,
    pub(crate) log: NamedTempFile,
}

impl Reader {
    pub(crate) fn start(lake: &Lake) -> Self {
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
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
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
    pub(crate) fn post(&self, tool: &str, input: &Value) -> (u16, Value) {
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
    pub(crate) fn query(&self, tool: &str, input: &Value) -> Value {
        let (status, answer) = self.post(tool, input);
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// Returns the rows of a statement.
    pub(crate) fn rows(&self, sql: &str) -> Value {
        self.query(SQL, &json!({ "sql": sql }))["rows"].take()
    }

    /// Waits until it shows what a running instance has stored about its cluster. What an instance
    /// has not copied when it is stopped is copied by its next start.
    pub(crate) fn wait_for_copy(&self, echo: &Echo, cluster: &str) {
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
pub(crate) fn answer(echo: &Echo, tool: &str, input: &Value) -> Value {
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

/// Returns the answers of an instance about its cluster, each with tool and input.
pub(crate) fn answers(echo: &Echo, cluster: &str) -> Vec<(&'static str, Value, Value)> {
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
        let answer = answer(echo, tool, &input);
        (tool, input, answer)
    });
    answers.into()
}

/// The numbers of events distinguish the instances in a lake.
pub(crate) fn without_event_ids(mut answer: Value) -> Value {
    let events = answer.get_mut("events").and_then(Value::as_array_mut);
    for event in events.into_iter().flatten() {
        event.as_object_mut().unwrap().remove("event_id");
    }
    if let Some(answer) = answer.as_object_mut() {
        answer.remove("next_cursor");
    }
    answer
}

/// Asserts that the reader answers as the instances did.
pub(crate) fn assert_answers(reader: &Reader, own: Vec<(&str, Value, Value)>) {
    for (tool, input, expected) in own {
        let found = reader.query(tool, &input);
        assert_eq!(
            without_event_ids(found),
            without_event_ids(expected),
            "{tool} {input}"
        );
    }
}

/// Fills the database of a cluster, and returns its answers once the lake has all that it stored.
/// What an instance has not copied when it stops is copied by its next start.
fn copied_answers(lake: &Lake, db: &Path, name: &str) -> Vec<(&'static str, Value, Value)> {
    let cluster = db.file_stem().unwrap().to_str().unwrap();
    let echo = lake.serve(db);
    replay_all(&recording(name), &echo, cluster, "50");
    echo.caught_up();
    copied(&echo);
    let answers = answers(&echo, cluster);
    let own = stored(|tool, input| answer(&echo, tool, input), cluster);
    assert_eq!(echo.terminate(), 0);
    let is_copied = || {
        let reader = Reader::start(lake);
        stored(|tool, input| reader.query(tool, input), cluster) == own
    };
    while !is_copied() {
        let echo = lake.serve(db);
        wait_for("a commit to the lake", || {
            metric(&echo, "echo_lake_slices_total") > 0.0
        });
        assert_eq!(echo.terminate(), 0);
    }
    answers
}

#[test]
#[needs(EXTENSIONS)]
fn the_lake_answers_as_the_instances_that_wrote_it() {
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::in_folder(folder.path());
    let mut own = Vec::new();
    for (cluster, name) in [("lab", "host-sleep-rank2"), ("prod", "gpu-extra-rank1")] {
        let db = folder.path().join(cluster).with_extension("duckdb");
        own.extend(copied_answers(&lake, &db, name));
    }
    let reader = Reader::start(&lake);
    assert_answers(&reader, own);
    let counts =
        "SELECT count(*) = count(DISTINCT event_id), count(DISTINCT cluster_id) FROM events";
    assert_eq!(reader.rows(counts), json!([[true, 2]]));
}
