//! Echo as it is meant to be run: encrypted, with tokens for whoever sends and whoever asks, and a line for every attempt.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use serde_json::Value;

use self::site::{Site, metrics, run, said};
use crate::testbed::{ECHO, Echo, agent, recording, wait_for};

pub(crate) mod issuer;
mod site;

#[test]
fn certified_agents_send_and_known_readers_ask() {
    let site = Site::new();
    let echo = site.serve(&["--client-ca", &site.text("tls/ca.pem")]);
    for output in site.replay(&echo, "lab") {
        assert!(output.status.success(), "{}", said(&output));
    }
    wait_for("the verdict", || {
        let question = ["outliers", "--cluster", "lab", "--window", "all"];
        said(&site.ask(&echo, Some("grafana"), &question)).contains("node-2")
    });
    assert_eq!(echo.terminate(), 0);
}

#[test]
fn a_token_of_one_cluster_writes_into_no_other() {
    let site = Site::new();
    let echo = site.serve(&["--client-ca", &site.text("tls/ca.pem")]);
    let replayed = site.replay(&echo, "other");
    assert_all_was_forbidden(&site, &echo, &replayed[0]);
    assert_eq!(echo.terminate(), 0);
}

/// Nothing was stored of what somebody sent, and it is written down that he may not.
#[track_caller]
fn assert_all_was_forbidden(site: &Site, echo: &Echo, sent: &Output) {
    let question = ["sql", "SELECT count(*) FROM events", "--json"];
    let output = site.ask(echo, Some("grafana"), &question);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let none = serde_json::json!([[0]]);
    assert_eq!(answer["rows"], none, "{}", said(sent));
    let is_forbidden = |line: &Value| line["outcome"] == "forbidden";
    assert!(site.audit().iter().any(is_forbidden), "{}", said(sent));
}

#[test]
fn nobody_else_asks_and_all_of_it_is_written_down() {
    let site = Site::new();
    let echo = site.serve(&[]);
    for (token, arguments, part) in [
        (
            None,
            ["cost", "--cluster", "lab"].as_slice(),
            "missing token",
        ),
        (
            Some("agents"),
            &["cost", "--cluster", "lab"],
            "but not query",
        ),
        (Some("tenant"), &["sql", "SELECT 1"], "no such tool"),
        (
            Some("tenant"),
            &["cost", "--cluster", "other"],
            "no such cluster",
        ),
    ] {
        let output = site.ask(&echo, token, arguments);
        assert!(!output.status.success());
        assert!(
            said(&output).contains(part),
            "{arguments:?}: {}",
            said(&output)
        );
    }
    // A gate that is not let in is no pass.
    let gate = ["assert", "outliers", "--cluster", "lab", "--max", "0"];
    for token in [None, Some("agents")] {
        let output = site.ask(&echo, token, &gate);
        assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    }
    let fine = site.ask(&echo, Some("grafana"), &["cost", "--window", "all"]);
    assert!(fine.status.success(), "{}", said(&fine));
    let lines = site.audit();
    for (principal, outcome) in [
        (Some("grafana"), "ok"),
        (Some("agents"), "forbidden"),
        (Some("tenant"), "not_found"),
        (None, "unauthenticated"),
    ] {
        let is =
            |line: &&Value| line["principal"].as_str() == principal && line["outcome"] == outcome;
        assert!(
            lines.iter().any(|line| is(&line)),
            "{principal:?} {outcome}: {lines:?}"
        );
    }
    let text = std::fs::read_to_string(site.path("audit.jsonl")).unwrap();
    for name in ["grafana", "agents", "tenant"] {
        let token = std::fs::read_to_string(site.path(name)).unwrap();
        assert!(!text.contains(&token), "a token was written down");
    }
    assert_eq!(echo.terminate(), 0);
}

#[test]
fn an_agent_sends_for_the_node_in_its_certificate_only() {
    let site = Site::new();
    let echo = site.serve(&["--client-ca", &site.text("tls/ca.pem")]);
    let replayed = Command::new(agent())
        .arg("replay")
        .arg(recording("host-sleep-rank2"))
        .args(["--endpoint", &format!("https://{}", echo.otlp)])
        .args([
            "--cluster",
            "lab",
            "--node-per-rank",
            "--only-rank",
            "1",
            "--speed",
            "50",
        ])
        .args(["--tls-ca", &site.text("tls/ca.pem")])
        .args(["--tls-cert", &site.text("tls/agent-node-3.pem")])
        .args(["--tls-key", &site.text("tls/agent-node-3-key.pem")])
        .args(["--token-file", &site.text("agents")])
        .output()
        .unwrap();
    assert_all_was_forbidden(&site, &echo, &replayed);
    assert_eq!(echo.terminate(), 0);
}

#[test]
fn certificates_and_tokens_change_under_load_without_a_failed_request() {
    let site = Site::new();
    let echo = site.serve(&[]);
    let (stop, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    let question = ["outliers", "--window", "all"];
    let token = std::fs::read_to_string(site.path("grafana")).unwrap();
    let before = std::fs::read_to_string(site.path("tls/ca.pem")).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    let output = Command::new(ECHO)
                        .args(question)
                        .args(["--server", &format!("https://{}", echo.http)])
                        .args(["--tls-ca", &site.text("both.pem"), "--token", &token])
                        .output()
                        .unwrap();
                    assert!(output.status.success(), "{}", said(&output));
                    asked.fetch_add(1, Relaxed);
                }
            });
        }
        std::fs::write(site.path("both.pem"), &before).unwrap();
        wait_for("questions", || asked.load(Relaxed) > 5);
        // The next authority is trusted before its certificate is shown, as in every rotation.
        let other = tempfile::tempdir().unwrap();
        run(&["dev-cert", "--dir", &other.path().display().to_string()]);
        let after = std::fs::read_to_string(other.path().join("ca.pem")).unwrap();
        std::fs::write(site.path("both.pem"), before.clone() + &after).unwrap();
        for name in ["cert.pem", "key.pem"] {
            std::fs::copy(other.path().join(name), site.path("tls").join(name)).unwrap();
        }
        echo.signal("HUP");
        let served = |authority: &str| {
            std::fs::write(site.path("one.pem"), authority).unwrap();
            let mut command = Command::new(ECHO);
            command
                .args(question)
                .args(["--server", &format!("https://{}", echo.http)])
                .args(["--tls-ca", &site.text("one.pem"), "--token", &token]);
            command.output().unwrap().status.success()
        };
        wait_for("the new certificate", || served(&after));
        assert!(!served(&before));
        // What cannot be used leaves in force what was there.
        let n_asked = asked.load(Relaxed);
        std::fs::write(site.path("tls/cert.pem"), "garbage").unwrap();
        std::fs::write(site.path("access.yaml"), "tokens: 5").unwrap();
        echo.signal("HUP");
        let failing = || {
            let metrics = metrics(&echo, &token);
            ["certificate", "access"].iter().all(|source| {
                metrics.contains(&format!(
                    "echo_config_reload_failing{{source=\"{source}\"}} 1"
                ))
            })
        };
        wait_for("the broken files to be noticed", failing);
        wait_for("more questions", || asked.load(Relaxed) > n_asked + 5);
        stop.store(true, Relaxed);
    });
    assert_eq!(echo.terminate(), 0);
}

/// Takes for ever, as far as a test is concerned.
const SLOW: &str = "SELECT count(*) FROM range(1000000) a, range(1000000) b";

#[test]
fn whoever_hangs_up_stops_the_query_and_leaves_one_line_by_every_way_of_asking() {
    let site = Site::new();
    let echo = site.serve(&["--query-deadline", "1m"]);
    let token = std::fs::read_to_string(site.path("grafana")).unwrap();
    let server = format!("https://{}", echo.http);
    let sql = serde_json::json!({ "sql": SLOW });
    let call = serde_json::json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "fleet.cluster.run_analysis", "arguments": sql },
    });
    let curl = |version: &str, path: &str, body: &Value| {
        let mut command = Command::new("curl");
        command
            .args(["--silent", version, "--cacert", &site.text("tls/ca.pem")])
            .args(["--header", &format!("Authorization: Bearer {token}")])
            .args(["--header", "Content-Type: application/json"])
            .args(["--header", "Accept: application/json, text/event-stream"])
            .args(["--data", &body.to_string(), &format!("{server}{path}")]);
        command
    };
    let mut proxy = Command::new(ECHO);
    proxy
        .args(["mcp", "--stdio", "--server", &server, "--token", &token])
        .args(["--tls-ca", &site.text("tls/ca.pem")]);
    let is_running = |expected: &str| {
        let line = format!("echo_query_in_flight {expected}");
        metrics(&echo, &token).lines().any(|found| found == line)
    };
    let n_cancelled = || {
        let lines = site.audit();
        lines
            .iter()
            .filter(|line| line["outcome"] == "cancelled")
            .count()
    };
    let ways = [
        curl("--http1.1", "/api/v1/sql", &sql),
        curl("--http2", "/api/v1/sql", &sql),
        curl("--http1.1", "/mcp", &call),
        curl("--http2", "/mcp/compat", &call),
        proxy,
    ];
    for (number, mut way) in ways.into_iter().enumerate() {
        let mut asking = way
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = asking.stdin.take().unwrap();
        // Only the proxy reads it.
        let _unread = writeln!(input, "{call}");
        wait_for("the query to run", || is_running("1.0"));
        assert_eq!(n_cancelled(), number);
        asking.kill().unwrap();
        asking.wait().unwrap();
        wait_for("the query to stop", || is_running("0.0"));
        wait_for("its line", || n_cancelled() == number + 1);
    }
    assert_eq!(echo.terminate(), 0);
}

#[test]
fn a_foreign_name_is_refused_in_http_1_and_in_http_2() {
    let site = Site::new();
    let echo = site.serve(&[]);
    let token = std::fs::read_to_string(site.path("grafana")).unwrap();
    let status = |version: &str, name: &str| {
        // In HTTP/2 curl sends the header as `:authority`, which no header `host` comes with.
        let output = Command::new("curl")
            .args(["--silent", version, "--cacert", &site.text("tls/ca.pem")])
            .args(["--header", &format!("Authorization: Bearer {token}")])
            .args(["--header", &format!("Host: {name}")])
            .args([
                "--output",
                "/dev/null",
                "--write-out",
                "%{http_version} %{http_code}",
            ])
            .arg(format!("https://{}/api/v1/tools/list", echo.http))
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    for (flag, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        for (name, code) in [
            ("localhost", 200),
            ("attacker.example", 403),
            ("attacker.example:8081", 403),
        ] {
            assert_eq!(status(flag, name), format!("{version} {code}"), "{name}");
        }
    }
    assert_eq!(echo.terminate(), 0);
}

#[test]
fn without_a_certificate_or_a_word_about_it_nothing_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("fleet.duckdb").display().to_string();
    for (flags, parts) in [
        ([].as_slice(), ["--tls-cert", "--insecure-no-tls"]),
        (
            &["--insecure-no-tls=any", "--http-listen", "0.0.0.0:0"],
            ["--access", "--insecure-no-auth"],
        ),
        (
            &["--tls-cert", "/no/such", "--tls-key", "/no/such"],
            ["cannot read", "/no/such"],
        ),
    ] {
        let output = Command::new(ECHO)
            .args(["serve", "--db", &db])
            .args(flags)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(64), "{}", said(&output));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        assert!(!Path::new(&db).exists(), "nothing was made");
    }
}
