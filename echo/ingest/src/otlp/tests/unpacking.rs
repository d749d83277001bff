//! Tests of compressed requests and of bodies without an end. Both reserve memory before their size
//! is known.

use std::convert::Infallible;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use echo_core::error;
use fleet_proto::metadata;
use prost::Message;
use tokio_stream::StreamExt;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::block;
use super::collector::Collector;
use crate::accept::IngestConfig;
use crate::fixture::store::RecordingStore;
use crate::otlp::decompress::Compression;
use crate::otlp::decompress::tests::compress;
use crate::otlp::grpc::{EXPORT_METRICS, MetricsService};

type Call = <MetricsService as Service<http::Request<Body>>>::Future;

/// Returns a message with its prefix.
fn frame(flag: u8, message: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(flag);
    frame.put_u32(u32::try_from(message.len()).unwrap());
    frame.extend_from_slice(message);
    frame.freeze()
}

/// Calls the service as the agent with this name.
fn call(collector: &Collector, agent: &str, encoding: &str, body: axum::body::Body) -> Call {
    let request = http::Request::post(EXPORT_METRICS)
        .header("content-type", "application/grpc")
        .header("grpc-encoding", encoding)
        .header(metadata::AGENT_INSTANCE, agent)
        .header(metadata::BATCH_NUMBER, 1)
        .body(Body::new(body));
    MetricsService::new(collector.ingest.clone()).call(request.unwrap())
}

/// Returns a body that begins with these bytes and never ends.
fn endless(bytes: Bytes) -> axum::body::Body {
    let first = tokio_stream::iter([Ok::<_, Infallible>(bytes)]);
    axum::body::Body::from_stream(first.chain(tokio_stream::pending()))
}

/// Polls the call once, and returns whether it is waiting.
async fn is_stalled(call: &mut Call) -> bool {
    poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await
}

async fn refusal(call: Call) -> Option<Status> {
    let response = call.await.unwrap();
    Status::from_header_map(response.headers())
}

#[tokio::test]
async fn stalled_requests_reserve_memory_for_arrived_bytes_within_the_budget() {
    let config = IngestConfig {
        max_bytes: 40_000,
        ..IngestConfig::default()
    };
    let collector = Collector::start(config, RecordingStore::default()).await;
    let mut stalled = Vec::new();
    let mut refused = Vec::new();
    for number in 0..20 {
        let agent = format!("slow-{number}");
        let body = endless(Bytes::from(vec![0; 4_000]));
        let mut call = call(&collector, &agent, "gzip", body);
        if is_stalled(&mut call).await {
            stalled.push(call);
        } else {
            refused.push(agent);
        }
    }
    assert_eq!((stalled.len(), refused.len()), (9, 11));
    assert_eq!(collector.ingest.budget().used(), 36_000);
    assert_eq!(collector.ingest.stats().failed(error::Code::Busy), 11);
    let status = refusal(call(
        &collector,
        "late",
        "gzip",
        endless(Bytes::from(vec![0; 4_000])),
    ));
    let status = status.await.unwrap();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.get_details_retry_info().is_some());
    // A small request still fits.
    collector.client().await.export(block()).await.unwrap();
    drop(stalled);
    assert_eq!(collector.ingest.budget().used(), 0);
}

#[tokio::test]
async fn a_compressed_request_reserves_its_decompressed_size_and_releases_it() {
    let collector = Collector::with_defaults().await;
    for (compression, agent) in Compression::ALL.into_iter().zip(["one", "two"]) {
        let packed = compress(compression, &block().encode_to_vec());
        let body = axum::body::Body::from(frame(1, &packed));
        let refused = refusal(call(&collector, agent, compression.name(), body)).await;
        assert!(refused.is_none(), "{refused:?}");
    }
    assert_eq!(collector.store.events(), 2);
    assert_eq!(collector.ingest.budget().used(), 0);
}

#[tokio::test]
async fn a_decompression_bomb_gets_at_most_the_share_of_its_sender() {
    let config = IngestConfig {
        max_bytes: 4_000_000,
        ..IngestConfig::default()
    };
    let collector = Collector::start(config, RecordingStore::default()).await;
    for compression in Compression::ALL {
        let bomb = frame(1, &compress(compression, &vec![0; 8_000_000]));
        let status = refusal(call(&collector, "bomber", compression.name(), bomb.into())).await;
        let status = status.unwrap();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
        assert!(
            status.get_details_retry_info().is_none(),
            "never sent again"
        );
    }
    assert_eq!(collector.ingest.budget().used(), 0);
}

#[tokio::test]
async fn a_body_that_does_not_end_times_out() {
    let config = IngestConfig {
        arrival_deadline: Duration::from_millis(1),
        ..IngestConfig::default()
    };
    let collector = Collector::start(config, RecordingStore::default()).await;
    let body = endless(Bytes::from(vec![0; 100]));
    let status = refusal(call(&collector, "slow", "gzip", body))
        .await
        .unwrap();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    assert_eq!(collector.ingest.stats().failed(error::Code::Timeout), 1);
    assert_eq!(collector.ingest.budget().used(), 0);
    assert_eq!(collector.store.events(), 0);
}

#[tokio::test]
async fn a_body_that_is_not_one_message_is_refused_without_retry() {
    let collector = Collector::with_defaults().await;
    let whole = frame(0, &block().encode_to_vec());
    let mut two = whole.to_vec();
    two.extend_from_slice(&whole);
    let bodies = [
        Bytes::new(),
        whole.slice(..whole.len() - 1),
        Bytes::from(two),
        frame(2, b"neither"),
        frame(1, b"compressed, but how?"),
    ];
    for body in bodies {
        let status = refusal(call(&collector, "odd", "identity", body.into())).await;
        assert_eq!(status.unwrap().code(), Code::InvalidArgument);
    }
    assert_eq!(collector.store.batches(), 0);
}

#[tokio::test]
async fn the_error_for_an_unknown_compression_lists_the_supported_ones() {
    let collector = Collector::with_defaults().await;
    let body = frame(1, &block().encode_to_vec());
    let status = refusal(call(&collector, "odd", "snappy", body.into())).await;
    let status = status.unwrap();
    assert_eq!(status.code(), Code::Unimplemented, "{status:?}");
    let known = status.metadata().get("grpc-accept-encoding").unwrap();
    assert_eq!(known, "gzip,zstd,identity");
}
