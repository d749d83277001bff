//! The verdict of a rank about itself: sent as a log record, returned by the event history.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use serde_json::{Value, json};
use tonic::Request;

use crate::testbed::Echo;

fn attribute(key: &str, value: Any) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Any::StringValue(value.to_owned()))
}

/// Returns the verdict of rank 2 of 4 about itself, and a record that is not for Echo.
fn log_records() -> ExportLogsServiceRequest {
    let verdict = LogRecord {
        time_unix_nano: 1_763_700_000_000_000_000,
        event_name: "fleet.straggler".to_owned(),
        attributes: vec![
            text("fleet.straggler.state", "raised"),
            text("fleet.straggler.mode", "policy"),
            attribute("fleet.lag_ms", Any::DoubleValue(7.5)),
            attribute("fleet.policy_version", Any::IntValue(3)),
            text("nccl.comm_id_hash", "36210ed1bd447fe0"),
            attribute("nccl.seq_first", Any::IntValue(32)),
            attribute("nccl.seq_last", Any::IntValue(63)),
        ],
        ..LogRecord::default()
    };
    let resource = Resource {
        attributes: vec![
            text("fleet.cluster.id", "prod"),
            text("fleet.node.id", "node-1"),
            attribute("fleet.rank", Any::IntValue(2)),
            attribute("fleet.world_size", Any::IntValue(4)),
        ],
        ..Resource::default()
    };
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(resource),
            scope_logs: vec![ScopeLogs {
                log_records: vec![verdict, LogRecord::default()],
                ..ScopeLogs::default()
            }],
            ..ResourceLogs::default()
        }],
    }
}

#[test]
async fn a_verdict_sent_twice_is_stored_once_with_its_attributes() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    let mut client = LogsServiceClient::connect(format!("http://{}", echo.otlp))
        .await
        .unwrap();
    for _ in 0..2 {
        let mut request = Request::new(log_records());
        let metadata = request.metadata_mut();
        metadata.insert("fleet-agent-instance", "agent".parse().unwrap());
        metadata.insert("fleet-batch-number", "1".parse().unwrap());
        let response = client.export(request).await.unwrap().into_inner();
        let partial = response.partial_success.unwrap();
        assert_eq!(partial.rejected_log_records, 1);
    }
    let input = json!({ "cluster": "prod", "metric": "fleet.straggler", "window": "all" });
    let (status, answer) = echo.post("fleet.cluster.event_history", &input);
    assert_eq!(status, 200, "{answer}");
    let [event] = &answer["events"].as_array().unwrap()[..] else {
        panic!("{answer:#}");
    };
    assert_eq!(event["value_double"], 7.5);
    assert_eq!(event["unit"], "ms");
    assert_eq!(
        (&event["rank"], &event["seq_last"]),
        (&json!(2), &json!(63))
    );
    assert_eq!(event["comm_id"], "36210ed1bd447fe0");
    let attributes = match &event["attrs"] {
        Value::String(text) => serde_json::from_str(text).unwrap(),
        object => object.clone(),
    };
    assert_eq!(
        attributes,
        json!({
            "fleet.straggler.state": "raised", "fleet.straggler.mode": "policy", "fleet.policy_version": 3,
        })
    );
}
