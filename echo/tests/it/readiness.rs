//! Readiness of a running instance, and its limit on connections.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::metrics::scraped;
use crate::testbed::{Echo, wait_for};

fn probed(echo: &Echo, path: &str) -> (u16, Value) {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .build();
    let mut answer = ureq::Agent::new_with_config(config)
        .get(format!("http://{}{path}", echo.http))
        .call()
        .unwrap();
    let body = answer.body_mut().read_json().unwrap();
    (answer.status().as_u16(), body)
}

/// Returns the reasons why Echo is not ready.
pub(crate) fn reasons(echo: &Echo) -> Vec<String> {
    let (status, body) = probed(echo, "/readyz");
    assert_eq!(status == 200, body["ready"] == json!(true), "{body}");
    let reasons = body["reasons"].as_array().unwrap().iter();
    let names = reasons.map(|one| one["reason"].as_str().unwrap().to_owned());
    names.collect()
}

#[test]
fn an_instance_on_a_full_volume_is_alive_but_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("fleet.duckdb");
    // No volume is as large.
    let echo = Echo::serve_with(&db, &["--min-free", "1000000TB", "--ballast", "off"]);
    assert_eq!(reasons(&echo), ["volume_full"]);
    assert_eq!(probed(&echo, "/healthz"), (200, json!({ "status": "ok" })));
    assert_eq!(echo.terminate(), 0);
    let echo = Echo::serve(&db);
    assert_eq!(reasons(&echo), [""; 0]);
}

#[test]
fn a_stopping_instance_reports_shutting_down_while_it_drains() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    let mut open = TcpStream::connect(&echo.otlp_http).unwrap();
    write!(
        open,
        "POST /v1/metrics HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
         content-length: 2\r\nconnection: close\r\n\r\n{{"
    )
    .unwrap();
    wait_for("the request to begin", || {
        scraped(&echo)["echo_ingest_requests_total"] > 0.0
    });
    echo.send_sigterm();
    wait_for("Echo to report that it stops", || {
        reasons(&echo) == ["shutting_down"]
    });
    assert_eq!(probed(&echo, "/healthz").0, 200);
    open.write_all(b"}").unwrap();
    let mut answer = String::new();
    open.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(echo.wait(), Some(0));
}

#[test]
#[expect(clippy::float_cmp, reason = "a count of one")]
fn a_connection_over_the_limit_is_closed_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("fleet.duckdb");
    let echo = Echo::serve_with(&db, &["--max-connections", "3"]);
    for (listener, address) in [("otlp", &echo.otlp), ("otlp_http", &echo.otlp_http)] {
        let open = [(); 3].map(|()| TcpStream::connect(address).unwrap());
        let name = |what: &str| format!("echo_connections_{what}{{listener=\"{listener}\"}}");
        wait_for("the connections to be accepted", || {
            scraped(&echo)[&name("open")] == 3.0
        });
        let mut fourth = TcpStream::connect(address).unwrap();
        // A closed connection ends or is reset.
        let received = fourth.read(&mut [0]).unwrap_or(0);
        assert_eq!(received, 0);
        assert_eq!(scraped(&echo)[&name("refused_total")], 1.0);
        drop(open);
    }
}
