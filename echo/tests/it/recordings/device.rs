//! Detection from the durations of operations on the GPU: reported ranks, causes and cost.

use serde_json::Value;

use super::{answers, answers_and, assert_cost};

/// Checks that exactly this rank is reported in a job of four GPUs that lost `lost_gpu_s`, with one
/// of these classes, and returns it.
fn assert_reports(name: &str, rank: u32, classes: &[&str], lost_gpu_s: f64) -> Value {
    // The map is made of the calls of hosts, which do not show these faults.
    let (outliers, cost) = answers_and(name, "max", |_, _, _| {});
    let named = outliers["outliers"].as_array().unwrap();
    assert_eq!(named.len(), 1, "{outliers:#}");
    assert_eq!(named[0]["rank"], rank, "{outliers:#}");
    let class = named[0]["class"].as_str().unwrap();
    assert!(classes.contains(&class), "{outliers:#}");
    assert_eq!(named[0]["source"], "device", "{outliers:#}");
    assert_eq!(
        outliers["conditions"],
        Value::Array(Vec::new()),
        "{outliers:#}"
    );
    assert_cost(&cost, lost_gpu_s);
    named[0].clone()
}

#[test]
fn a_gpu_that_another_process_uses_is_a_device_culprit_although_cuda_graphs_issue_no_calls() {
    let named = assert_reports("four-gpus/graphs-neighbour2", 2, &["device"], 55.9);
    let reason = named["reason"].as_str().unwrap();
    assert!(reason.contains("holds back the job"), "{reason}");
}

#[test]
fn a_rank_that_is_late_at_one_operation_in_twenty_steps_is_reported() {
    // Three operations per second leave little evidence of the class.
    let classes = ["host", "inconclusive"];
    assert_reports("four-gpus/localsgd-sleep2", 2, &classes, 43.9);
}

#[test]
fn in_a_pipeline_with_data_parallelism_the_rank_on_a_shared_core_is_a_host_culprit() {
    assert_reports("four-gpus/pp2dp2-cpu3", 3, &["host"], 40.2);
}

#[test]
fn a_healthy_job_has_no_outliers_and_no_cost() {
    let (outliers, cost) = answers("device/healthy", "max");
    let none = Value::Array(Vec::new());
    assert_eq!(outliers["outliers"], none, "{outliers:#}");
    assert_eq!(outliers["conditions"], none, "{outliers:#}");
    assert_eq!(cost["lost_gpu_hours"], 0.0, "{cost:#}");
}
