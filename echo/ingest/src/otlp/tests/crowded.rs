//! Tests of requests that exceed the memory budget.

use echo_core::error;
use tonic::Code;
use tonic_types::StatusExt;

use super::collector::Collector;
use super::{block, numbered, reserve_for_others};
use crate::accept::IngestConfig;
use crate::fixture::store::RecordingStore;
use crate::fixture::{rank_2, request, wait, waits};
use crate::memory_account::MemoryAccount;

/// Budget in which one sender can have three decoded points.
fn small_budget() -> IngestConfig {
    IngestConfig {
        max_bytes: 8_000,
        ..IngestConfig::default()
    }
}

#[tokio::test]
async fn a_sender_over_its_share_is_refused_and_another_one_accepted() {
    let (store, gate) = RecordingStore::gated();
    let collector = Collector::start(small_budget(), store).await;
    let mut client = collector.client().await;
    let (mut greedy, mut modest) = (client.clone(), client.clone());
    let mut three = numbered("greedy", "1");
    *three.get_mut() = request(rank_2(), vec![waits(vec![wait(); 3])]);
    let first = tokio::spawn(async move { client.export(three).await });
    gate.entered().await;
    let status = greedy.export(numbered("greedy", "2")).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert!(status.get_details_retry_info().is_some());
    assert_eq!(collector.ingest.stats().failed(error::Code::TooMany), 1);
    let modest = tokio::spawn(async move { modest.export(numbered("modest", "1")).await });
    gate.open();
    modest.await.unwrap().unwrap();
    first.await.unwrap().unwrap();
    greedy.export(numbered("greedy", "2")).await.unwrap();
    assert_eq!(collector.ingest.budget().used(), 0);
}

#[tokio::test]
async fn a_request_is_retryable_if_other_senders_use_the_budget() {
    let config = IngestConfig {
        max_bytes: 4_000,
        ..IngestConfig::default()
    };
    let collector = Collector::start(config, RecordingStore::default()).await;
    let reserved = reserve_for_others(&collector.ingest);
    let mut client = collector.client().await;
    let status = client.export(block()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.get_details_retry_info().is_some());
    assert_eq!(collector.ingest.stats().failed(error::Code::Busy), 1);
    drop(reserved);
    client.export(block()).await.unwrap();
}

#[tokio::test]
async fn a_body_that_exceeds_the_share_while_it_arrives_is_retryable() {
    let collector = Collector::start(small_budget(), RecordingStore::default()).await;
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
