//! A full volume: the oldest events are deleted, or new ones refused.

#![expect(
    clippy::significant_drop_tightening,
    reason = "a store lives until the end of its test"
)]

use std::sync::Arc;
use std::time::Duration;

use echo_core::clock::ManualClock;
use echo_core::model::event::{BatchKey, Event, EventBatch, Origin, Reading};
use echo_core::units::{Nanos, Window};
use echo_store::duckdb::{DuckDbConfig, DuckDbStore};
use echo_store::limits::{Amount, Limits};
use echo_store::{Appended, EventQuery, EventStore, StoreError};
use fleet_test_harness::MOUNTS;

use crate::load::mixed;
use crate::volume::Mounted;

const MIB: u64 = 1024 * 1024;

const MINUTE: i64 = 60_000_000_000;

/// 2025-11-21.
const START: i64 = 1_763_683_200_000_000_000;

/// Returns two thousand events of one minute, with text that cannot be compressed.
fn minute(number: u64, origin: &Arc<Origin>) -> EventBatch {
    let received = Nanos::new(START + i64::try_from(number).unwrap() * MINUTE);
    let event = |index: u64| {
        let noise: Vec<String> = (0..12)
            .map(|part| format!("{:016x}", mixed(number * 1_000_000 + index * 100 + part)))
            .collect();
        Event {
            timestamp: received,
            start: None,
            origin: Arc::clone(origin),
            metric: "load.point".parse().unwrap(),
            unit: Arc::from(""),
            reading: Reading::Int(1),
            block: None,
            attrs: Arc::from(format!(r#"{{"noise":"{}"}}"#, noise.concat())),
            samples: Vec::new(),
        }
    };
    EventBatch {
        key: BatchKey::Numbered {
            agent: "agent-1".parse().unwrap(),
            number,
        },
        received,
        events: (0..2_000).map(event).collect(),
    }
}

fn open(volume: &Mounted, size: Option<Amount>) -> DuckDbStore {
    let config = DuckDbConfig {
        checkpoint_every: Duration::from_millis(20),
        limits: Limits {
            age: None,
            size,
            floor: Some(Amount::Bytes(46 * MIB)),
            ballast_bytes: 2 * MIB,
            ..Limits::default()
        },
        ..DuckDbConfig::new(volume.db())
    };
    let clock = ManualClock::at(Nanos::new(START));
    DuckDbStore::open(&config, Arc::new(clock)).unwrap()
}

fn origin() -> Arc<Origin> {
    Arc::new(Origin {
        cluster: "load".parse().unwrap(),
        node: "node-1".parse().unwrap(),
        rank: None,
        job: None,
        gpu_model: None,
        gpu_uuid: None,
        namespace: None,
        pod: None,
    })
}

/// Appends a batch until it is stored. Returns the number of refusals.
async fn append_with_retries(store: &DuckDbStore, batch: &EventBatch) -> u64 {
    let mut refused = 0;
    loop {
        match store.append(batch.clone()).await {
            Ok(stored) => {
                assert_eq!(stored, Appended::Stored { events: 2_000 });
                return refused;
            }
            Err(StoreError::Full { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
        // Agents retry later, and queries go on meanwhile.
        store.extent(None).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
#[needs(MOUNTS)]
async fn with_retention_the_oldest_minutes_are_deleted_and_new_events_stored() {
    let volume = Mounted::ext4(64);
    let store = open(&volume, Some(Amount::Share(1.0)));
    let origin = origin();
    let mut refused = 0;
    for number in 1..=24 {
        // Reads like the detector.
        let committed = *store.committed().borrow();
        store.tail(committed, &[], 1).await.unwrap();
        refused += append_with_retries(&store, &minute(number, &origin)).await;
    }
    let dropped = store.dropped_until().await.unwrap();
    assert!(dropped.is_some(), "24 minutes cannot all have fitted");
    let (first, last) = store.extent(None).await.unwrap().unwrap();
    assert!(Some(first) >= dropped, "{first} {dropped:?}");
    assert_eq!(last, Nanos::new(START + 24 * MINUTE));
    assert!(refused > 0, "the free space never reached its minimum");
    let counted = store.timings();
    assert_eq!(counted.refused_events.get(), refused * 2_000);
    let window = Window::new(first, last.offset(1)).unwrap();
    let everything = EventQuery {
        window,
        cluster: None,
        node: None,
        rank: None,
        op: None,
        metric: None,
        limit: 200_000,
        cursor: None,
    };
    // Retention may delete one more minute between the two; the runner ends a test in which they
    // never agree.
    loop {
        let page = store.events(everything.clone()).await.unwrap();
        let kept = 48_000 - counted.deleted_events.get();
        if page.events.len() as u64 == kept {
            break;
        }
    }
    store.close().await.unwrap();
}

#[test]
#[needs(MOUNTS)]
async fn without_retention_new_events_are_refused_and_old_ones_kept() {
    let volume = Mounted::ext4(64);
    let store = open(&volume, None);
    let origin = origin();
    let mut number = 0;
    let refused = loop {
        number += 1;
        if let Err(refused) = store.append(minute(number, &origin)).await {
            break refused;
        }
    };
    assert!(matches!(refused, StoreError::Full { .. }), "{refused}");
    assert_eq!(store.dropped_until().await.unwrap(), None);
    store.close().await.unwrap();
    let store = open(&volume, None);
    assert_eq!(*store.committed().borrow(), (number - 1) * 2_000);
}
