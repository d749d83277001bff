//! The same job seen by its GPUs: who is named, why, and at what cost.

use serde_json::Value;

use super::{answers, assert_cost, assert_prompt, names_only, truth};

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
