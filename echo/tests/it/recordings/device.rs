//! The same job seen by its GPUs: who is named, why, and at what cost.

use serde_json::Value;

use super::{Truth, answers, assert_cost, assert_prompt, names_only, truth};

#[test]
fn a_gpu_that_computes_more_than_its_peers_is_named_and_not_its_host() {
    let outliers = names_only("device/gpu-extra-rank1", 1, "device");
    assert_eq!(outliers["outliers"][0]["source"], "device");
}

#[test]
fn a_host_that_sleeps_is_named_by_what_its_gpu_had_to_do() {
    names_only("device/host-sleep-rank2", 2, "host");
}

#[test]
fn in_a_healthy_job_no_gpu_is_named() {
    let (outliers, cost) = answers("device/healthy", "max");
    let nobody = Value::Array(Vec::new());
    assert_eq!(outliers["outliers"], nobody, "{outliers:#}");
    assert_eq!(outliers["conditions"], nobody, "{outliers:#}");
    assert_eq!(cost["lost_gpu_hours"], 0.0, "{cost:#}");
}

#[test]
fn a_gpu_in_a_mesh_is_named_and_those_that_wait_for_it_elsewhere_are_its_victims() {
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

/// Names exactly this rank in a job of which calls and GPU times were recorded in the same run, and prices what it cost: 200 of its
/// steps took so much longer on four GPUs, milliseconds.
fn names_live(name: &str, (rank, class): (u32, &str), longer_ms: f64) -> Value {
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
fn a_late_gpu_beside_calls_of_the_same_run_is_a_late_device_that_hosts_do_not_show() {
    let named = names_live("device/live-ddp-gpu-rank3", (3, "device"), 62.687 - 47.29);
    assert!(is_hidden_from_hosts(&named), "{named:#}");
}

#[test]
fn a_late_host_beside_calls_of_the_same_run_is_a_late_host_and_both_sources_agree() {
    let named = names_live("device/live-ddp-host-rank0", (0, "host"), 58.392 - 47.287);
    assert!(!is_hidden_from_hosts(&named), "{named:#}");
}
