//! Requests in JSON: answered in JSON, and else like those in protobuf.

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
use crate::otlp::tests::crowd;

const JSON: (&str, &str) = ("content-type", "application/json");

/// A block as an SDK writes it.
fn block(n_points: usize) -> Vec<u8> {
    let points = vec![wait(); n_points];
    serde_json::to_vec(&request(rank_2(), vec![waits(points)])).unwrap()
}

#[tokio::test]
async fn a_success_is_an_empty_object_with_the_two_scalars() {
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
async fn compressed_and_large_requests_are_translated_aside() {
    let collector = Collector::with_defaults().await;
    for (compression, n_points) in Compression::ALL.into_iter().zip(1..) {
        let headers = [JSON, ("content-encoding", compression.name())];
        let packed = compress(compression, &block(n_points));
        let (answer, body) = post(&collector, METRICS, &headers, packed).await;
        assert_eq!(answer.status(), 200, "{body:?}");
    }
    let (answer, _) = post(&collector, METRICS, &[JSON], block(500)).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(collector.store.events(), 1 + 2 + 500);
}

#[tokio::test]
async fn rejections_are_told_with_the_names_of_the_mapping() {
    let collector = Collector::with_defaults().await;
    let points = vec![gauge(1.0), gauge(1.0)];
    let body = serde_json::to_string(&request(rank_2(), vec![gauges("g", "", points)]));
    // The first of them is no number, for which JSON has a name only in OTLP.
    let body = body
        .unwrap()
        .replacen("\"asDouble\":1.0", "\"asDouble\":\"NaN\"", 1);
    let (answer, body) = post(&collector, METRICS, &[JSON], body).await;
    assert_eq!(answer.status(), 200);
    let told: Value = serde_json::from_slice(&body).unwrap();
    let text =
        "rejected 1 of 2 points: 1 no_value (the point or one of its exemplars has no value)";
    let partial = json!({"rejectedDataPoints": "1", "errorMessage": text});
    assert_eq!(told, json!({"partialSuccess": partial}));

    let mut other = straggler();
    other.event_name = "other".to_owned();
    let body = serde_json::to_vec(&records(rank_2(), vec![straggler(), other])).unwrap();
    let (_, body) = post(&collector, "/v1/logs", &[JSON], body).await;
    let told: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(told["partialSuccess"]["rejectedLogRecords"], "1");

    let unnamed = Span {
        name: String::new(),
        ..span()
    };
    let body = serde_json::to_vec(&spans(rank_2(), vec![span(), unnamed])).unwrap();
    let (_, body) = post(&collector, "/v1/traces", &[JSON], body).await;
    let told: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(told["partialSuccess"]["rejectedSpans"], "1");
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
async fn what_is_no_request_is_refused_for_good_with_the_place() {
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
async fn too_much_is_refused_before_and_after_the_translation() {
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
async fn a_small_body_that_takes_much_memory_to_read_is_refused_unread() {
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
async fn a_full_collector_says_when_to_come_back() {
    let config = IngestConfig {
        max_bytes: 4_000,
        ..IngestConfig::default()
    };
    let collector = Collector::start(config, RecordingStore::default()).await;
    let taken = crowd(&collector.ingest);
    let (answer, body) = post(&collector, METRICS, &[JSON], block(1)).await;
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.headers()["retry-after"], "1");
    let status: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(status["code"], 14);
    drop(taken);
}
