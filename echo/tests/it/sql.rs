//! SQL queries over HTTP, as a tool call and with `fleet-echo sql`.

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::thread;

use serde_json::{Value, json};

use crate::testbed::{ECHO, Echo, recording, replay_all, wait_for};

const SLOWEST: &str =
    "SELECT rank, lag_ms FROM verdicts WHERE finding = 'culprit' ORDER BY lag_ms DESC";

fn shell(echo: &Echo, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(ECHO)
        .args(["sql", "--server", &format!("http://{}", echo.http)])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

fn printed(echo: &Echo, arguments: &[&str], input: &str) -> String {
    let output = shell(echo, arguments, input);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn posted(echo: &Echo, path: &str, input: &Value) -> (u16, Value) {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .build();
    let mut response = ureq::Agent::new_with_config(config)
        .post(format!("http://{}{path}", echo.http))
        .send_json(input)
        .unwrap();
    let status = response.status().as_u16();
    (status, response.body_mut().read_json().unwrap())
}

#[test]
fn a_select_returns_the_same_rows_over_http_as_a_tool_and_from_the_shell() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    replay_all(&recording("host-sleep-rank2"), &echo, "lab", "max");
    echo.caught_up();

    let (status, tool) = echo.post("fleet.cluster.run_analysis", &json!({ "sql": SLOWEST }));
    assert_eq!(status, 200, "{tool}");
    assert_eq!(
        tool["columns"][0],
        json!({ "name": "rank", "type": "UINTEGER" })
    );
    assert_eq!(
        (&tool["row_count"], &tool["rows"][0][0]),
        (&json!(1), &json!(2))
    );
    let rows = |answer: &Value| answer["rows"].clone();
    let (status, http) = posted(&echo, "/api/v1/sql", &json!({ "sql": SLOWEST }));
    assert_eq!((status, rows(&http)), (200, rows(&tool)));

    let file = folder.path().join("slowest.sql");
    fs::write(&file, SLOWEST).unwrap();
    let file = file.display().to_string();
    for (arguments, input) in [
        (vec![SLOWEST], ""),
        (vec!["--file", &file], ""),
        (vec!["-"], SLOWEST),
        (vec![], SLOWEST),
    ] {
        let table = printed(&echo, &arguments, input);
        let mut lines = table.lines().map(str::split_whitespace);
        let header: Vec<&str> = lines.next().unwrap().collect();
        assert_eq!(header, ["rank", "lag_ms"], "{arguments:?}: {table}");
        let first = lines.next().and_then(|mut row| row.next());
        assert_eq!(first, Some("2"), "{arguments:?}: {table}");
        assert!(table.ends_with("\n1 row\n"), "{arguments:?}: {table}");
        let json = printed(&echo, &[&arguments[..], &["--json"]].concat(), input);
        let json: Value = serde_json::from_str(&json).unwrap();
        let tool_rows = rows(&tool);
        let objects = tool_rows.as_array().unwrap().iter();
        let objects = objects.map(|row| json!({ "rank": row[0], "lag_ms": row[1] }));
        assert_eq!(rows(&json), objects.collect::<Value>());
        let jsonl = printed(&echo, &[&arguments[..], &["-o", "jsonl"]].concat(), input);
        let (first, rest) = jsonl.split_once('\n').unwrap();
        let first: Value = serde_json::from_str(first).unwrap();
        assert_eq!((&first, rest), (&json["rows"][0], ""));
    }
    let views = printed(&echo, &["--views"], "");
    assert!(views.contains("\nranks: Senders of events: one"), "{views}");
    assert!(views.contains("milliseconds"), "{views}");
    let views = printed(&echo, &["--views", "-o", "csv"], "");
    assert!(views.starts_with("view,column,type,comment\n"), "{views}");
    assert!(views.contains("\nranks,"), "{views}");
}

#[test]
fn operations_of_a_replayed_job_join_by_sequence_numbers_over_the_views() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    replay_all(&recording("host-sleep-rank2"), &echo, "lab", "max");
    echo.caught_up();
    let rows = |sql: &str| {
        let (status, answer) = posted(&echo, "/api/v1/sql", &json!({ "sql": sql }));
        assert_eq!(status, 200, "{sql}: {answer}");
        answer["rows"].clone()
    };
    let sizes =
        "SELECT DISTINCT datatype, comm_nranks FROM operation_classes WHERE op = 'AllReduce'";
    assert_eq!(rows(sizes), json!([["float32", 4]]));
    let joined = "SELECT rank, count(*)::BIGINT > 0, bool_and(n.bytes > 0), bool_and(n.n_ops > 0) \
         FROM operation_classes n JOIN collectives c USING (cluster_id, node_id, rank, comm_id, op) \
         WHERE n.seq_first <= c.seq_last AND c.seq_first <= n.seq_last AND op = 'AllReduce' \
         GROUP BY rank ORDER BY rank";
    let expected: Vec<Value> = (0..4).map(|rank| json!([rank, true, true, true])).collect();
    assert_eq!(rows(joined), json!(expected));
    // The recording has no probes of TCP.
    assert_eq!(
        rows("SELECT count(*)::BIGINT FROM tcp_retransmits"),
        json!([[0]])
    );
    assert_eq!(echo.terminate(), 0);
}

#[test]
fn rejected_sql_returns_the_reason_and_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    for (sql, status, part) in [
        (
            "DROP TABLE event_rows",
            422,
            "only SELECT statements are allowed",
        ),
        ("SELECT * FROM event_rows", 422, "the views are verdicts, "),
        ("SELECT repeat('x', 10)", 422, "the function repeat"),
        ("SELECT lag FROM verdicts", 400, "lag_ms"),
        ("SELECT rank FORM verdicts", 400, "at byte"),
    ] {
        let (code, body) = posted(&echo, "/api/v1/sql", &json!({ "sql": sql }));
        assert_eq!(code, status, "{sql}: {body}");
        assert!(body.to_string().contains(part), "{sql}: {body}");
        assert!(
            !body.to_string().contains(folder.path().to_str().unwrap()),
            "{body}"
        );
        let output = shell(&echo, &[sql], "");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{sql}: {stderr}");
        assert!(stderr.contains(part), "{sql}: {stderr}");
    }
    let (status, body) = posted(&echo, "/api/v1/sql", &json!({ "query": "SELECT 1" }));
    let mut details = body["error"]["details"].as_array().unwrap().iter();
    let is_named = details.any(|one| one["pointer"] == "/query");
    assert_eq!((status, is_named), (400, true), "{body}");
    assert_eq!(echo.terminate(), 0);
}

/// Returns the state of a process, and its parent; `None` if it is gone. Its name is in brackets before them.
fn state(pid: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let is_statement = stat.contains("(fleet-echo-sql) ");
    let mut words = stat.rsplit_once(") ")?.1.split(' ');
    let (state, parent) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
    is_statement.then_some((state, parent))
}

#[test]
fn the_process_of_a_statement_ends_with_a_server_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("fleet.duckdb");
    let echo = Echo::serve_with(&db, &["--query-deadline", "59m", "--idle-timeout", "1h"]);
    let url = format!(
        "http://{}/api/v1/tools/fleet.cluster.run_analysis",
        echo.http
    );
    let endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c";
    let caller = thread::spawn(move || {
        // Broken when the server is killed.
        let _broken = ureq::post(&url).send_json(json!({ "sql": endless }));
    });
    let started = || {
        let pids = fs::read_dir("/proc").unwrap();
        let mut pids = pids.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        pids.find(|pid| state(*pid).is_some_and(|(_, parent)| parent == echo.pid()))
    };
    wait_for("the process of the statement", || started().is_some());
    let statement = started().unwrap();
    echo.kill();
    wait_for("the process of the statement to end", || {
        state(statement).is_none_or(|(state, _)| state == "Z")
    });
    caller.join().unwrap();
}
