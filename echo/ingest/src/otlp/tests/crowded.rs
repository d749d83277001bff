//! Requests for which there is no room.

use echo_core::error;
use tonic::Code;
use tonic_types::StatusExt;

use super::collector::Collector;
use super::{block, crowd, numbered};
use crate::accept::IngestConfig;
use crate::admit::AdmissionConfig;
use crate::fixture::store::RecordingStore;
use crate::fixture::{rank_2, request, wait, waits};
use crate::sender::Sender;

/// A collector with room for 2,000 bytes of bodies.
async fn tight() -> Collector {
    let config = IngestConfig {
        admission: AdmissionConfig {
            max_bytes: 2_000,
            ..AdmissionConfig::default()
        },
        ..IngestConfig::default()
    };
    Collector::start(config, RecordingStore::default()).await
}

#[tokio::test]
async fn a_sender_with_its_share_in_flight_says_so_and_another_one_gets_in() {
    let (store, gate) = RecordingStore::gated();
    let config = IngestConfig {
        admission: AdmissionConfig {
            max_points: 4,
            ..AdmissionConfig::default()
        },
        ..IngestConfig::default()
    };
    let collector = Collector::start(config, store).await;
    let mut client = collector.client().await;
    let (mut greedy, mut modest) = (client.clone(), client.clone());
    let mut two = numbered("greedy", "1");
    *two.get_mut() = request(rank_2(), vec![waits(vec![wait(); 2])]);
    let held = tokio::spawn(async move { client.export(two).await });
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
    let in_flight = collector.ingest.in_flight();
    assert_eq!((in_flight.points, in_flight.bytes), (0, 0));
}

#[tokio::test]
async fn bodies_take_up_room_while_they_arrive() {
    let collector = tight().await;
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
    let collector = tight().await;
    let mut own = collector
        .ingest
        .arriving(&Sender::Agent("greedy".parse().unwrap()));
    own.add(990).unwrap();
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
