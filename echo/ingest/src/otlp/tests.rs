//! Tests of the gRPC services over a real connection.

#![expect(
    clippy::disallowed_methods,
    reason = "the test plays the part of `app`, which owns the tasks"
)]

use std::time::Duration;

use bytes::Bytes;
use echo_core::error;
use fleet_proto::metadata;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::HistogramDataPoint;
use tonic::codec::CompressionEncoding;
use tonic::{Code, Request};
use tonic_types::StatusExt;

use self::collector::Collector;
use super::grpc::EXPORT_METRICS;
use crate::accept::{Ingest, IngestConfig};
use crate::budget::Reservation;
use crate::fixture::store::RecordingStore;
use crate::fixture::{gauge, gauges, rank_2, request, text, wait, waits};
use crate::memory_account::MemoryAccount;

pub(super) mod collector;
mod crowded;
mod records;
mod spans;
mod unpacking;

fn block() -> ExportMetricsServiceRequest {
    request(rank_2(), vec![waits(vec![wait()])])
}

/// Reserves all but an eighth of 4,000 bytes for other senders.
pub(super) fn reserve_for_others(ingest: &Ingest) -> Vec<Reservation> {
    let reserved = [("x", 2_000), ("y", 1_000), ("z", 500)].map(|(name, bytes)| {
        let account = MemoryAccount::Agent(name.parse().unwrap());
        let mut reservation = ingest.budget().reserve(&account);
        reservation.grow(bytes).unwrap();
        reservation
    });
    reserved.into()
}

fn numbered(agent: &'static str, number: &'static str) -> Request<ExportMetricsServiceRequest> {
    let mut request = Request::new(block());
    let metadata = request.metadata_mut();
    metadata.insert(metadata::AGENT_INSTANCE, agent.parse().unwrap());
    metadata.insert(metadata::BATCH_NUMBER, number.parse().unwrap());
    request
}

#[tokio::test]
async fn a_success_means_that_the_points_are_stored() {
    let collector = Collector::with_defaults().await;
    let mut client = collector.client().await;
    let response = client.export(block()).await.unwrap();
    assert_eq!(response.into_inner().partial_success, None);
    assert_eq!(collector.store.events(), 1);
    let stats = collector.ingest.stats();
    assert_eq!((stats.requests(), stats.points_accepted()), (1, 1));
}

#[tokio::test]
async fn compressed_requests_are_accepted() {
    let collector = Collector::with_defaults().await;
    for (encoding, n_points) in [
        (CompressionEncoding::Gzip, 1),
        (CompressionEncoding::Zstd, 2),
    ] {
        let mut client = collector.client().await.send_compressed(encoding);
        let points = vec![wait(); n_points];
        client
            .export(request(rank_2(), vec![waits(points)]))
            .await
            .unwrap();
    }
    assert_eq!(collector.store.events(), 3);
}

#[tokio::test]
async fn a_large_request_is_decoded_on_a_blocking_thread_and_stored() {
    let collector = Collector::with_defaults().await;
    let points = vec![wait(); 2_000];
    let large = request(rank_2(), vec![waits(points)]);
    collector.client().await.export(large).await.unwrap();
    assert_eq!(collector.store.events(), 2_000);
}

#[tokio::test]
async fn the_response_has_the_policy_of_the_cluster() {
    let collector = Collector::with_defaults().await;
    let response = collector.client().await.export(block()).await.unwrap();
    let metadata = response.metadata();
    let policy = metadata.get_bin(metadata::POLICY).unwrap();
    assert_eq!(&*policy.to_bytes().unwrap(), b"\x08\x03");
    assert_eq!(metadata.get(metadata::INGERO_THRESHOLD).unwrap(), "0.75");
    assert_eq!(metadata.get(metadata::INGERO_QUORUM_MET).unwrap(), "true");
    let culprits = metadata.get_bin(metadata::CULPRITS).unwrap();
    assert_eq!(&*culprits.to_bytes().unwrap(), b"\x0a\x00");
}

#[tokio::test]
async fn a_node_learns_its_own_culprits_only() {
    let collector = Collector::with_defaults().await;
    let culprits = async |cluster, node| {
        let resource = vec![text("fleet.cluster.id", cluster), text("host.name", node)];
        let request = request(resource, vec![waits(vec![wait()])]);
        let response = collector.client().await.export(request).await.unwrap();
        let culprits = response.metadata().get_bin(metadata::CULPRITS);
        culprits.map(|value| value.to_bytes().unwrap().len())
    };
    assert_eq!(culprits("prod", "node-0").await, Some(2));
    assert_eq!(culprits("prod", "node-1").await, Some(0));
    assert_eq!(culprits("lab", "node-0").await, None);
}

#[tokio::test]
async fn an_unknown_cluster_gets_no_policy() {
    let collector = Collector::with_defaults().await;
    let resource = vec![text("fleet.cluster.id", "lab"), text("host.name", "n")];
    let request = request(resource, vec![waits(vec![wait()])]);
    let response = collector.client().await.export(request).await.unwrap();
    assert!(response.metadata().get_bin(metadata::POLICY).is_none());
    assert!(
        response
            .metadata()
            .get(metadata::INGERO_QUORUM_MET)
            .is_none()
    );
}

#[tokio::test]
async fn rejected_points_are_reported_and_others_stored() {
    let collector = Collector::with_defaults().await;
    let points = vec![gauge(1.0), gauge(f64::NAN)];
    let request = request(rank_2(), vec![gauges("g", "", points)]);
    let response = collector.client().await.export(request).await.unwrap();
    let partial = response.into_inner().partial_success.unwrap();
    assert_eq!(partial.rejected_data_points, 1);
    assert_eq!(
        partial.error_message,
        "rejected 1 of 2 points: 1 not_finite (a value is NaN or infinite)"
    );
    assert_eq!(collector.store.events(), 1);
}

#[tokio::test]
async fn a_request_without_a_valid_point_is_a_success() {
    let collector = Collector::with_defaults().await;
    let request = request(Vec::new(), vec![waits(vec![wait(), wait()])]);
    let response = collector.client().await.export(request).await.unwrap();
    let partial = response.into_inner().partial_success.unwrap();
    assert_eq!(partial.rejected_data_points, 2);
    assert_eq!(collector.store.batches(), 0);
}

#[tokio::test]
async fn an_empty_request_is_a_success() {
    let collector = Collector::with_defaults().await;
    let empty = ExportMetricsServiceRequest::default();
    let response = collector.client().await.export(empty).await.unwrap();
    assert_eq!(response.into_inner().partial_success, None);
    assert_eq!(collector.store.batches(), 0);
}

#[tokio::test]
async fn a_batch_that_is_sent_twice_is_stored_once() {
    let collector = Collector::with_defaults().await;
    let mut client = collector.client().await;
    client.export(block()).await.unwrap();
    client.export(block()).await.unwrap();
    assert_eq!(collector.store.events(), 1, "identified by its content");

    client.export(numbered("agent", "1")).await.unwrap();
    client.export(numbered("agent", "1")).await.unwrap();
    assert_eq!(collector.store.events(), 2, "identified by its number");
    client.export(numbered("agent", "2")).await.unwrap();
    assert_eq!(collector.store.events(), 3);
    assert_eq!(collector.ingest.stats().duplicates(), 2);
}

#[tokio::test]
async fn a_batch_with_an_incomplete_number_is_refused() {
    let collector = Collector::with_defaults().await;
    let mut request = numbered("agent", "1");
    request.metadata_mut().remove(metadata::BATCH_NUMBER);
    let status = collector.client().await.export(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("fleet-batch-number"));
    let request = numbered("agent", "one");
    let status = collector.client().await.export(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_malformed_body_is_refused_without_retry() {
    let collector = Collector::with_defaults().await;
    let garbage = Bytes::from_static(b"\xff\xfe this is no protobuf");
    let status = collector
        .send_raw(EXPORT_METRICS, garbage)
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("ExportMetricsServiceRequest"));
    let invalid = collector.ingest.stats().failed(error::Code::Invalid);
    assert_eq!(invalid, 1);
}

#[tokio::test]
async fn an_oversized_message_is_refused_while_others_are_served() {
    let collector = Collector::with_defaults().await;
    let mut neighbour = collector.client().await;
    let oversized = collector.send_raw(EXPORT_METRICS, Bytes::from(vec![0; 100_000_000]));
    let others = async {
        for _ in 0..20 {
            neighbour.export(block()).await.unwrap();
        }
    };
    let (oversized, ()) = tokio::join!(oversized, others);
    let status = oversized.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("16777216"), "{status:?}");
    assert!(status.get_details_retry_info().is_none());
    neighbour.export(block()).await.unwrap();
    let too_large = collector.ingest.stats().failed(error::Code::TooLarge);
    assert_eq!(too_large, 1);
}

#[tokio::test]
async fn a_message_that_decompresses_beyond_the_limit_is_refused() {
    let config = IngestConfig {
        max_message_bytes: 10_000,
        ..IngestConfig::default()
    };
    let collector = Collector::start(config, RecordingStore::default()).await;
    for encoding in [CompressionEncoding::Gzip, CompressionEncoding::Zstd] {
        let mut client = collector.client().await.send_compressed(encoding);
        let bomb = request(rank_2(), vec![waits(vec![wait(); 1_000])]);
        let status = client.export(bomb).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().contains("10000"), "{status:?}");
    }
}

#[tokio::test]
async fn a_full_collector_returns_a_retry_delay() {
    let (store, gate) = RecordingStore::gated();
    let config = IngestConfig {
        max_bytes: 4_000,
        ..IngestConfig::default()
    };
    let collector = Collector::start(config, store).await;
    let mut client = collector.client().await;
    let mut other = client.clone();
    let first = tokio::spawn(async move { client.export(numbered("a", "1")).await });
    gate.entered().await;
    let status = other.export(numbered("b", "1")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let retry = status.get_details_retry_info().unwrap();
    assert_eq!(retry.retry_delay, Some(Duration::from_secs(1)));
    gate.open();
    first.await.unwrap().unwrap();
    other.export(numbered("b", "1")).await.unwrap();
    assert_eq!(collector.store.events(), 2);
    assert_eq!(collector.ingest.stats().failed(error::Code::Busy), 1);
}

#[tokio::test]
async fn a_body_whose_events_exceed_the_budget_is_refused_before_decoding() {
    let config = IngestConfig {
        max_bytes: 4_000_000,
        ..IngestConfig::default()
    };
    let collector = Collector::start(config, RecordingStore::default()).await;
    let empty = vec![HistogramDataPoint::default(); 50_000];
    let request = request(rank_2(), vec![waits(empty)]);
    let status = collector.client().await.export(request).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("send smaller"), "{status:?}");
    assert!(status.get_details_retry_info().is_none());
}

#[tokio::test]
async fn a_store_that_does_not_respond_causes_a_timeout() {
    let (store, _gate) = RecordingStore::gated();
    let config = IngestConfig {
        append_deadline: Duration::ZERO,
        ..IngestConfig::default()
    };
    let collector = Collector::start(config, store).await;
    let status = collector.client().await.export(block()).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn an_error_of_the_store_is_retryable_and_reveals_no_details() {
    let collector = Collector::start(IngestConfig::default(), RecordingStore::broken()).await;
    let status = collector.client().await.export(block()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.get_details_retry_info().is_some(), "{status:?}");
    assert!(!status.message().contains("disk"), "{status:?}");
    assert_eq!(collector.ingest.stats().failed(error::Code::Busy), 1);
}

#[tokio::test]
async fn other_services_are_unknown() {
    let collector = Collector::with_defaults().await;
    for path in [
        "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export",
        "/opentelemetry.proto.collector.metrics.v1.MetricsService/Import",
    ] {
        let status = collector.send_raw(path, Bytes::new()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
    }
}
