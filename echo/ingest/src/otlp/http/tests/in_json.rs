//! Tests of requests in JSON. Responses are in JSON, too.

use echo_core::error::Code;
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::{Value, json};

use super::{METRICS, post};
use crate::accept::IngestConfig;
use crate::fixture::store::RecordingStore;
use crate::fixture::{
    gauge, gauges, rank_2, records, request, span, spans, straggler, wait, waits,
};
use crate::otlp::decompress::Compression;
use crate::otlp::decompress::tests::compress;
use crate::otlp::tests::collector::Collector;
use crate::otlp::tests::reserve_for_others;

const JSON: (&str, &str) = ("content-type", "application/json");

/// Request with this number of points, encoded as by an SDK.
fn block(n_points: usize) -> Vec<u8> {
    let points = vec![wait(); n_points];
    serde_json::to_vec(&request(rank_2(), vec![waits(points)])).unwrap()
}

#[tokio::test]
async fn a_success_is_an_empty_object_with_headers_for_ingero_agents() {
    let collector = Collector::with_defaults().await;
    let kinds = ["application/json", "Application/JSON; charset=utf-8"];
    for (kind, n_points) in kinds.into_iter().zip(1..) {
        let headers = [("content-type", kind)];
        let (answer, body) = post(&collector, METRICS, &headers, block(n_points)).await;
        assert_eq!(answer.status(), 200, "{body:?}");
        assert_eq!(answer.headers()["content-type"], "application/json");
        assert_eq!(answer.headers()["x-ingero-threshold"], "0.75");
        assert_eq!(&*body, b"{}");
    }
    assert_eq!(collector.store.events(), 1 + 2);
}

#[tokio::test]
async fn compressed_and_large_requests_are_transcoded_on_a_blocking_thread() {
    let collector = Collector::with_defaults().await;
    for (compression, n_points) in Compression::ALL.into_iter().zip(1..) {
        let headers = [JSON, ("content-encoding", compression.name())];
        let compressed = compress(compression, &block(n_points));
        let (answer, body) = post(&collector, METRICS, &headers, compressed).await;
        assert_eq!(answer.status(), 200, "{body:?}");
    }
    let (answer, _) = post(&collector, METRICS, &[JSON], block(500)).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(collector.store.events(), 1 + 2 + 500);
}

#[tokio::test]
async fn rejections_are_reported_with_the_names_of_the_json_mapping() {
    let collector = Collector::with_defaults().await;
    let points = vec![gauge(1.0), gauge(1.0)];
    let body = serde_json::to_string(&request(rank_2(), vec![gauges("g", "", points)]));
    // The first value becomes NaN, which the JSON mapping writes as a string.
    let body = body
        .unwrap()
        .replacen("\"asDouble\":1.0", "\"asDouble\":\"NaN\"", 1);
    let (answer, body) = post(&collector, METRICS, &[JSON], body).await;
    assert_eq!(answer.status(), 200);
    let response: Value = serde_json::from_slice(&body).unwrap();
    let text =
        "rejected 1 of 2 points: 1 no_value (the point or one of its exemplars has no value)";
    let partial = json!({"rejectedDataPoints": "1", "errorMessage": text});
    assert_eq!(response, json!({"partialSuccess": partial}));

    let mut other = straggler();
    other.event_name = "other".to_owned();
    let body = serde_json::to_vec(&records(rank_2(), vec![straggler(), other])).unwrap();
    let (_, body) = post(&collector, "/v1/logs", &[JSON], body).await;
    let response: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(response["partialSuccess"]["rejectedLogRecords"], "1");

    let unnamed = Span {
        name: String::new(),
        ..span()
    };
    let body = serde_json::to_vec(&spans(rank_2(), vec![span(), unnamed])).unwrap();
    let (_, body) = post(&collector, "/v1/traces", &[JSON], body).await;
    let response: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(response["partialSuccess"]["rejectedSpans"], "1");
    assert_eq!(collector.store.events(), 3);
}

#[tokio::test]
async fn a_batch_that_is_sent_twice_is_stored_once() {
    let collector = Collector::with_defaults().await;
    for _ in 0..2 {
        let (answer, _) = post(&collector, METRICS, &[JSON], block(1)).await;
        assert_eq!(answer.status(), 200);
    }
    assert_eq!(collector.store.events(), 1);
    assert_eq!(collector.ingest.stats().duplicates(), 1);
}

#[tokio::test]
async fn a_malformed_body_is_refused_with_the_path_of_the_error() {
    let collector = Collector::with_defaults().await;
    let body = r#"{"resourceMetrics":[{"scopeMetrics":{}}]}"#;
    let (answer, body) = post(&collector, METRICS, &[JSON], body).await;
    assert_eq!(answer.status(), 400);
    assert_eq!(answer.headers()["content-type"], "application/json");
    let status: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(status["code"], 3);
    let message = status["message"].as_str().unwrap();
    assert!(
        message.contains("resourceMetrics[0].scopeMetrics: invalid type"),
        "{message}"
    );
    assert_eq!(collector.ingest.stats().failed(Code::Invalid), 1);
}

#[tokio::test]
async fn a_body_over_the_size_limit_is_refused_before_and_after_transcoding() {
    let config = IngestConfig {
        max_message_bytes: 10_000,
        ..IngestConfig::default()
    };
    let collector = Collector::start(config, RecordingStore::default()).await;
    let (answer, _) = post(&collector, METRICS, &[JSON], block(500)).await;
    assert_eq!(answer.status(), 413);
    let zeros = vec!["0"; 2_000].join(",");
    let grows = format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"histogram":{{"dataPoints":[
            {{"explicitBounds":[{zeros}]}}]}}}}]}}]}}]}}"#
    );
    assert!(grows.len() < 5_000);
    let (answer, _) = post(&collector, METRICS, &[JSON], grows).await;
    assert_eq!(answer.status(), 413);
    assert_eq!(collector.ingest.stats().failed(Code::TooLarge), 2);
}

#[tokio::test]
async fn a_small_body_that_needs_much_memory_to_parse_is_refused_before() {
    let config = IngestConfig {
        max_bytes: 2_000_000,
        ..IngestConfig::default()
    };
    let collector = Collector::start(config, RecordingStore::default()).await;
    let resources = |n| format!(r#"{{"resourceMetrics":[{}]}}"#, vec!["{}"; n].join(","));
    let (answer, body) = post(&collector, METRICS, &[JSON], resources(1_000)).await;
    assert_eq!(answer.status(), 413, "{body:?}");
    let (answer, body) = post(&collector, METRICS, &[JSON], resources(500)).await;
    assert_eq!(answer.status(), 200, "{body:?}");
}

#[tokio::test]
async fn a_full_collector_returns_a_retry_delay() {
    let config = IngestConfig {
        max_bytes: 4_000,
        ..IngestConfig::default()
    };
    let collector = Collector::start(config, RecordingStore::default()).await;
    let reserved = reserve_for_others(&collector.ingest);
    let (answer, body) = post(&collector, METRICS, &[JSON], block(1)).await;
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.headers()["retry-after"], "1");
    let status: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(status["code"], 14);
    drop(reserved);
}
