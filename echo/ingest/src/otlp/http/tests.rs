use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, Response};
use bytes::Bytes;
use echo_core::error::Code;
use fleet_proto::metadata;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use prost::Message;
use tokio_stream::StreamExt;
use tower::ServiceExt;

use super::router;
use crate::accept::IngestConfig;
use crate::fixture::store::RecordingStore;
use crate::fixture::{gauge, gauges, rank_2, records, request, straggler, wait, waits};
use crate::otlp::decompress::Compression;
use crate::otlp::decompress::tests::compress;
use crate::otlp::tests::collector::Collector;
use crate::otlp::tests::reserve_for_others;

mod in_json;

const PROTOBUF: &str = "application/x-protobuf";
const METRICS: &str = "/v1/metrics";

fn block() -> Vec<u8> {
    request(rank_2(), vec![waits(vec![wait()])]).encode_to_vec()
}

/// Sends a body with these headers. Returns the response and its body.
async fn post(
    collector: &Collector,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Body>,
) -> (Response<()>, Bytes) {
    let mut request = Request::post(path);
    let typed = headers.iter().any(|(name, _)| *name == "content-type");
    if !typed {
        request = request.header("content-type", PROTOBUF);
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(body.into()).unwrap();
    let answer = router(collector.ingest.clone()).oneshot(request).await;
    let (parts, body) = answer.unwrap().into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    (Response::from_parts(parts, ()), body)
}

fn status(body: Bytes) -> tonic_types::Status {
    tonic_types::Status::decode(body).unwrap()
}

#[tokio::test]
async fn a_success_means_stored_and_has_the_headers_for_ingero_agents() {
    let collector = Collector::with_defaults().await;
    let plain = (vec![], block());
    let compressed = Compression::ALL
        .into_iter()
        .zip(2..)
        .map(|(compression, n_points)| {
            let other = request(rank_2(), vec![waits(vec![wait(); n_points])]);
            let compressed = compress(compression, &other.encode_to_vec());
            (vec![("content-encoding", compression.name())], compressed)
        });
    for (headers, body) in [plain].into_iter().chain(compressed) {
        let (answer, body) = post(&collector, METRICS, &headers, body).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["content-type"], PROTOBUF);
        assert_eq!(answer.headers()["x-ingero-threshold"], "0.75");
        assert_eq!(answer.headers()["x-ingero-quorum-met"], "true");
        let answer = ExportMetricsServiceResponse::decode(body).unwrap();
        assert_eq!(answer.partial_success, None);
    }
    assert_eq!(collector.store.events(), 1 + 2 + 3);
    assert_eq!(collector.ingest.stats().requests(), 3);
}

#[tokio::test]
async fn rejections_are_reported_in_the_body() {
    let collector = Collector::with_defaults().await;
    let points = vec![gauge(1.0), gauge(f64::NAN)];
    let body = request(rank_2(), vec![gauges("g", "", points)]).encode_to_vec();
    let (answer, body) = post(&collector, METRICS, &[], body).await;
    assert_eq!(answer.status(), 200);
    let partial = ExportMetricsServiceResponse::decode(body).unwrap();
    assert_eq!(partial.partial_success.unwrap().rejected_data_points, 1);

    let body = records(rank_2(), vec![straggler(), LogRecord::default()]).encode_to_vec();
    let (answer, body) = post(&collector, "/v1/logs", &[], body).await;
    assert_eq!(answer.status(), 200);
    let partial = ExportLogsServiceResponse::decode(body).unwrap();
    assert_eq!(partial.partial_success.unwrap().rejected_log_records, 1);
    assert_eq!(collector.store.events(), 2);
}

#[tokio::test]
async fn numbered_batches_are_stored_once() {
    let collector = Collector::with_defaults().await;
    let number = [
        (metadata::AGENT_INSTANCE, "agent"),
        (metadata::BATCH_NUMBER, "1"),
    ];
    for _ in 0..2 {
        let (answer, _) = post(&collector, METRICS, &number, block()).await;
        assert_eq!(answer.status(), 200);
    }
    assert_eq!(collector.store.events(), 1);
    let (answer, body) = post(&collector, METRICS, &number[..1], block()).await;
    assert_eq!(answer.status(), 400);
    assert!(status(body).message.contains("fleet-batch-number"));
}

#[tokio::test]
async fn errors_for_unknown_types_and_compressions_list_the_supported_ones() {
    let collector = Collector::with_defaults().await;
    for (headers, expected) in [
        (("content-type", "text/plain"), "http/protobuf"),
        (("content-type", ""), "application/json"),
        (("content-encoding", "br"), "gzip, zstd"),
    ] {
        let (answer, body) = post(&collector, METRICS, &[headers], block()).await;
        assert_eq!(answer.status(), 415, "{headers:?}");
        let body = String::from_utf8_lossy(&body);
        assert!(body.contains(expected), "{body}");
    }
    assert_eq!(collector.ingest.stats().failed(Code::Invalid), 3);
    assert_eq!(collector.store.batches(), 0);
}

#[tokio::test]
async fn a_malformed_body_is_refused_without_retry() {
    let collector = Collector::with_defaults().await;
    let garbage = b"\xff\xfe this is no protobuf".to_vec();
    let (answer, body) = post(&collector, METRICS, &[], garbage.clone()).await;
    assert_eq!(answer.status(), 400);
    assert!(status(body).message.contains("ExportMetricsServiceRequest"));
    for name in Compression::ALL.map(Compression::name) {
        let compressed = [("content-encoding", name)];
        let (answer, body) = post(&collector, METRICS, &compressed, garbage.clone()).await;
        assert_eq!(answer.status(), 400);
        assert!(status(body).message.contains(name));
    }
}

#[tokio::test]
async fn a_body_over_the_size_limit_is_refused_compressed_or_not() {
    let config = IngestConfig {
        max_message_bytes: 10_000,
        ..IngestConfig::default()
    };
    let collector = Collector::start(config, RecordingStore::default()).await;
    let large = request(rank_2(), vec![waits(vec![wait(); 1_000])]).encode_to_vec();
    for compression in Compression::ALL {
        let compressed = compress(compression, &large);
        let headers = [("content-encoding", compression.name())];
        let (answer, _) = post(&collector, METRICS, &headers, compressed).await;
        assert_eq!(answer.status(), 413);
    }
    let (answer, body) = post(&collector, METRICS, &[], large).await;
    assert_eq!(answer.status(), 413);
    assert!(status(body).message.contains("10000"));
    assert_eq!(collector.ingest.stats().failed(Code::TooLarge), 3);
}

#[tokio::test]
async fn a_full_collector_returns_a_retry_delay() {
    let config = IngestConfig {
        max_bytes: 4_000,
        ..IngestConfig::default()
    };
    let collector = Collector::start(config, RecordingStore::default()).await;
    let reserved = reserve_for_others(&collector.ingest);
    let (answer, body) = post(&collector, METRICS, &[], block()).await;
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.headers()["retry-after"], "1");
    assert_eq!(status(body).code, 14);
    drop(reserved);
    let (answer, _) = post(&collector, METRICS, &[], block()).await;
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn a_body_that_does_not_end_times_out_and_releases_its_memory() {
    let config = IngestConfig {
        max_bytes: 2_000,
        arrival_deadline: Duration::from_millis(1),
        ..IngestConfig::default()
    };
    let collector = Collector::start(config, RecordingStore::default()).await;
    let first = tokio_stream::iter([Ok::<_, Infallible>(Bytes::from(vec![0; 900]))]);
    let endless = Body::from_stream(first.chain(tokio_stream::pending()));
    let (answer, _) = post(&collector, METRICS, &[], endless).await;
    assert_eq!(answer.status(), 504);
    assert_eq!(collector.ingest.budget().used(), 0);
}

#[tokio::test]
async fn other_paths_and_methods_are_unknown() {
    let collector = Collector::with_defaults().await;
    let (answer, _) = post(&collector, "/v1development/profiles", &[], block()).await;
    assert_eq!(answer.status(), 404);
    let get = Request::get(METRICS).body(Body::empty()).unwrap();
    let answer = router(collector.ingest.clone()).oneshot(get).await.unwrap();
    assert_eq!(answer.status(), 405);
}
