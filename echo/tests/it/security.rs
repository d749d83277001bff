//! Echo with TLS, authentication and the audit log.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use self::site::{Site, metrics, printed};
use crate::testbed::{ECHO, Echo, agent, recording, wait_for};

pub(crate) mod issuer;
mod rotation;
mod site;

#[test]
fn agents_with_certificates_can_send_and_authorized_readers_can_query() {
    let site = Site::new();
    let echo = site.serve(&["--client-ca", &site.text("tls/ca.pem")]);
    for output in site.replay(&echo, "lab") {
        assert!(output.status.success(), "{}", printed(&output));
    }
    wait_for("the verdict", || {
        let arguments = ["outliers", "--cluster", "lab", "--window", "all"];
        printed(&site.client(&echo, Some("grafana"), &arguments)).contains("node-2")
    });
    assert_eq!(echo.terminate(), 0);
}

#[test]
fn a_token_for_one_cluster_cannot_write_to_another() {
    let site = Site::new();
    let echo = site.serve(&["--client-ca", &site.text("tls/ca.pem")]);
    let replayed = site.replay(&echo, "other");
    assert_forbidden(&site, &echo, &replayed[0]);
    assert_eq!(echo.terminate(), 0);
}

/// Checks that nothing was stored and the audit log has a `forbidden` line.
#[track_caller]
fn assert_forbidden(site: &Site, echo: &Echo, sent: &Output) {
    let arguments = ["sql", "SELECT count(*) AS n FROM events", "--json"];
    let output = site.client(echo, Some("grafana"), &arguments);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let none = serde_json::json!([{ "n": 0 }]);
    assert_eq!(answer["rows"], none, "{}", printed(sent));
    let is_forbidden = |line: &Value| line["outcome"] == "forbidden";
    assert!(site.audit().iter().any(is_forbidden), "{}", printed(sent));
}

#[test]
fn unauthorized_requests_are_rejected_and_audited() {
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
        (Some("tenant"), &["sql", "SELECT 1"], "token new --sql"),
        (Some("agents"), &["clusters"], "but not query"),
        (
            Some("tenant"),
            &["cost", "--cluster", "other"],
            "no such cluster",
        ),
    ] {
        let output = site.client(&echo, token, arguments);
        assert!(!output.status.success());
        assert!(
            printed(&output).contains(part),
            "{arguments:?}: {}",
            printed(&output)
        );
    }
    // A check without permission must not pass.
    let gate = ["assert", "outliers", "--cluster", "lab", "--max", "0"];
    for token in [None, Some("agents")] {
        let output = site.client(&echo, token, &gate);
        assert_eq!(output.status.code(), Some(3), "{}", printed(&output));
    }
    let fine = site.client(&echo, Some("grafana"), &["cost", "--window", "all"]);
    assert!(fine.status.success(), "{}", printed(&fine));
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
        assert!(!text.contains(&token), "the audit log contains a token");
    }
    assert_eq!(echo.terminate(), 0);
}

#[test]
fn a_wrong_scheme_or_an_unknown_authority_is_answered_with_the_flags_to_use() {
    let site = Site::new();
    let encrypted = site.serve(&[]);
    let folder = tempfile::tempdir().unwrap();
    let plain = Echo::serve(&folder.path().join("fleet.duckdb"));
    for (server, flags, advice) in [
        (
            format!("http://{}", encrypted.http),
            vec![],
            "it speaks TLS: use https://, and --tls-ca FILE",
        ),
        (
            format!("http://{}", encrypted.otlp),
            vec![],
            "it speaks TLS: use https://",
        ),
        (
            format!("https://{}", encrypted.http),
            vec![],
            "unknown authority: give the certificate of the authority with --tls-ca FILE",
        ),
        (
            format!("https://{}", plain.http),
            vec![],
            "it does not speak TLS: use http://",
        ),
        (
            format!("http://{}", plain.otlp),
            vec![],
            "is not the API of a fleet-echo server",
        ),
        (
            format!("https://{}", encrypted.http),
            vec!["--tls-ca".to_owned(), site.text("tls/ca.pem")],
            "--token-file FILE, or in the environment variable FLEET_ECHO_TOKEN",
        ),
    ] {
        let output = Command::new(ECHO)
            .args(["outliers", "--server", &server])
            .args(flags)
            .output()
            .unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains(advice), "{server}: {message}");
        assert!(!message.contains("--insecure-no-tls"), "{message}");
    }
    let request = folder.path().join("request.json");
    std::fs::write(&request, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).unwrap();
    let proxy = Command::new(ECHO)
        .args(["mcp", "--stdio"])
        .args(["--server", &format!("http://{}", encrypted.http)])
        .stdin(std::fs::File::open(&request).unwrap())
        .output()
        .unwrap();
    let answer = String::from_utf8(proxy.stdout).unwrap();
    let advice = "it speaks TLS: use https://, and --tls-ca FILE";
    assert!(answer.contains(advice), "{answer}");
    assert_eq!(plain.terminate(), 0);
    assert_eq!(encrypted.terminate(), 0);
}

#[test]
fn an_agent_can_send_only_for_the_node_in_its_certificate() {
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
    assert_forbidden(&site, &echo, &replayed);
    assert_eq!(echo.terminate(), 0);
}

/// A query that takes longer than any test.
const SLOW: &str = "SELECT count(*) FROM range(1000000) a, range(1000000) b";

#[test]
fn a_cancelled_request_stops_its_query_and_is_audited_once_on_every_transport() {
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
    let transports = [
        curl("--http1.1", "/api/v1/sql", &sql),
        curl("--http2", "/api/v1/sql", &sql),
        curl("--http1.1", "/mcp", &call),
        curl("--http2", "/mcp/compat", &call),
        proxy,
    ];
    for (number, mut transport) in transports.into_iter().enumerate() {
        let mut client = transport
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = client.stdin.take().unwrap();
        // Only the proxy reads its input.
        let _unread = writeln!(input, "{call}");
        wait_for("the query to run", || is_running("1.0"));
        assert_eq!(n_cancelled(), number);
        client.kill().unwrap();
        client.wait().unwrap();
        wait_for("the query to stop", || is_running("0.0"));
        wait_for("the audit line", || n_cancelled() == number + 1);
    }
    assert_eq!(echo.terminate(), 0);
}

#[test]
fn an_unknown_host_name_is_rejected_over_http_1_and_http_2() {
    let site = Site::new();
    let echo = site.serve(&[]);
    let token = std::fs::read_to_string(site.path("grafana")).unwrap();
    let status = |version: &str, name: &str| {
        // In HTTP/2, curl sends the name as `:authority`, without a `host` header.
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
fn serving_requires_a_certificate_or_an_explicit_insecure_flag() {
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
        assert_eq!(output.status.code(), Some(64), "{}", printed(&output));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(parts.iter().all(|part| stderr.contains(part)), "{stderr}");
        assert!(!Path::new(&db).exists(), "a database was created");
    }
}
