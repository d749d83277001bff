//! Requests for which there is no memory.

use echo_core::error;
use tonic::Code;
use tonic_types::StatusExt;

use super::collector::Collector;
use super::{block, crowd, numbered};
use crate::accept::IngestConfig;
use crate::fixture::store::RecordingStore;
use crate::fixture::{rank_2, request, wait, waits};
use crate::memory_account::MemoryAccount;

/// Little memory: one sender can have three points decoded.
fn little() -> IngestConfig {
    IngestConfig {
        max_bytes: 8_000,
        ..IngestConfig::default()
    }
}

#[tokio::test]
async fn a_sender_with_its_share_in_flight_says_so_and_another_one_gets_in() {
    let (store, gate) = RecordingStore::gated();
    let collector = Collector::start(little(), store).await;
    let mut client = collector.client().await;
    let (mut greedy, mut modest) = (client.clone(), client.clone());
    let mut three = numbered("greedy", "1");
    *three.get_mut() = request(rank_2(), vec![waits(vec![wait(); 3])]);
    let held = tokio::spawn(async move { client.export(three).await });
    gate.entered().await;
    let status = greedy.export(numbered("greedy", "2")).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert!(status.get_details_retry_info().is_some());
    assert_eq!(collector.ingest.stats().failed(error::Code::TooMany), 1);
    let modest = tokio::spawn(async move { modest.export(numbered("modest", "1")).await });
    gate.open();
    modest.await.unwrap().unwrap();
    held.await.unwrap().unwrap();
    greedy.export(numbered("greedy", "2")).await.unwrap();
    assert_eq!(collector.ingest.budget().used(), 0);
}

#[tokio::test]
async fn a_request_that_others_leave_no_memory_for_is_to_be_sent_again() {
    let config = IngestConfig {
        max_bytes: 4_000,
        ..IngestConfig::default()
    };
    let collector = Collector::start(config, RecordingStore::default()).await;
    let taken = crowd(&collector.ingest);
    let mut client = collector.client().await;
    let status = client.export(block()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.get_details_retry_info().is_some());
    assert_eq!(collector.ingest.stats().failed(error::Code::Busy), 1);
    drop(taken);
    client.export(block()).await.unwrap();
}

#[tokio::test]
async fn a_body_that_is_over_the_share_while_it_arrives_is_to_be_sent_again() {
    let collector = Collector::start(little(), RecordingStore::default()).await;
    let greedy = MemoryAccount::Agent("greedy".parse().unwrap());
    let mut own = collector.ingest.budget().reserve(&greedy);
    own.grow(3_990).unwrap();
    let mut client = collector.client().await;
    let status = client.export(numbered("greedy", "2")).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert!(status.get_details_retry_info().is_some(), "{status:?}");
    let stats = collector.ingest.stats();
    assert_eq!(stats.failed(error::Code::TooMany), 1);
    assert_eq!(stats.failed(error::Code::TooLarge), 0, "counted once");
    drop(own);
    client.export(numbered("greedy", "2")).await.unwrap();
}
