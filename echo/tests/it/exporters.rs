//! Exporters that know nothing of Echo as clients: they name the node on each point and no cluster.

use serde_json::{Value, json};

use crate::testbed::Echo;

fn attributes(pairs: &[(&str, &str)]) -> Value {
    let one =
        |(key, value): &(&str, &str)| json!({ "key": key, "value": { "stringValue": value } });
    pairs.iter().map(one).collect()
}

/// Returns what the NCCL Inspector and, through a collector, dcgm-exporter send.
fn request(resource: &[(&str, &str)]) -> Value {
    let time = "1763700000000000000";
    let inspector = attributes(&[("node", "gpu-1"), ("gpu", "GPU0"), ("comm_name", "world")]);
    let dcgm = attributes(&[("Hostname", "gpu-2"), ("gpu", "0")]);
    json!({ "resourceMetrics": [{
        "resource": { "attributes": attributes(resource) },
        "scopeMetrics": [{ "metrics": [
            { "name": "nccl_collective_exec_time_microseconds", "unit": "us", "gauge": {
                "dataPoints": [{ "timeUnixNano": time, "asDouble": 9015.0, "attributes": inspector }] } },
            { "name": "DCGM_FI_DEV_XID_ERRORS", "sum": {
                "aggregationTemporality": "AGGREGATION_TEMPORALITY_CUMULATIVE", "isMonotonic": true,
                "dataPoints": [{ "timeUnixNano": time, "asInt": "0", "attributes": dcgm }] } },
        ] }],
    }] })
}

fn sent(echo: &Echo, request: &Value) -> Value {
    let url = format!("http://{}/v1/metrics", echo.otlp_http);
    let mut response = ureq::post(&url).send_json(request).unwrap();
    response.body_mut().read_json().unwrap()
}

fn nodes(echo: &Echo, cluster: &str) -> Vec<String> {
    let input = json!({ "cluster": cluster, "window": "all" });
    let (status, answer) = echo.post("fleet.cluster.event_history", &input);
    assert_eq!(status, 200, "{answer}");
    let events = answer["events"].as_array().unwrap();
    let node = |event: &Value| event["node_id"].as_str().unwrap().to_owned();
    let mut nodes: Vec<String> = events.iter().map(node).collect();
    nodes.sort_unstable();
    nodes
}

#[test]
fn points_without_a_cluster_are_rejected_unless_there_is_a_default_one() {
    let folder = tempfile::tempdir().unwrap();
    let strict = Echo::serve(&folder.path().join("strict.duckdb"));
    let answer = sent(&strict, &request(&[]));
    let message = answer["partialSuccess"]["errorMessage"].as_str().unwrap();
    assert!(message.contains("--default-cluster"), "{answer}");

    let flags = ["--default-cluster", "lab"];
    let lenient = Echo::serve_with(&folder.path().join("lenient.duckdb"), &flags);
    for resource in [&[][..], &[("k8s.cluster.name", "prod")]] {
        let answer = sent(&lenient, &request(resource));
        assert_eq!(answer["partialSuccess"], Value::Null, "{answer}");
    }
    for cluster in ["lab", "prod"] {
        assert_eq!(nodes(&lenient, cluster), ["gpu-1", "gpu-2"]);
    }
}
