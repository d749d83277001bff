//! Contract tests of [`EventStore`], run against the database.

#![expect(
    clippy::significant_drop_tightening,
    reason = "a store lives to the end of its test"
)]

mod hours;
mod incident_history;
mod job_events;
mod processes;
pub(crate) mod sample;
mod tail;
mod timeseries;
mod verdicts;

use std::sync::Arc;

use echo_core::ids::{ClusterId, Rank};
use echo_core::model::event::{BatchKey, Event, EventBatch, Origin, Reading};

use crate::contract::sample::{
    at, bare_origin, batch, device_wait, gauge, incident, incidents, inputs, origin, query,
    sparse_block, wait, window,
};
use crate::duckdb::DuckDbStore;
use crate::{Appended, EventQuery, EventStore, Page, StoreError};

/// Numbers of all events of a page.
pub(crate) fn numbers(page: &Page) -> Vec<u64> {
    page.events.iter().map(|stored| stored.id).collect()
}

fn cluster(name: &str) -> ClusterId {
    name.parse().unwrap()
}

fn reading(origin: &Arc<Origin>, millis: i64) -> Event {
    gauge(
        origin,
        "fleet.rank.period_ms",
        millis,
        Reading::Double(101.5),
    )
}

#[tokio::test]
async fn a_batch_sent_twice_is_stored_once() {
    let store = DuckDbStore::scratch();
    let events = vec![wait(&origin("prod", "node-1", 0), 10)];
    let first = store.append(batch(1, events.clone())).await.unwrap();
    let again = store.append(batch(1, events.clone())).await.unwrap();
    let next = store.append(batch(2, events)).await.unwrap();
    assert_eq!(first, Appended::Stored { events: 1 });
    assert_eq!(again, Appended::Duplicate);
    assert_eq!(next, Appended::Stored { events: 1 });
    let page = store.events(query(0, 100)).await.unwrap();
    assert_eq!(numbers(&page), [2, 1]);
}

#[tokio::test]
async fn batch_numbers_are_distinguished_by_agent_and_by_content() {
    let store = DuckDbStore::scratch();
    let numbered = |agent: &str, number| BatchKey::Numbered {
        agent: agent.parse().unwrap(),
        number,
    };
    let keys = [
        numbered("agent-1", 1),
        numbered("agent-2", 1),
        numbered("agent-1", 3),
        numbered("agent-1", 2),
        BatchKey::Content(1),
        BatchKey::Content(1 << 64),
        BatchKey::Content(u128::MAX),
    ];
    for key in keys {
        let batch = EventBatch {
            key,
            ..batch(0, Vec::new())
        };
        let first = store.append(batch.clone()).await.unwrap();
        let again = store.append(batch.clone()).await.unwrap();
        assert_eq!(first, Appended::Stored { events: 0 }, "{:?}", batch.key);
        assert_eq!(again, Appended::Duplicate, "{:?}", batch.key);
    }
}

#[tokio::test]
async fn an_event_is_read_as_it_was_stored() {
    let store = DuckDbStore::scratch();
    let (rank, node) = (origin("prod", "node-1", 63), bare_origin("prod", "node-1"));
    let sent = vec![
        device_wait(&rank, 50),
        wait(&rank, 40),
        sparse_block(&rank, 30),
        gauge(&node, "fleet.host.rss", 20, Reading::Int(i64::MIN)),
        gauge(
            &node,
            "fleet.host.load",
            10,
            Reading::Double(f64::MIN_POSITIVE),
        ),
    ];
    store.append(batch(1, sent.clone())).await.unwrap();
    let page = store.events(query(0, 100)).await.unwrap();
    assert!(
        page.events
            .iter()
            .all(|stored| stored.received == at(60_000))
    );
    let found: Vec<_> = page.events.into_iter().map(|stored| stored.event).collect();
    assert_eq!(found, sent);
}

#[tokio::test]
async fn a_window_is_half_open() {
    let store = DuckDbStore::scratch();
    let node = bare_origin("prod", "node-1");
    let events = [10, 20, 30].map(|millis| reading(&node, millis));
    store.append(batch(1, events.to_vec())).await.unwrap();
    let page = store.events(query(10, 30)).await.unwrap();
    assert_eq!(numbers(&page), [2, 1]);
}

#[tokio::test]
async fn pages_are_newest_first_and_survive_inserts() {
    let store = DuckDbStore::scratch();
    let node = bare_origin("prod", "node-1");
    // Numbers 1 to 5; events 2 and 3 share a timestamp, and event 5 arrived late.
    let events = [10, 20, 20, 40, 15].map(|millis| reading(&node, millis));
    store.append(batch(1, events.to_vec())).await.unwrap();
    let first = EventQuery {
        limit: 2,
        ..query(0, 100)
    };
    let page = store.events(first.clone()).await.unwrap();
    assert_eq!(numbers(&page), [4, 3]);

    let newer = [50, 20].map(|millis| reading(&node, millis));
    store.append(batch(2, newer.to_vec())).await.unwrap();
    let second = EventQuery {
        cursor: page.next,
        ..first.clone()
    };
    let page = store.events(second).await.unwrap();
    assert_eq!(numbers(&page), [2, 5], "nothing twice, nothing left out");
    let third = EventQuery {
        cursor: page.next,
        ..first
    };
    let page = store.events(third).await.unwrap();
    assert_eq!(numbers(&page), [1]);
    assert_eq!(page.next, None);
}

#[tokio::test]
async fn every_filter_filters() {
    let store = DuckDbStore::scratch();
    let events = vec![
        wait(&origin("prod", "node-1", 0), 10),
        wait(&origin("prod", "node-1", 1), 11),
        wait(&origin("prod", "node-2", 0), 12),
        wait(&origin("test", "node-1", 0), 13),
        sparse_block(&origin("prod", "node-1", 0), 14),
        reading(&bare_origin("prod", "node-1"), 15),
    ];
    store.append(batch(1, events)).await.unwrap();
    let filtered = |filter: fn(&mut EventQuery)| {
        let mut query = query(0, 100);
        filter(&mut query);
        query
    };
    let only_first = filtered(|query| {
        query.cluster = Some(cluster("prod"));
        query.node = Some("node-1".parse().unwrap());
        query.rank = Some(Rank::new(0));
        query.op = Some("AllReduce".parse().unwrap());
        query.metric = Some("nccl.collective.wait_ms".parse().unwrap());
    });
    let filters: [(EventQuery, &[u64]); 7] = [
        (query(0, 100), &[6, 5, 4, 3, 2, 1]),
        (filtered(|q| q.cluster = Some(cluster("test"))), &[4]),
        (filtered(|q| q.node = Some("node-2".parse().unwrap())), &[3]),
        (filtered(|q| q.rank = Some(Rank::new(1))), &[2]),
        (
            filtered(|q| q.op = Some("AllReduce".parse().unwrap())),
            &[4, 3, 2, 1],
        ),
        (
            filtered(|q| q.metric = Some("fleet.rank.period_ms".parse().unwrap())),
            &[6],
        ),
        (only_first, &[1]),
    ];
    for (query, expected) in filters {
        let page = store.events(query.clone()).await.unwrap();
        assert_eq!(numbers(&page), expected, "{query:?}");
    }
}

#[tokio::test]
async fn coverage_has_one_row_per_rank() {
    let store = DuckDbStore::scratch();
    let (known, node) = (origin("prod", "node-1", 0), bare_origin("prod", "node-1"));
    let mut sparse = Origin::clone(&known);
    sparse.gpu_uuid = None;
    let sparse = Arc::new(sparse);
    let events = vec![
        reading(&sparse, 30),
        wait(&known, 10),
        wait(&known, 20),
        wait(&known, 50),
        reading(&node, 40),
        reading(&origin("test", "node-1", 0), 15),
    ];
    store.append(batch(1, events)).await.unwrap();
    let prod = cluster("prod");
    let rows = store.coverage(Some(&prod), window(10, 50)).await.unwrap();
    let summary: Vec<_> = rows
        .iter()
        .map(|row| (Arc::clone(&row.origin), row.first, row.last))
        .collect();
    assert_eq!(
        summary,
        [(node, at(40), at(40)), (sparse, at(10), at(30))],
        "the latest origin of the rank"
    );
    let all = store.coverage(None, window(0, 100)).await.unwrap();
    assert_eq!(all.len(), 3);
}

#[tokio::test]
async fn the_extent_is_that_of_the_cluster() {
    let store = DuckDbStore::scratch();
    assert_eq!(store.extent(None).await.unwrap(), None);
    let events = vec![
        reading(&bare_origin("prod", "node-1"), 20),
        reading(&bare_origin("prod", "node-2"), 10),
        reading(&bare_origin("test", "node-1"), 30),
        // More than a minute after all others.
        reading(&bare_origin("late", "node-1"), 300),
    ];
    store.append(batch(1, events)).await.unwrap();
    let (prod, none) = (cluster("prod"), cluster("none"));
    let clusters = store.clusters().await.unwrap();
    let late = cluster("late");
    assert_eq!(
        clusters,
        [prod.clone(), cluster("test"), late.clone()].into()
    );
    let extent = store.extent(Some(&late)).await.unwrap();
    assert_eq!(extent, Some((at(300), at(300))));
    let extent = store.extent(Some(&prod)).await.unwrap();
    assert_eq!(extent, Some((at(10), at(20))));
    let extent = store.extent(None).await.unwrap();
    assert_eq!(extent, Some((at(10), at(300))));
    assert_eq!(store.extent(Some(&none)).await.unwrap(), None);
}

#[tokio::test]
async fn nan_and_infinity_are_rejected() {
    let store = DuckDbStore::scratch();
    let rank = origin("prod", "node-1", 0);
    let mut sampled = wait(&rank, 10);
    sampled.samples[0].value = f64::INFINITY;
    let mut anchored = wait(&rank, 10);
    if let Some(anchor) = anchored.block.as_mut().and_then(|b| b.anchor.as_mut()) {
        anchor.offset_ms = f64::NAN;
    }
    let not_a_number = gauge(&rank, "m", 10, Reading::Double(f64::NAN));
    for (bad, field) in [
        (sampled, "sample"),
        (anchored, "anchor_offset_ms"),
        (not_a_number, "value"),
    ] {
        let refused = store.append(batch(1, vec![wait(&rank, 10), bad])).await;
        assert!(
            matches!(refused, Err(StoreError::NotFinite { what, .. }) if what == field),
            "{field}: {refused:?}"
        );
    }
    let mut damaged = incident(1, "prod", 0, 10);
    damaged.effect_ratio = f64::NEG_INFINITY;
    let mut judged = incident(1, "prod", 0, 10);
    let mut compared = inputs();
    compared.ranks[0].caused = f64::NAN;
    judged.inputs = Some(Arc::new(compared));
    for concluded in [damaged, judged] {
        let refused = store.store_verdicts(incidents([concluded])).await;
        assert!(matches!(refused, Err(StoreError::NotFinite { .. })));
    }
    assert_eq!(store.extent(None).await.unwrap(), None);
    assert_eq!(
        store.incidents(None, window(0, 100)).await.unwrap().len(),
        0
    );
    let kept = store.append(batch(1, vec![wait(&rank, 10)])).await.unwrap();
    assert_eq!(
        kept,
        Appended::Stored { events: 1 },
        "a refused batch was not remembered"
    );
}
