//! Contract tests of following committed events, including after a restart.

use std::sync::Arc;
use std::time::Duration;

use echo_core::ids::MetricName;
use echo_core::model::detector_output::DetectorOutput;
use echo_core::model::event::{Event, EventBatch};

use crate::EventStore;
use crate::contract::reading;
use crate::contract::sample::{at, bare_origin, batch, device_wait, origin, policy, wait};
use crate::duckdb::DuckDbStore;
use crate::resume::{Resume, WarmUp};

fn metrics(names: &[&str]) -> Vec<MetricName> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

#[tokio::test]
async fn a_tail_is_in_order_and_reports_how_far_it_was_read() {
    let store = DuckDbStore::scratch();
    let rank = origin("prod", "node-1", 0);
    let events = vec![
        device_wait(&rank, 30),
        reading(&rank, 20),
        device_wait(&rank, 10),
        device_wait(&rank, 5),
        reading(&rank, 1),
    ];
    store.append(batch(1, events)).await.unwrap();
    let waits = metrics(&["nccl.collective.wait_ms"]);

    let tail = store.tail(0, &waits, 2).await.unwrap();
    let found: Vec<_> = tail.events.iter().map(|stored| stored.id).collect();
    assert_eq!((found, tail.until), (vec![1, 3], 3));
    let expected = Event {
        attrs: Arc::from("{}"),
        ..device_wait(&rank, 30)
    };
    assert_eq!(tail.events[0].event, expected);

    let rest = store.tail(tail.until, &waits, 2).await.unwrap();
    let found: Vec<_> = rest.events.iter().map(|stored| stored.id).collect();
    assert_eq!((found, rest.until), (vec![4], 5));
    assert_eq!(store.tail(5, &waits, 2).await.unwrap().until, 5);

    let both = metrics(&["fleet.rank.period_ms", "nccl.collective.wait_ms"]);
    assert_eq!(store.tail(0, &both, 9).await.unwrap().events.len(), 5);
    let none = store.tail(1, &[], 9).await.unwrap();
    assert_eq!((none.events.len(), none.until), (0, 5));
    assert_eq!(store.tail(1, &both, 0).await.unwrap().until, 1);
}

#[tokio::test]
async fn a_tail_contains_only_gpu_waits_with_samples() {
    let store = DuckDbStore::scratch();
    let rank = origin("prod", "node-1", 0);
    let mut device_gap = device_wait(&rank, 20);
    device_gap.metric = "fleet.rank.blocked_ms".parse().unwrap();
    let events = vec![
        wait(&rank, 10),
        device_gap,
        device_wait(&rank, 30),
        wait(&rank, 40),
        device_wait(&rank, 50),
    ];
    store.append(batch(1, events.clone())).await.unwrap();
    let judged = metrics(&["fleet.rank.blocked_ms", "nccl.collective.wait_ms"]);
    let tail = store.tail(0, &judged, 9).await.unwrap();
    let samples: Vec<_> = tail
        .events
        .iter()
        .map(|stored| stored.event.samples.clone())
        .collect();
    let taken = device_wait(&rank, 30).samples;
    let later = device_wait(&rank, 50).samples;
    assert_eq!(samples, [vec![], taken, later]);
    assert_eq!(
        tail.events[1].event.block, events[2].block,
        "with its source"
    );
}

#[tokio::test]
async fn every_commit_is_announced() {
    let store = DuckDbStore::scratch();
    let mut committed = store.committed();
    assert_eq!(*committed.borrow_and_update(), 0);
    let node = bare_origin("prod", "node-1");
    let events = vec![reading(&node, 1), reading(&node, 2)];
    store.append(batch(1, events)).await.unwrap();
    assert!(committed.has_changed().unwrap());
    assert_eq!(*committed.borrow_and_update(), 2);
    assert_eq!(*store.committed().borrow(), 2);
}

const WIDE: WarmUp = WarmUp {
    span: Duration::from_hours(1),
    events: 1_000,
};

/// Stores ten batches of two events, a second apart.
async fn fill(store: &DuckDbStore) {
    for second in 0..10_i64 {
        let events = vec![wait(&origin("prod", "node-1", 0), second * 1_000); 2];
        let batch = EventBatch {
            received: at(second * 1_000),
            ..batch(u64::try_from(second).unwrap(), events)
        };
        store.append(batch).await.unwrap();
    }
}

async fn judged(store: &DuckDbStore, event: u64) {
    let output = DetectorOutput {
        judged: Some(event),
        ..DetectorOutput::default()
    };
    store.store_verdicts(output).await.unwrap();
}

#[tokio::test]
async fn a_detector_without_judged_events_begins_at_the_first_event() {
    let store = DuckDbStore::scratch();
    let nothing = Resume {
        after: 0,
        judged: 0,
        policies: Vec::new(),
    };
    assert_eq!(store.resume(WIDE).await.unwrap(), nothing);
    fill(&store).await;
    assert_eq!(store.resume(WIDE).await.unwrap(), nothing);
}

#[tokio::test]
async fn a_detector_resumes_after_the_last_judged_event_with_a_warm_up() {
    let store = DuckDbStore::scratch();
    fill(&store).await;
    judged(&store, 14).await;
    judged(&store, 12).await;
    let after = async |span, events| {
        let resume = store.resume(WarmUp { span, events }).await.unwrap();
        assert_eq!(resume.judged, 14, "the last judged event is unchanged");
        resume.after
    };
    let hour = Duration::from_hours(1);
    assert_eq!(after(hour, 1_000).await, 0);
    assert_eq!(after(hour, 5).await, 9);
    // The last judged event was received in second 6; those of second 4 are just within the span.
    assert_eq!(after(Duration::from_secs(2), 1_000).await, 8);
    assert_eq!(after(Duration::from_secs(2), 5).await, 9);
    assert_eq!(after(Duration::ZERO, 1_000).await, 12);
}

#[tokio::test]
async fn the_last_policy_of_each_cluster_is_remembered() {
    let store = DuckDbStore::scratch();
    for (cluster, version) in [("prod", 7), ("dev", 2), ("prod", 8)] {
        let output = DetectorOutput {
            policies: vec![policy(cluster, version)],
            ..DetectorOutput::default()
        };
        store.store_verdicts(output).await.unwrap();
    }
    let resume = store.resume(WIDE).await.unwrap();
    assert_eq!(resume.policies, [policy("dev", 2), policy("prod", 8)]);
}

#[tokio::test]
async fn a_wrong_clock_does_not_shorten_the_warm_up() {
    let store = DuckDbStore::scratch();
    let hour = 3_600_000;
    let year = 365 * 24 * hour;
    for (number, millis) in (0_u64..).zip([0, 1_000, year, 2_000, -year, 3_000, 4_000]) {
        let events = vec![wait(&origin("prod", "node-1", 0), 10)];
        let batch = EventBatch {
            received: at(millis),
            ..batch(number, events)
        };
        store.append(batch).await.unwrap();
    }
    judged(&store, 7).await;
    assert_eq!(store.resume(WIDE).await.unwrap().after, 0);
}
