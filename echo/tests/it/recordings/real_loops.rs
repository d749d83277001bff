//! Detection on recordings of common training loops, with real agents and a real instance: reported
//! ranks and cost.

use serde_json::{Value, json};

use super::map::assert_agrees;
use crate::testbed::{Echo, recording, replay_ranks};

/// Replays a recorded job at full speed. Returns outliers and cost.
fn answers(name: &str, n_ranks: u32) -> (Value, Value) {
    answers_at(name, n_ranks, "max")
}

/// Replays a recorded job at a multiple of its speed. Returns outliers and cost.
fn answers_at(name: &str, n_ranks: u32, speed: &str) -> (Value, Value) {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    let file = recording(&format!("real-loops/{name}"));
    for summary in replay_ranks(&file, n_ranks, &echo, name, speed) {
        assert_eq!(summary["points_rejected"], 0, "{summary}");
    }
    echo.caught_up();
    let outliers = echo.query("find_outlier_nodes", name);
    assert_agrees(&echo, name, &outliers);
    (outliers, echo.query("get_cost", name))
}

/// Returns the reported ranks.
fn reported(outliers: &Value) -> Vec<&Value> {
    let outliers = outliers["outliers"].as_array().unwrap();
    outliers.iter().map(|outlier| &outlier["rank"]).collect()
}

fn lost_gpu_s(cost: &Value) -> f64 {
    cost["lost_gpu_hours"].as_f64().unwrap() * 3_600.0
}

#[test]
fn a_slow_data_loader_in_a_job_that_logs_is_reported_with_its_cost() {
    let (outliers, cost) = answers("hf-ddp-loader1", 2);
    assert_eq!(reported(&outliers), [1], "{outliers:#}");
    // Measured by the job: 14.7 GPU-seconds.
    let lost = lost_gpu_s(&cost);
    assert!((12.5..=16.9).contains(&lost), "{lost}");
}

#[test]
fn a_pipeline_rank_that_shares_its_core_is_reported() {
    let (outliers, cost) = answers("pp-cpu1", 2);
    assert_eq!(reported(&outliers), [1], "{outliers:#}");
    // Measured by the job: 10.0 GPU-seconds.
    let lost = lost_gpu_s(&cost);
    assert!((8.5..=11.5).contains(&lost), "{lost}");
}

#[test]
fn a_pipeline_rank_that_shares_its_gpu_is_reported_though_grouped_transfers_hide_who_waits() {
    let (outliers, cost) = answers("pp-neighbour0", 2);
    assert_eq!(reported(&outliers), [0], "{outliers:#}");
    assert_eq!(outliers["conditions"], json!([]), "{outliers:#}");
    // Measured by the job: 17.3 GPU-seconds.
    let lost = lost_gpu_s(&cost);
    assert!((14.7..=19.9).contains(&lost), "{lost}");
}

#[test]
fn a_cleared_incident_keeps_the_slowdown_measured_during_the_fault() {
    let (outliers, cost) = answers("ddp4-loader2", 4);
    assert_eq!(reported(&outliers), [2], "{outliers:#}");
    let outlier = &outliers["outliers"][0];
    // Steps of 110 ms took 175 ms while its data loader slept.
    assert!(
        outlier["effect_ratio"].as_f64().unwrap() > 0.4,
        "{outlier:#}"
    );
    // Measured by the job: 32.6 GPU-seconds.
    let lost = lost_gpu_s(&cost);
    assert!((27.7..=37.5).contains(&lost), "{lost}");
}

#[test]
fn a_stall_caused_by_a_stopped_rank_is_reported_while_it_lasts_and_priced_once() {
    // At four times the speed of the job, since Echo checks for stalls every second.
    let (outliers, cost) = answers_at("ddp4-stop1", 4, "4");
    assert_eq!(reported(&outliers).len(), 0, "{outliers:#}");
    let conditions = outliers["conditions"].as_array().unwrap();
    let stall = conditions.iter().find(|one| one["kind"] == "stall");
    let why = stall.unwrap()["reason"].as_str().unwrap();
    assert!(why.contains("3 of 4 ranks wait for their GPUs"), "{why}");
    assert!(why.ends_with("not waiting: rank 1"), "{why}");
    // Measured by the job: 87.5 GPU-seconds.
    let lost = lost_gpu_s(&cost);
    assert!((74.4..=100.6).contains(&lost), "{lost}");
}

#[test]
fn a_healthy_job_that_logs_evaluates_and_saves_has_no_cost() {
    let (outliers, cost) = answers("evals10-healthy", 2);
    assert_eq!(reported(&outliers).len(), 0, "{outliers:#}");
    assert!(lost_gpu_s(&cost).abs() < 1e-9, "{cost:#}");
}
