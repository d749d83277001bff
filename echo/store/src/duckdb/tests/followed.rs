//! Events that the detector receives right after a commit, and those that it reads later.

use echo_core::ids::MetricName;
use echo_core::model::event::{Event, Reading};

use super::{config, open, run, store};
use crate::contract::sample::{batch, device_wait, gauge, origin, wait};
use crate::duckdb::DuckDbStore;
use crate::{EventStore, Tail};

/// Events of every kind that the detector reads, and of those that it ignores.
fn events() -> Vec<Event> {
    let (first, second) = (origin("prod", "node-1", 0), origin("prod", "node-1", 1));
    let mut device_gap = device_wait(&second, 20);
    device_gap.metric = "fleet.rank.blocked_ms".parse().unwrap();
    vec![
        device_wait(&first, 10),
        wait(&first, 10),
        device_gap,
        gauge(&first, "fleet.rank.period_ms", 30, Reading::Double(0.5)),
        gauge(&second, "fleet.rank.period_ms", 30, Reading::Int(-5)),
        gauge(&second, "system.cpu.time", 30, Reading::Int(7)),
        device_wait(&second, 40),
    ]
}

async fn follow(store: &DuckDbStore, after: u64) -> Tail {
    let metrics = [
        "nccl.collective.wait_ms",
        "fleet.rank.blocked_ms",
        "fleet.rank.period_ms",
    ];
    let metrics: Vec<MetricName> = metrics.iter().map(|name| name.parse().unwrap()).collect();
    store.tail(after, &metrics, 100).await.unwrap()
}

#[tokio::test]
async fn cached_events_equal_those_read_from_the_database() {
    let (store, _folder) = store();
    store.append(batch(1, events())).await.unwrap();
    let cached = follow(&store, 0).await;
    assert_eq!((cached.events.len(), cached.until), (5, 7));
    assert_eq!(
        follow(&store, 0).await,
        cached,
        "a repeated query reads the database"
    );
    store.append(batch(2, events())).await.unwrap();
    run(&store, "DELETE FROM event_rows").await.unwrap();
    let cached = follow(&store, 7).await;
    assert_eq!(
        (cached.events.len(), cached.until),
        (5, 14),
        "it is not read"
    );
}

#[tokio::test]
async fn a_detector_that_fell_behind_reads_missed_events_and_gets_the_rest_from_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let before = open(&config(&folder));
    before.append(batch(1, events())).await.unwrap();
    let expected = follow(&before, 0).await;
    drop(before);
    let store = open(&config(&folder));
    store.append(batch(2, events())).await.unwrap();
    let missed = follow(&store, 0).await;
    assert_eq!(missed.until, 14, "all that is committed is read at once");
    assert_eq!(missed.events[..5], expected.events);
    store.append(batch(3, events())).await.unwrap();
    let rest = follow(&store, missed.until).await;
    assert_eq!((rest.events.len(), rest.until), (5, 21));
    assert_eq!(rest.events[0].id, 15);
}
