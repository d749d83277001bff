//! Tests of spans.

use bytes::Bytes;
use fleet_proto::metadata;
use opentelemetry_proto::tonic::trace::v1::Span;
use tonic::Code;

use super::collector::Collector;
use crate::decode::reject::RejectReason;
use crate::fixture::{rank_2, span, spans};
use crate::otlp::grpc::EXPORT_TRACES;

#[tokio::test]
async fn a_span_is_stored_once_and_the_response_has_the_policy() {
    let collector = Collector::with_defaults().await;
    let mut client = collector.traces_client().await;
    for _ in 0..2 {
        let response = client.export(spans(rank_2(), vec![span()])).await.unwrap();
        let metadata = response.metadata();
        assert_eq!(metadata.get(metadata::INGERO_THRESHOLD).unwrap(), "0.75");
        assert_eq!(response.into_inner().partial_success, None);
    }
    assert_eq!(collector.store.events(), 1);
}

#[tokio::test]
async fn rejected_spans_are_reported_and_others_stored() {
    let collector = Collector::with_defaults().await;
    let reserved = Span {
        name: "fleet.straggler".to_owned(),
        ..span()
    };
    let request = spans(rank_2(), vec![reserved, span()]);
    let mut client = collector.traces_client().await;
    let response = client.export(request).await.unwrap();
    let partial = response.into_inner().partial_success.unwrap();
    assert_eq!(partial.rejected_spans, 1);
    assert!(partial.error_message.contains("reserved_name"));
    assert_eq!(collector.store.events(), 1);
    let stats = collector.ingest.stats();
    assert_eq!(stats.rejected(RejectReason::ReservedName), 1);
}

#[tokio::test]
async fn a_malformed_body_is_refused_without_retry() {
    let collector = Collector::with_defaults().await;
    let garbage = Bytes::from_static(b"\xff\xfe this is no protobuf");
    let refused = collector.send_raw(EXPORT_TRACES, garbage).await;
    let status = refused.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("ExportTraceServiceRequest"));
}
