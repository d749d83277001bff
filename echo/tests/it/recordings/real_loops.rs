//! Loops that people run, from the recording through a real agent and a real Echo: who is named, and at what cost.

use serde_json::Value;

use crate::testbed::{Echo, recording, replay_ranks};

/// What Echo answers of a recorded job of so many ranks: outliers and cost.
fn answers(name: &str, n_ranks: u32) -> (Value, Value) {
    answers_at(name, n_ranks, "max")
}

/// The same of a job that was replayed so many times as fast as it ran.
fn answers_at(name: &str, n_ranks: u32, speed: &str) -> (Value, Value) {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    let file = recording(&format!("real-loops/{name}"));
    for summary in replay_ranks((&file, n_ranks), &echo, name, speed) {
        assert_eq!(summary["points_rejected"], 0, "{summary}");
    }
    echo.caught_up();
    (
        echo.ask("find_outlier_nodes", name),
        echo.ask("get_cost", name),
    )
}

/// The ranks that were named.
fn named(outliers: &Value) -> Vec<&Value> {
    let outliers = outliers["outliers"].as_array().unwrap();
    outliers.iter().map(|outlier| &outlier["rank"]).collect()
}

fn lost_gpu_s(cost: &Value) -> f64 {
    cost["lost_gpu_hours"].as_f64().unwrap() * 3_600.0
}

#[test]
fn a_slow_data_set_of_a_job_that_logs_is_named_and_priced() {
    let (outliers, cost) = answers("hf-ddp-loader1", 2);
    assert_eq!(named(&outliers), [1], "{outliers:#}");
    // By the job's own clock 14.7 GPU-seconds.
    let lost = lost_gpu_s(&cost);
    assert!((12.5..=16.9).contains(&lost), "{lost}");
}

#[test]
fn a_pipeline_whose_second_stage_shares_its_core_has_that_rank_named() {
    let (outliers, cost) = answers("pp-cpu1", 2);
    assert_eq!(named(&outliers), [1], "{outliers:#}");
    // By the job's own clock 10.0 GPU-seconds.
    let lost = lost_gpu_s(&cost);
    assert!((8.5..=11.5).contains(&lost), "{lost}");
}

#[test]
fn a_pipeline_whose_first_stage_shares_its_gpu_has_that_rank_named() {
    let (outliers, cost) = answers("pp-neighbour0", 2);
    assert_eq!(named(&outliers), [0], "{outliers:#}");
    // By the job's own clock 17.3 GPU-seconds.
    let lost = lost_gpu_s(&cost);
    assert!((14.7..=19.9).contains(&lost), "{lost}");
}

#[test]
fn a_rank_that_was_slow_is_described_as_it_was_and_not_as_it_is_when_that_is_over() {
    let (outliers, cost) = answers("ddp4-loader2", 4);
    assert_eq!(named(&outliers), [2], "{outliers:#}");
    let outlier = &outliers["outliers"][0];
    // Steps of 110 ms took 175 ms while its data set slept.
    assert!(
        outlier["effect_ratio"].as_f64().unwrap() > 0.4,
        "{outlier:#}"
    );
    // By the job's own clock 32.6 GPU-seconds.
    let lost = lost_gpu_s(&cost);
    assert!((27.7..=37.5).contains(&lost), "{lost}");
}

#[test]
fn a_job_that_stood_still_because_one_rank_was_stopped_is_reported_meanwhile_and_charged_once() {
    // At the speed of the job divided by four: whether it stands still is looked for every second.
    let (outliers, cost) = answers_at("ddp4-stop1", 4, "4");
    assert_eq!(named(&outliers).len(), 0, "{outliers:#}");
    let conditions = outliers["conditions"].as_array().unwrap();
    let stall = conditions.iter().find(|one| one["kind"] == "stall");
    let why = stall.unwrap()["reason"].as_str().unwrap();
    assert!(why.contains("3 of 4 ranks wait for their GPUs"), "{why}");
    assert!(why.ends_with("not waiting: rank 1"), "{why}");
    // By the job's own clock 87.5 GPU-seconds.
    let lost = lost_gpu_s(&cost);
    assert!((74.4..=100.6).contains(&lost), "{lost}");
}

#[test]
fn a_healthy_job_that_logs_evaluates_and_saves_loses_nothing() {
    let (outliers, cost) = answers("evals10-healthy", 2);
    assert_eq!(named(&outliers).len(), 0, "{outliers:#}");
    assert!(lost_gpu_s(&cost).abs() < 1e-9, "{cost:#}");
}
