//! Detection from GPU timings: reported ranks, causes and cost.

use serde_json::Value;

use super::{Truth, answers, assert_cost, assert_prompt, assert_reports_only, truth};

#[test]
fn a_gpu_that_computes_more_than_its_peers_is_a_device_culprit() {
    let outliers = assert_reports_only("device/gpu-extra-rank1", 1, "device");
    assert_eq!(outliers["outliers"][0]["source"], "device");
}

#[test]
fn a_sleeping_host_is_reported_from_the_timings_of_its_gpu() {
    assert_reports_only("device/host-sleep-rank2", 2, "host");
}

#[test]
fn a_healthy_job_has_no_outliers_and_no_cost() {
    let (outliers, cost) = answers("device/healthy", "max");
    let none = Value::Array(Vec::new());
    assert_eq!(outliers["outliers"], none, "{outliers:#}");
    assert_eq!(outliers["conditions"], none, "{outliers:#}");
    assert_eq!(cost["lost_gpu_hours"], 0.0, "{cost:#}");
}

#[test]
fn a_slow_gpu_in_a_mesh_is_the_culprit_and_ranks_that_wait_for_it_are_victims() {
    let (outliers, cost) = answers("device/mesh-gpu-extra-rank2", "max");
    let all = outliers["outliers"].as_array().unwrap();
    let of_role = |role: &str| -> Vec<u64> {
        let ranks = all.iter().filter(|one| one["role"] == role);
        ranks.map(|one| one["rank"].as_u64().unwrap()).collect()
    };
    assert_eq!(of_role("culprit"), [2], "{outliers:#}");
    assert_eq!(of_role("victim"), [0], "{outliers:#}");
    let culprit = all.iter().find(|one| one["role"] == "culprit").unwrap();
    assert_eq!(culprit["class"], "device", "{outliers:#}");
    let truth = truth("device/mesh-gpu-extra-rank2");
    assert_prompt(culprit, &truth);
    assert_cost(&cost, &truth);
}

/// Checks that exactly this rank is reported in a job whose calls and GPU timings were recorded in
/// one run, with its cost: 200 steps took `longer_ms` longer on four GPUs.
fn assert_reports_live(name: &str, rank: u32, class: &str, longer_ms: f64) -> Value {
    let (outliers, cost) = answers(name, "max");
    let named = outliers["outliers"].as_array().unwrap();
    assert_eq!(named.len(), 1, "{outliers:#}");
    assert_eq!(named[0]["rank"], rank, "{outliers:#}");
    assert_eq!(named[0]["class"], class, "{outliers:#}");
    assert_eq!(named[0]["source"], "device", "{outliers:#}");
    let lost_gpu_ms = longer_ms * 200.0 * 4.0;
    let fault = None;
    assert_cost(&cost, &Truth { fault, lost_gpu_ms });
    named[0].clone()
}

fn is_hidden_from_hosts(outlier: &Value) -> bool {
    let reason = outlier["reason"].as_str().unwrap();
    reason.contains("source_disagreement")
}

#[test]
fn a_late_gpu_is_a_device_culprit_that_host_timings_do_not_show() {
    let named = assert_reports_live("device/live-ddp-gpu-rank3", 3, "device", 62.687 - 47.29);
    assert!(is_hidden_from_hosts(&named), "{named:#}");
}

#[test]
fn a_late_host_is_a_host_culprit_in_both_sources() {
    let named = assert_reports_live("device/live-ddp-host-rank0", 0, "host", 58.392 - 47.287);
    assert!(!is_hidden_from_hosts(&named), "{named:#}");
}
