//! Values that nothing measures: whatever a sender gets stored, no tool, page or view fails for others.

use serde_json::{Value, json};

use crate::testbed::{Echo, repository};

/// 21 November 2025.
const START_S: u64 = 1_763_700_000;

/// Text attributes, among them numbers as large as their text allows.
const ATTRIBUTES: [(&str, &str); 19] = [
    ("nccl.comm_id_hash", "ffffffffffffffff"),
    ("nccl.op_type", "AllReduce"),
    ("nccl.seq_first", "0"),
    ("nccl.seq_last", "9223372036854775807"),
    ("fleet.role", "ffffffffffffffff"),
    ("fleet.anchor_seq", "9223372036854775807"),
    (
        "fleet.mix",
        "AllReduce.7.9223372036854775807=18446744073709551615",
    ),
    ("process.pid", "4294967295"),
    ("process.executable.name", "python3"),
    ("fleet.function", "cudaMalloc"),
    ("fleet.stack", "main"),
    ("fleet.bytes", "18446744073709551615"),
    ("fleet.p99_ms", "1e300"),
    (
        "fleet.durations_ns",
        "9223372036854775807=18446744073709551615",
    ),
    ("fleet.chain.cause", "cpu_contention"),
    ("fleet.file.name", "threads.txt"),
    ("fleet.file.part", "4294967294"),
    ("fleet.file.parts", "4294967295"),
    ("fleet.file.content", "x"),
];

/// Numeric attributes.
const NUMBERS: [&str; 5] = [
    "fleet.iterations",
    "fleet.anchor_offset_ms",
    "fleet.age_ms",
    "fleet.lead_sum_ms",
    "fleet.lead_min_ms",
];

/// Names of all metrics of the wire contract; of a prefix, one metric with it.
fn metrics() -> Vec<String> {
    let source = std::fs::read_to_string(repository("proto/src/metric.rs")).unwrap();
    let constants = source.split(": &str = \"").skip(1);
    let names = constants.map(|rest| rest.split('"').next().unwrap());
    let whole = |name: &str| match name.strip_suffix('.') {
        Some(_) => format!("{name}other"),
        None => name.to_owned(),
    };
    names.map(whole).collect()
}

/// Points with extreme values, as the members of a point.
fn extremes() -> Vec<(&'static str, Value)> {
    let gauges = [
        json!({ "asDouble": 1e24 }),
        json!({ "asDouble": -1e24 }),
        json!({ "asDouble": 5e-324 }),
        json!({ "asInt": i64::MAX.to_string() }),
        json!({ "asInt": i64::MIN.to_string() }),
        json!({ "asInt": "-1" }),
    ];
    let most = (1_u64 << 53).to_string();
    let histograms = [
        json!({ "count": most, "sum": 1e24, "min": 0.0, "max": 1e24 }),
        json!({ "count": most, "sum": 0.0, "min": 0.0, "max": 0.0 }),
        json!({ "count": "1", "sum": 1e24, "min": 1e24, "max": 1e24 }),
        json!({ "count": "0", "sum": 0.0 }),
    ];
    let gauges = gauges.map(|point| ("gauge", point));
    gauges
        .into_iter()
        .chain(histograms.map(|point| ("histogram", point)))
        .collect()
}

fn attribute(key: &str, value: &Value) -> Value {
    json!({ "key": key, "value": value })
}

/// Returns a request of one rank with one point of a metric, at this second.
fn request(metric: &str, (kind, point): &(&str, Value), second: u64, rank: u64) -> Value {
    let texts = ATTRIBUTES.map(|(key, text)| attribute(key, &json!({ "stringValue": text })));
    let number = [1e24, 5e-324, 9_007_199_254_740_992.0][usize::try_from(second % 3).unwrap()];
    let numbers = NUMBERS.map(|key| attribute(key, &json!({ "doubleValue": number })));
    let attributes: Vec<Value> = texts.into_iter().chain(numbers).collect();
    let mut point = point.clone();
    point["attributes"] = json!(attributes);
    point["startTimeUnixNano"] = json!(format!("{}000000000", START_S + second - 1));
    point["timeUnixNano"] = json!(format!("{}000000000", START_S + second));
    let mut data = json!({ "dataPoints": [point] });
    if *kind == "histogram" {
        data["aggregationTemporality"] = json!(1);
    }
    let resource = [
        ("fleet.cluster.id", json!({ "stringValue": "extreme" })),
        (
            "fleet.node.id",
            json!({ "stringValue": format!("gpu-{rank}") }),
        ),
        ("fleet.rank", json!({ "intValue": rank.to_string() })),
        ("fleet.world_size", json!({ "intValue": "4" })),
    ];
    let resource: Vec<Value> = resource
        .iter()
        .map(|(key, value)| attribute(key, value))
        .collect();
    let mut metric = json!({ "name": metric, "unit": "" });
    metric[*kind] = data;
    json!({ "resourceMetrics": [{
        "resource": { "attributes": resource },
        "scopeMetrics": [{ "metrics": [metric] }],
    }] })
}

/// Sends every metric with every extreme value from each of four ranks. Returns the reasons for which
/// some were rejected.
fn send_all(echo: &Echo) -> Vec<String> {
    let url = format!("http://{}/v1/metrics", echo.otlp_http);
    let mut rejected = Vec::new();
    let cases = metrics().into_iter().flat_map(|metric| {
        extremes()
            .into_iter()
            .map(move |extreme| (metric.clone(), extreme))
    });
    for ((metric, extreme), second) in cases.zip(1..) {
        for rank in 0..4 {
            let body = request(&metric, &extreme, second, rank);
            let mut response = ureq::post(&url).send_json(&body).unwrap();
            let answer: Value = response.body_mut().read_json().unwrap();
            let message = answer["partialSuccess"]["errorMessage"].as_str();
            rejected.extend(message.map(str::to_owned));
        }
    }
    rejected
}

fn get(echo: &Echo, path: &str) -> (u16, String) {
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    let agent = ureq::Agent::new_with_config(config.build());
    let mut answer = agent
        .get(format!("http://{}{path}", echo.http))
        .call()
        .unwrap();
    (
        answer.status().as_u16(),
        answer.body_mut().read_to_string().unwrap(),
    )
}

/// Returns the names in a list that the server publishes.
fn listed(echo: &Echo, path: &str, list: &str) -> Vec<Value> {
    let listed: Value = serde_json::from_str(&get(echo, path).1).unwrap();
    listed[list].as_array().unwrap().clone()
}

/// Calls each tool, with what it requires and with more.
fn assert_tools_answer(echo: &Echo) {
    for tool in listed(echo, "/api/v1/tools", "tools") {
        let name = tool["name"].as_str().unwrap();
        let schema = &tool["input_schema"];
        if schema.pointer("/properties/sql").is_some() {
            continue;
        }
        let mut input = json!({ "window": "all" });
        let required = schema["required"].as_array().into_iter().flatten();
        for field in required.chain([&json!("cluster")]) {
            match field.as_str().unwrap() {
                "rank" => input["rank"] = json!(0),
                other => input[other] = json!("extreme"),
            }
        }
        for input in [
            input,
            json!({ "window": "all", "rank": 0, "cluster": "extreme" }),
        ] {
            let (status, answer) = echo.post(name, &input);
            assert!(
                status < 500 && status != 408,
                "{name} {input}: {status} {answer}"
            );
        }
    }
}

#[test]
fn no_stored_value_makes_a_tool_a_view_or_a_page_fail() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    let n_sent = metrics().len() * extremes().len() * 4;
    assert!(n_sent > 1_600, "{n_sent}");
    let rejected = send_all(&echo);
    assert!(
        rejected.len() < n_sent / 2,
        "{} of {n_sent}: {:?}",
        rejected.len(),
        rejected.last()
    );
    echo.caught_up();

    assert_tools_answer(&echo);
    let run = |sql: String| {
        let (status, answer) = echo.post("fleet.cluster.run_analysis", &json!({ "sql": sql }));
        assert_eq!(status, 200, "{sql}: {answer}");
    };
    for view in listed(&echo, "/api/v1/sql", "views") {
        let name = view["name"].as_str().unwrap();
        for column in view["columns"].as_array().unwrap() {
            run(format!(
                "SELECT max({}) FROM {name}",
                column["name"].as_str().unwrap()
            ));
        }
    }
    run("SELECT sum(samples) FROM process_stacks WHERE samples > 5".to_owned());
    for path in [
        "/",
        "/clusters/extreme?window=all",
        "/clusters/extreme/ranks/0?window=all",
        "/metrics",
        "/api/v1/cost.json?day=2025-11-21&open=true",
    ] {
        let (status, answer) = get(&echo, path);
        assert_eq!(status, 200, "{path}: {answer}");
    }
}
