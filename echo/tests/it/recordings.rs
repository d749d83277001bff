//! Recorded jobs, sent by agents to a server: reported ranks, evidence, map and cost. How soon, and of more
//! recordings which ranks, `echo-bench` tests in process.

mod device;
mod map;
mod real_loops;

use serde_json::{Value, json};

use crate::testbed::{Echo, recording, replay_all};

/// Largest difference of a cost from that by the job's own clock, as a share.
const TOLERANCE: f64 = 0.15;

/// Replays the recording into a new instance. Returns its outliers, with which the map agrees, and
/// its cost.
fn answers(name: &str, speed: &str) -> (Value, Value) {
    answers_and(name, speed, map::assert_agrees)
}

/// Replays the recording into a new instance, checks it, and returns its outliers and cost.
fn answers_and(name: &str, speed: &str, check: impl Fn(&Echo, &str, &Value)) -> (Value, Value) {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    for summary in replay_all(&recording(name), &echo, name, speed) {
        assert_eq!(summary["points_rejected"], 0, "{summary}");
        assert_eq!(summary["points_dropped"], 0, "{summary}");
    }
    echo.caught_up();
    let mut outliers = echo.query("find_outlier_nodes", name);
    check(&echo, name, &outliers);
    // The age depends on the current time, everything else on the recording only.
    outliers["data_quality"]["last_event_age_s"] = Value::Null;
    (outliers, echo.query("get_cost", name))
}

fn assert_cost(cost: &Value, expected_gpu_s: f64) {
    let lost_gpu_s = cost["lost_gpu_hours"].as_f64().unwrap() * 3_600.0;
    assert!(
        (lost_gpu_s - expected_gpu_s).abs() <= TOLERANCE * expected_gpu_s,
        "lost {lost_gpu_s:.2} s of GPU time, by the clock of the job {expected_gpu_s:.2} s"
    );
    assert!(cost["window_total"].as_f64().unwrap() > 0.0, "{cost}");
}

/// Speed of replay at which ranks are received one after another.
const MAX: &str = "max";

/// Speed of replay, as a multiple of the job's, at which all ranks are received at once.
const TOGETHER: &str = "20";

/// Checks that exactly this rank is reported, as late on its host, in a job that lost this much GPU time by
/// its own clock. `echo-bench` tests that the speeds of the ranks change no verdict.
fn assert_reports_only((name, speed): (&str, &str), rank: u32, lost_gpu_s: f64) -> Value {
    let (outliers, cost) = answers(name, speed);
    let named = outliers["outliers"].as_array().unwrap();
    assert_eq!(named.len(), 1, "{outliers:#}");
    assert_eq!(named[0]["rank"], rank, "{outliers:#}");
    assert_eq!(named[0]["node_id"], format!("node-{rank}"), "{outliers:#}");
    assert_eq!(named[0]["class"], "host", "{outliers:#}");
    assert_eq!(named[0]["state"], "cleared", "{outliers:#}");
    assert_eq!(named[0]["occurrences"], 1, "{outliers:#}");
    assert_eq!(outliers["conditions"], json!([]), "{outliers:#}");
    assert_cost(&cost, lost_gpu_s);
    outliers
}

/// Returns whether the host evidence of the reported rank has this signal, far above its peers.
fn stands_out(outliers: &Value, signal: &str) -> bool {
    let rows = outliers["outliers"][0]["evidence"].as_array().unwrap();
    rows.iter().any(|row| {
        let rates = row["own"].as_f64().zip(row["peers"].as_f64());
        row["signal"] == signal
            && rates.is_some_and(|(own, peers)| own > 1.05 * peers)
            && row["z"].as_f64() > Some(3.5)
    })
}

#[test]
fn a_rank_that_sleeps_before_its_forward_pass_is_reported() {
    let outliers = assert_reports_only(("host-sleep-rank2", MAX), 2, 25.9);
    assert!(
        stands_out(&outliers, "fleet.host.off_cpu_ms"),
        "{outliers:#}"
    );
}

#[test]
fn a_rank_that_shares_its_core_with_busy_loops_is_reported() {
    let outliers = assert_reports_only(("cpu-contention-rank1", TOGETHER), 1, 32.0);
    assert!(
        stands_out(&outliers, "fleet.host.preempted_ms"),
        "{outliers:#}"
    );
}

#[test]
fn a_healthy_job_has_no_outliers_no_conditions_and_no_cost() {
    let (outliers, cost) = answers("healthy", TOGETHER);
    assert_eq!(outliers["outliers"], json!([]), "{outliers:#}");
    assert_eq!(outliers["conditions"], json!([]), "{outliers:#}");
    assert_eq!(cost["lost_gpu_hours"], 0.0, "{cost:#}");
    assert_eq!(cost["window_total"], 0.0, "{cost:#}");
}
