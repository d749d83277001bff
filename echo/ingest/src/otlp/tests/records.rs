//! Tests of log records.

use bytes::Bytes;
use fleet_proto::metadata;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use tonic::codec::CompressionEncoding;
use tonic::{Code, Request};

use super::collector::Collector;
use super::{block, numbered};
use crate::accept::IngestConfig;
use crate::decode::reject::RejectReason;
use crate::fixture::store::RecordingStore;
use crate::fixture::{rank_2, records, straggler};
use crate::otlp::grpc::EXPORT_LOGS;

fn verdict() -> ExportLogsServiceRequest {
    records(rank_2(), vec![straggler()])
}

#[tokio::test]
async fn a_verdict_is_stored_and_the_response_has_the_policy() {
    let collector = Collector::with_defaults().await;
    let client = collector.logs_client().await;
    let mut client = client.send_compressed(CompressionEncoding::Gzip);
    let response = client.export(verdict()).await.unwrap();
    assert_eq!(
        response.metadata().get(metadata::INGERO_THRESHOLD).unwrap(),
        "0.75"
    );
    assert!(response.metadata().get_bin(metadata::POLICY).is_some());
    assert_eq!(response.into_inner().partial_success, None);
    assert_eq!(collector.store.events(), 1);
}

#[tokio::test]
async fn other_records_are_rejected_and_counted_and_verdicts_stored() {
    let collector = Collector::with_defaults().await;
    let request = records(rank_2(), vec![LogRecord::default(), straggler()]);
    let response = collector.logs_client().await.export(request).await.unwrap();
    let partial = response.into_inner().partial_success.unwrap();
    assert_eq!(partial.rejected_log_records, 1);
    assert_eq!(
        partial.error_message,
        "rejected 1 of 2 points: 1 unsupported_record (the event name of the log record is not fleet.straggler)"
    );
    assert_eq!(collector.store.events(), 1);
    let counted = collector
        .ingest
        .stats()
        .rejected(RejectReason::UnsupportedRecord);
    assert_eq!(counted, 1);
}

#[tokio::test]
async fn points_and_records_of_an_agent_share_batch_numbers() {
    let collector = Collector::with_defaults().await;
    let mut points = collector.client().await;
    points.export(numbered("agent", "1")).await.unwrap();
    let mut client = collector.logs_client().await;
    for number in ["1", "2", "2"] {
        let mut request = Request::new(verdict());
        let metadata = request.metadata_mut();
        metadata.insert(metadata::AGENT_INSTANCE, "agent".parse().unwrap());
        metadata.insert(metadata::BATCH_NUMBER, number.parse().unwrap());
        client.export(request).await.unwrap();
    }
    assert_eq!(collector.store.events(), 2);
    assert_eq!(collector.ingest.stats().duplicates(), 2);
}

#[tokio::test]
async fn a_malformed_body_is_refused_without_retry() {
    let collector = Collector::with_defaults().await;
    let garbage = Bytes::from_static(b"\xff\xfe this is no protobuf");
    let status = collector.send_raw(EXPORT_LOGS, garbage).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("ExportLogsServiceRequest"));
}

#[tokio::test]
async fn the_size_limit_is_that_of_metrics() {
    let config = IngestConfig {
        max_message_bytes: 1_000,
        ..IngestConfig::default()
    };
    let collector = Collector::start(config, RecordingStore::default()).await;
    let large = records(rank_2(), vec![straggler(); 100]);
    let status = collector
        .logs_client()
        .await
        .export(large)
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    collector.client().await.export(block()).await.unwrap();
}
