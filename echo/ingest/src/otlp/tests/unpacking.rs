//! Compressed requests, which take up memory before anybody knows how much.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use echo_core::error;
use fleet_proto::metadata;
use prost::Message;
use tokio_stream::StreamExt;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::collector::Collector;
use super::{block, others};
use crate::accept::IngestConfig;
use crate::admit::AdmissionConfig;
use crate::fixture::store::RecordingStore;
use crate::otlp::unpack::Compression;
use crate::otlp::unpack::tests::pack;
use crate::otlp::{EXPORT_METRICS, MetricsService};

/// Of the senders of compressed requests.
static NAMES: AtomicU64 = AtomicU64::new(0);

type Call = <MetricsService as Service<http::Request<Body>>>::Future;

/// Memory for `requests` compressed requests, and how long others wait for it.
fn room_for(requests: u32, unpacking_wait: Duration) -> IngestConfig {
    IngestConfig {
        max_message_bytes: 1_000_000,
        admission: AdmissionConfig {
            max_unpacking_bytes: requests * 1_000_000,
            unpacking_wait,
            ..AdmissionConfig::default()
        },
    }
}

/// A call with a whole compressed message whose stream ends, or does not.
fn compressed(collector: &Collector, ends: bool) -> Call {
    compressed_with(Compression::Gzip, collector, ends)
}

fn compressed_with(compression: Compression, collector: &Collector, ends: bool) -> Call {
    let packed = pack(compression, &block().encode_to_vec());
    let mut frame = vec![1];
    frame.extend(u32::try_from(packed.len()).unwrap().to_be_bytes());
    frame.extend(packed);
    let whole = tokio_stream::iter([Ok::<_, Infallible>(Bytes::from(frame))]);
    let body = if ends {
        axum::body::Body::from_stream(whole)
    } else {
        axum::body::Body::from_stream(whole.chain(tokio_stream::pending()))
    };
    let request = http::Request::post(EXPORT_METRICS)
        .header("content-type", "application/grpc")
        .header("grpc-encoding", compression.name())
        // Everybody may wait for the memory of one request, so each of these is somebody else.
        .header(
            metadata::AGENT_INSTANCE,
            NAMES.fetch_add(1, Ordering::Relaxed),
        )
        .header(metadata::BATCH_NUMBER, 1)
        .body(Body::new(body));
    MetricsService::new(collector.ingest.clone()).call(request.unwrap())
}

/// Goes as far as it can without waiting.
async fn is_stalled(call: &mut Call) -> bool {
    poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await
}

async fn refusal(call: Call) -> Option<Status> {
    let response = call.await.unwrap();
    Status::from_header_map(response.headers())
}

#[tokio::test]
async fn stalled_requests_hold_no_more_than_the_budget() {
    let config = room_for(3, Duration::ZERO);
    let collector = Collector::start(config, RecordingStore::default()).await;
    let mut stalled = Vec::new();
    for _ in 0..3 {
        let mut call = compressed(&collector, false);
        assert!(is_stalled(&mut call).await);
        stalled.push(call);
    }
    for _ in 0..20 {
        let status = refusal(compressed(&collector, false)).await.unwrap();
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
        assert!(status.get_details_retry_info().is_some());
    }
    assert_eq!(collector.ingest.stats().failed(error::Code::Busy), 20);
    // What is not compressed does not need that memory.
    collector.client().await.export(block()).await.unwrap();
    drop(stalled);
    assert!(refusal(compressed(&collector, true)).await.is_none());
}

#[tokio::test]
async fn zstd_takes_up_memory_for_what_it_may_refer_to_as_well() {
    let config = room_for(3, Duration::ZERO);
    let collector = Collector::start(config, RecordingStore::default()).await;
    let mut stalled = compressed_with(Compression::Zstd, &collector, false);
    assert!(is_stalled(&mut stalled).await);
    let second = compressed_with(Compression::Zstd, &collector, true);
    assert_eq!(refusal(second).await.unwrap().code(), Code::Unavailable);
    assert!(refusal(compressed(&collector, true)).await.is_none());
    drop(stalled);
    let alone = compressed_with(Compression::Zstd, &collector, true);
    assert!(refusal(alone).await.is_none());
}

#[tokio::test]
async fn a_request_waits_for_the_memory_of_another() {
    let config = room_for(1, Duration::from_hours(1));
    let collector = Collector::start(config, RecordingStore::default()).await;
    let mut first = compressed(&collector, false);
    assert!(is_stalled(&mut first).await);
    let mut second = compressed(&collector, true);
    assert!(is_stalled(&mut second).await);
    drop(first);
    assert!(refusal(second).await.is_none());
    assert_eq!(collector.store.events(), 1);
}

#[tokio::test]
async fn a_message_that_was_admitted_leaves_its_place_to_the_next() {
    let (store, gate) = RecordingStore::gated();
    let collector = Collector::start(room_for(1, Duration::ZERO), store).await;
    let next = async {
        gate.entered().await;
        let free = collector
            .ingest
            .unpacking(&others(), 1_000_000)
            .await
            .is_ok();
        gate.open();
        free
    };
    let (refused, free) = tokio::join!(refusal(compressed(&collector, true)), next);
    assert!(refused.is_none(), "{refused:?}");
    assert!(free);
}

#[tokio::test]
async fn a_body_that_does_not_end_is_cut_off() {
    let mut config = room_for(1, Duration::ZERO);
    config.admission.arrival_deadline = Duration::from_millis(1);
    let collector = Collector::start(config, RecordingStore::default()).await;
    let status = refusal(compressed(&collector, false)).await.unwrap();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    assert_eq!(collector.ingest.stats().failed(error::Code::Timeout), 1);
    assert!(
        collector
            .ingest
            .unpacking(&others(), 1_000_000)
            .await
            .is_ok()
    );
    assert_eq!(collector.store.events(), 0);
}
