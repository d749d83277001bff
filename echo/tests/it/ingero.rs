//! An unmodified Ingero agent as a client: it pushes a health score with its own attributes, over
//! gRPC or HTTP, and receives the threshold of its peers in the response.

use std::process::Command;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use serde_json::{Value, json};
use tonic::transport::Channel;

use crate::testbed::{ECHO, Echo};

const CLUSTER: &str = "ingero-prod";

/// Number of nodes of the cluster; the last one has a low score.
const N_NODES: i64 = 6;

/// Response headers for an agent.
#[derive(Debug)]
struct Headers {
    threshold: Option<f64>,
    quorum_met: String,
}

fn attribute(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

/// Returns the request of the agent of a node in the given round.
fn push(node: i64, round: u64, score: f64) -> ExportMetricsServiceRequest {
    let text = |text: String| any_value::Value::StringValue(text);
    let attributes = vec![
        attribute("ingero.cluster.id", text(CLUSTER.to_owned())),
        attribute("ingero.node.id", text(format!("gpu-{node}"))),
        attribute("ingero.node.rank", any_value::Value::IntValue(node)),
        attribute("ingero.world_size", any_value::Value::IntValue(N_NODES)),
    ];
    let point = NumberDataPoint {
        time_unix_nano: 1_763_700_000_000_000_000 + round * 10_000_000_000,
        value: Some(number_data_point::Value::AsDouble(score)),
        ..NumberDataPoint::default()
    };
    let metric = Metric {
        name: "ingero.node.health_score".to_owned(),
        data: Some(Data::Gauge(Gauge {
            data_points: vec![point],
        })),
        ..Metric::default()
    };
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes,
                ..Resource::default()
            }),
            scope_metrics: vec![ScopeMetrics {
                metrics: vec![metric],
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    }
}

async fn over_grpc(
    client: &mut MetricsServiceClient<Channel>,
    request: ExportMetricsServiceRequest,
) -> Option<Headers> {
    let response = client.export(request).await.unwrap();
    let header = |name: &str| {
        let value = response.metadata().get(name)?;
        Some(value.to_str().unwrap().to_owned())
    };
    let threshold = header("ingero-threshold").map(|text| text.parse().unwrap());
    assert_eq!(response.get_ref().partial_success, None);
    Some(Headers {
        threshold,
        quorum_met: header("ingero-quorum-met")?,
    })
}

fn over_http(echo: &Echo, request: &ExportMetricsServiceRequest) -> Option<Headers> {
    let url = format!("http://{}/v1/metrics", echo.otlp_http);
    let response = ureq::post(&url)
        .header("content-type", "application/x-protobuf")
        .send(&request.encode_to_vec()[..])
        .unwrap();
    let header = |name: &str| {
        let value = response.headers().get(name)?;
        Some(value.to_str().unwrap().to_owned())
    };
    let threshold = header("x-ingero-threshold").map(|text| text.parse().unwrap());
    Some(Headers {
        threshold,
        quorum_met: header("x-ingero-quorum-met")?,
    })
}

/// Pushes once per node, even nodes over gRPC and odd ones over HTTP. Returns the last headers over
/// gRPC and over HTTP.
async fn all_push(echo: &Echo, round: u64, last_score: f64) -> (Option<Headers>, Option<Headers>) {
    let mut client = MetricsServiceClient::connect(format!("http://{}", echo.otlp))
        .await
        .unwrap();
    let (mut grpc, mut http) = (None, None);
    for (node, score) in (0..N_NODES).zip([0.95, 0.94, 0.96, 0.95, 0.93, last_score]) {
        let request = push(node, round, score);
        if node % 2 == 0 {
            grpc = over_grpc(&mut client, request).await;
        } else {
            http = over_http(echo, &request);
        }
    }
    (grpc, http)
}

fn threshold(echo: &Echo, cluster: &str) -> (u16, Value) {
    let url = format!("http://{}/api/v1/threshold?cluster_id={cluster}", echo.http);
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    let agent = ureq::Agent::new_with_config(config.build());
    let mut response = agent.get(&url).call().unwrap();
    let status = response.status().as_u16();
    (status, response.body_mut().read_json().unwrap())
}

fn assert_threshold(headers: Option<Headers>) {
    let headers = headers.unwrap();
    assert_eq!(headers.quorum_met, "true");
    let threshold = headers.threshold.unwrap();
    assert!((0.8..0.93).contains(&threshold), "{threshold}");
}

// The connections need their own thread: this one blocks while it waits for other processes.
#[test]
async fn an_ingero_agent_gets_its_threshold_and_a_low_score_is_reported_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("fleet.duckdb");
    let echo = Echo::serve(&db);
    assert_eq!(threshold(&echo, CLUSTER).0, 404);
    all_push(&echo, 0, 0.95).await;
    echo.caught_up();
    let (mut grpc, mut http) = (None, None);
    for round in 1..4 {
        (grpc, http) = all_push(&echo, round, 0.41).await;
    }
    assert_threshold(grpc);
    assert_threshold(http);
    echo.caught_up();

    let (status, known) = threshold(&echo, CLUSTER);
    assert_eq!(status, 200);
    assert_eq!(known["quorum_met"], true, "{known}");
    assert_eq!(
        (&known["nodes_reporting"], &known["k"]),
        (&json!(6), &json!(3.5))
    );
    let found = echo.query("find_outlier_nodes", CLUSTER);
    let [node] = &found["outliers"].as_array().unwrap()[..] else {
        panic!("{found:#}");
    };
    assert_eq!(node["role"], "unhealthy_node");
    assert_eq!(
        (&node["node_id"], &node["rank"]),
        (&json!("gpu-5"), &json!(5))
    );
    assert_eq!(
        (&node["state"], &node["severity"]),
        (&json!("open"), &json!("critical"))
    );
    let reason = node["reason"].as_str().unwrap();
    let expected = "node gpu-5 (rank 5) reports health score 0.41, below the threshold 0.";
    assert!(reason.starts_with(expected), "{reason}");
    let input = json!({ "cluster": CLUSTER, "window": "all", "limit": 100 });
    let (_, history) = echo.post("fleet.cluster.event_history", &input);
    let events = history["events"].as_array().unwrap();
    let of_node = events.iter().filter(|event| event["node_id"] == "gpu-5");
    assert_eq!(of_node.count(), 4, "{history:#}");

    assert_eq!(echo.terminate(), 0);
    let again = Echo::serve(&db);
    again.caught_up();
    assert_eq!(threshold(&again, CLUSTER).1, known);
    assert_eq!(
        again.query("find_outlier_nodes", CLUSTER)["outliers"],
        found["outliers"]
    );
}

/// Pushes the scores of all nodes, without ranks.
async fn nodes_push(echo: &Echo, round: u64, last_score: f64) {
    let mut client = MetricsServiceClient::connect(format!("http://{}", echo.otlp))
        .await
        .unwrap();
    for (node, score) in (0..N_NODES).zip([0.95, 0.94, 0.96, 0.95, 0.93, last_score]) {
        let mut request = push(node, round, score);
        let resource = request.resource_metrics[0].resource.as_mut().unwrap();
        let is_of_rank = |one: &KeyValue| one.key.contains("rank") || one.key.contains("world");
        resource.attributes.retain(|one| !is_of_rank(one));
        over_grpc(&mut client, request).await;
    }
    echo.caught_up();
}

#[test]
async fn a_node_with_a_low_score_is_an_outlier_until_its_score_is_good_again() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    nodes_push(&echo, 0, 0.95).await;
    for round in 1..3 {
        nodes_push(&echo, round, 0.7).await;
    }
    let found = echo.query("find_outlier_nodes", CLUSTER);
    let node = &found["outliers"][0];
    assert_eq!(
        (&node["role"], &node["node_id"]),
        (&json!("unhealthy_node"), &json!("gpu-5"))
    );
    assert_eq!(
        (&node["rank"], &node["severity"]),
        (&Value::Null, &json!("warn"))
    );
    assert_eq!(echo.query("get_cost", CLUSTER)["contributors"], json!([]));
    let gate = |flags: &[&str]| {
        let mut command = Command::new(ECHO);
        command.args(["assert", "outliers", "--window", "all", "--max", "0"]);
        command.args(["--allow-missing", "--cluster", CLUSTER]);
        command.args(["--server", &format!("http://{}", echo.http)]);
        let output = command.args(flags).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let (code, printed) = gate(&[]);
    let expected = "conditions: 1, at most 0 (unhealthy_node gpu-5)";
    assert!(code == Some(1) && printed.contains(expected), "{printed}");
    let (code, printed) = gate(&["--allow-condition", "unhealthy_node"]);
    assert_eq!(code, Some(0), "{printed}");

    for round in 3..6 {
        nodes_push(&echo, round, 0.94).await;
    }
    let found = echo.query("find_outlier_nodes", CLUSTER);
    let node = &found["outliers"][0];
    assert_eq!(
        (&node["role"], &node["state"]),
        (&json!("unhealthy_node"), &json!("cleared"))
    );
    assert_eq!(node["cleared_at"], "2025-11-21T04:40:50.000Z", "{found:#}");
}
