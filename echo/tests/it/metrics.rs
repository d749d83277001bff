//! Metrics of a running instance.

use std::collections::BTreeMap;
use std::process::Command;

use crate::load::{Sent, request, send, sender};
use crate::testbed::{ECHO, Echo, recording, replay_all, wait_for};

/// Returns the samples of a scrape by name and labels.
pub(crate) fn scraped(echo: &Echo) -> BTreeMap<String, f64> {
    let mut answer = ureq::get(format!("http://{}/metrics", echo.http))
        .call()
        .unwrap();
    let kind = answer.headers()["content-type"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    let text = answer.body_mut().read_to_string().unwrap();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    samples.map(sample).collect()
}

#[test]
#[expect(
    clippy::float_cmp,
    reason = "counts of one recording are whole numbers that a float holds exactly"
)]
fn a_scrape_counts_points_sent_stored_and_processed() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    let before = scraped(&echo);
    assert_eq!(before["echo_ingest_stored_points_total"], 0.0);
    let summaries = replay_all(&recording("healthy"), &echo, "metrics", "max");
    let sent: f64 = summaries
        .iter()
        .map(|summary| {
            let sent = summary["points_sent"].as_f64().unwrap();
            sent + summary["verdicts_sent"].as_f64().unwrap()
        })
        .sum();
    wait_for("the detector to catch up", || {
        let now = scraped(&echo);
        now["echo_detector_events_total"] == now["echo_store_events_total"]
    });
    let after = scraped(&echo);
    assert!(sent > 1_000.0, "{summaries:?}");
    assert_eq!(after["echo_ingest_stored_points_total"], sent);
    assert_eq!(after["echo_store_events_total"], sent);
    assert_eq!(
        after["echo_ingest_acknowledgement_seconds_count"],
        after["echo_ingest_requests_total"]
    );
    assert!(after["echo_store_commit_seconds_count"] >= 1.0);
    assert!(after["echo_store_database_bytes"] > 4_096.0);
    let idle = [
        "echo_ingest_in_flight_bytes",
        "echo_store_queued_events",
        "echo_ingest_rejected_points_total{reason=\"missing_cluster\"}",
        "echo_ingest_failed_requests_total{code=\"busy\"}",
    ];
    for name in idle {
        assert_eq!(after[name], 0.0, "{name}");
    }
}

#[test]
#[expect(clippy::float_cmp, reason = "a count of one")]
fn a_scrape_counts_failed_requests_by_error_code() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    let refused = ureq::post(format!("http://{}/v1/metrics", echo.otlp_http))
        .config()
        .http_status_as_error(false)
        .build()
        .header("content-type", "application/x-protobuf")
        .send([0xff_u8; 16].as_slice())
        .unwrap();
    assert_eq!(refused.status(), 400);
    let after = scraped(&echo);
    assert_eq!(
        after["echo_ingest_failed_requests_total{code=\"invalid\"}"],
        1.0
    );
}

#[test]
#[expect(clippy::float_cmp, reason = "whole numbers that a float holds exactly")]
fn points_over_the_series_limit_are_rejected_and_the_others_stored() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("fleet.duckdb");
    let echo = Echo::serve_with(&db, &["--max-series", "1"]);
    let sender = sender();
    let put = |number, body: &[u8]| send(&sender, &echo.otlp_http, "agent-1", number, body);
    assert_eq!(put(1, &request(1, 10)), Sent::Acknowledged);
    let renamed = |mut body: Vec<u8>| {
        let name = body.windows(10).position(|part| part == b"load.point");
        body[name.unwrap()] = b'r';
        body
    };
    assert_eq!(put(2, &renamed(request(2, 7))), Sent::Acknowledged);
    assert_eq!(put(3, &request(3, 10)), Sent::Acknowledged);
    let after = scraped(&echo);
    let rejected = "echo_ingest_rejected_points_total{reason=\"too_many_series\"}";
    assert_eq!(after[rejected], 7.0);
    assert_eq!(after["echo_store_events_total"], 20.0);
    assert_eq!(after["echo_store_series"], after["echo_store_series_limit"]);
    assert_eq!(after["echo_store_senders"], 1.0);
}

#[test]
fn one_token_cannot_exhaust_the_cluster_limit_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let mut access = "tokens:\n".to_owned();
    let tokens = ["greedy", "modest"].map(|id| {
        let arguments = ["token", "new", "--id", id, "--write", "--cluster", "*"];
        let output = Command::new(ECHO).args(arguments).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let (token, entry) = printed.split_once('\n').unwrap();
        access.push_str(entry);
        token.to_owned()
    });
    let file = folder.path().join("access.yaml");
    std::fs::write(&file, access).unwrap();
    let access = file.to_str().unwrap();
    let flags = ["--access", access, "--max-clusters", "8"];
    let echo = Echo::serve_with(&folder.path().join("fleet.duckdb"), &flags);
    let send = |number: u64, token: &str| {
        let mut body = request(number, 1);
        let name = body.windows(4).position(|part| part == b"load").unwrap();
        body[name] = b'a' + u8::try_from(number).unwrap();
        let sent = sender()
            .post(format!("http://{}/v1/metrics", echo.otlp_http))
            .header("content-type", "application/x-protobuf")
            .header("authorization", format!("Bearer {token}"))
            .send(&body);
        let body = sent.unwrap().body_mut().read_to_vec().unwrap();
        !String::from_utf8_lossy(&body).contains("too_many_clusters")
    };
    // A quarter of the limit, two of eight, is open to every token; beyond that, each token must
    // leave as many free as it has used.
    let taken = (0..12).filter(|number| send(*number, &tokens[0]));
    assert_eq!(taken.count(), 5);
    assert!(send(12, &tokens[1]));
}
