//! Reports on processes, from an OTLP request to the tools about hosts.

use serde_json::{Value, json};

use crate::testbed::Echo;

/// 2026-06-01T00:00:00Z.
const START_NS: u64 = 1_780_272_000_000_000_000;

fn attributes(fields: &[(&str, Value)]) -> Value {
    let fields = fields.iter().map(|(key, value)| {
        let value = match value {
            Value::String(text) => json!({ "stringValue": text }),
            number if number.is_f64() => json!({ "doubleValue": number }),
            number => json!({ "intValue": number.to_string() }),
        };
        json!({ "key": key, "value": value })
    });
    fields.collect()
}

/// A point on the ten seconds up to `second`, with its value and attributes.
fn point(second: u64, value: &Value, fields: &[(&str, Value)]) -> Value {
    let mut point = value.clone();
    point["startTimeUnixNano"] = json!((START_NS + (second - 10) * 1_000_000_000).to_string());
    point["timeUnixNano"] = json!((START_NS + second * 1_000_000_000).to_string());
    point["attributes"] = attributes(fields);
    point
}

/// The request of an agent about a process without a rank.
fn request(second: u64) -> Value {
    let calls = point(
        second,
        &json!({ "count": "10", "sum": 20.0, "min": 1.0, "max": 9.0, "bucketCounts": [], "explicitBounds": [] }),
        &[
            ("fleet.function", json!("cudaMalloc")),
            ("fleet.p50_ms", json!(1.5)),
            ("fleet.p95_ms", json!(8.0)),
            ("fleet.p99_ms", json!(9.0)),
            ("fleet.durations_ns", json!("1500000=9 9000000=1")),
            ("fleet.bytes", json!(4_096)),
        ],
    );
    let chain = point(
        second,
        &json!({ "asDouble": 0.25 }),
        &[
            ("fleet.chain.cause", json!("memory_allocation")),
            ("fleet.chain.severity", json!("medium")),
            ("fleet.chain.summary", json!("cudaMalloc in the loop")),
            (
                "fleet.chain.links",
                json!("cudaMalloc 10 times\nforward() waits"),
            ),
        ],
    );
    let stack = point(
        second,
        &json!({ "asInt": "7" }),
        &[(
            "fleet.stack",
            json!("cudaMalloc\n[Python] train.py:142 in forward()"),
        )],
    );
    let resource = attributes(&[
        ("fleet.cluster.id", json!("lab")),
        ("fleet.node.id", json!("gpu-7")),
        ("process.pid", json!(4_711)),
        ("process.executable.name", json!("vllm")),
    ]);
    let metrics = json!([
        { "name": "fleet.process.calls_ms", "unit": "ms",
          "histogram": { "aggregationTemporality": 1, "dataPoints": [calls] } },
        { "name": "fleet.process.chain", "unit": "1", "gauge": { "dataPoints": [chain] } },
        { "name": "fleet.process.stack_samples", "unit": "{sample}",
          "sum": { "aggregationTemporality": 1, "isMonotonic": true, "dataPoints": [stack] } },
    ]);
    json!({ "resourceMetrics": [
        { "resource": { "attributes": resource }, "scopeMetrics": [{ "metrics": metrics }] },
    ] })
}

/// Sends what an agent reports about a process of the cluster `lab`.
pub(crate) fn report_process(echo: &Echo) {
    for second in [10, 20] {
        let url = format!("http://{}/v1/metrics", echo.otlp_http);
        let mut response = ureq::post(&url).send_json(request(second)).unwrap();
        let answer: Value = response.body_mut().read_json().unwrap();
        assert_eq!(answer["partialSuccess"], Value::Null, "{answer}");
    }
}

#[test]
fn what_an_agent_sends_about_a_process_is_what_the_tools_return() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    report_process(&echo);
    let query = |tool: &str| {
        let input = json!({ "cluster": "lab", "node": "gpu-7", "pid": 4_711, "window": "all" });
        let (status, answer) = echo.post(&format!("fleet.host.{tool}"), &input);
        assert_eq!(status, 200, "{answer}");
        answer
    };
    let calls = query("get_trace_stats");
    let function = &calls["functions"][0];
    assert_eq!(
        [
            &function["process"],
            &function["rank"],
            &function["n_calls"],
            &function["bytes"]
        ],
        [&json!("vllm"), &Value::Null, &json!(20), &json!(8_192)],
        "{calls}"
    );
    assert_eq!(
        [
            &function["p50_ms"],
            &function["worst_p99_ms"],
            &function["calls_per_s"]
        ],
        [&json!(1.5), &json!(9.0), &json!(1.0)]
    );
    let chains = query("get_causal_chains");
    let chain = &chains["chains"][0];
    assert_eq!(
        chain["links"],
        json!(["cudaMalloc 10 times", "forward() waits"]),
        "{chains}"
    );
    assert_eq!(
        [&chain["share"], &chain["peers"]],
        [&json!(0.25), &Value::Null]
    );
    let stacks = query("get_stacks");
    assert_eq!(stacks["stacks"][0]["samples"], 14, "{stacks}");
    assert_eq!(
        stacks["stacks"][0]["stack"][1],
        "[Python] train.py:142 in forward()"
    );
    let check = query("check");
    assert_eq!(check["nodes"][0]["processes_without_rank"], 1, "{check}");
}
