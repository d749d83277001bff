#![expect(
    clippy::significant_drop_tightening,
    reason = "a store lives to the end of its test"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use echo_core::model::event::{Event, Reading};
use echo_core::units::{Nanos, Window};
use proptest::prelude::*;
use proptest::sample::select;
use tokio::runtime::Runtime;

use super::slot::{Slot, tiles};
use super::{CoverageCache, MAX_ROWS};
use crate::contract::sample::{at, batch, gauge, origin, window};
use crate::duckdb::DuckDbStore;
use crate::duckdb::rows::coverage::Seen;
use crate::reporting::{CoverageRows, OriginCoverage};
use crate::{Activity, Coverage, EventStore};

fn seen(millis: i64) -> Seen {
    Seen {
        first: at(millis),
        last: at(millis),
        has_host_evidence: false,
        activity: Activity::default(),
    }
}

/// Counts the missing slots, as one origin that was seen at the beginning of each. Returns their
/// number.
fn count(cache: &CoverageCache, window: Window, meanwhile: impl FnOnce()) -> usize {
    let lookup = cache.look_up_slots(&tiles(window).0);
    let missing = lookup.missing.clone();
    meanwhile();
    let counts: BTreeMap<Slot, _> = missing
        .iter()
        .map(|slot| (*slot, vec![(1, seen(0))]))
        .collect();
    cache.insert_counted(&lookup, counts);
    missing.len()
}

#[test]
fn a_slot_is_not_counted_again_until_it_changes() {
    let cache = CoverageCache::default();
    // Five finest slots, and nothing at the ends.
    let whole = window(0, 50_000);
    assert_eq!(count(&cache, whole, || {}), 5);
    assert_eq!(count(&cache, whole, || {}), 0);
    cache.invalidate([at(10_000), at(19_999), at(49_000)].into_iter());
    assert_eq!(count(&cache, whole, || {}), 2);
    assert_eq!(count(&cache, whole, || {}), 0);
}

#[test]
fn a_slot_that_changes_while_it_is_counted_is_counted_again() {
    let cache = CoverageCache::default();
    let whole = window(0, 50_000);
    let change = || cache.invalidate([at(10_000)].into_iter());
    assert_eq!(count(&cache, whole, change), 5);
    assert_eq!(count(&cache, whole, || {}), 1);
}

#[test]
fn minutes_are_merged_into_an_hour_and_a_change_invalidates_one_minute() {
    let cache = CoverageCache::default();
    let hour = 3_600_000;
    // The origin of the test times is the beginning of an hour.
    for minute in 0..60 {
        count(
            &cache,
            window(minute * 60_000, (minute + 1) * 60_000),
            || {},
        );
    }
    assert_eq!(count(&cache, window(0, hour), || {}), 0);
    cache.invalidate([at(61_000)].into_iter());
    assert_eq!(count(&cache, window(0, hour), || {}), 1, "that minute");
    assert_eq!(count(&cache, window(0, hour), || {}), 0);
}

#[test]
fn a_cancelled_query_leaves_nothing_in_the_cache() {
    let cache = CoverageCache::default();
    for _ in 0..100 {
        drop(cache.look_up_slots(&tiles(window(0, 50_000)).0));
    }
    assert_eq!(super::lock(&cache.0).changed.len(), 1);
}

#[test]
fn the_least_recently_used_slots_are_evicted() {
    let cache = CoverageCache::default();
    let rows = MAX_ROWS / 4;
    for slot in 0..9 {
        let lookup = cache.look_up_slots(&tiles(window(slot * 10_000, (slot + 1) * 10_000)).0);
        let rows = vec![(1, seen(0)); rows];
        let counts = lookup.missing.iter().map(|slot| (*slot, rows.clone()));
        let counts: BTreeMap<Slot, _> = counts.collect();
        cache.insert_counted(&lookup, counts);
        assert!(super::lock(&cache.0).rows <= MAX_ROWS);
    }
    assert_eq!(count(&cache, window(80_000, 90_000), || {}), 0, "the last");
    assert_eq!(count(&cache, window(0, 10_000), || {}), 1, "the first");
}

/// Coverage computed from the events themselves.
fn counted(events: &[Event], window: Window) -> Vec<Coverage> {
    let mut reporting = CoverageRows::default();
    let events = events.iter();
    for event in events.filter(|event| window.contains(event.timestamp)) {
        reporting.add(OriginCoverage {
            origin: Arc::clone(&event.origin),
            first: event.timestamp,
            last: event.timestamp,
            has_host_evidence: event.metric.as_str().starts_with("fleet.host."),
            activity: Activity {
                last_operation: (event.block.is_some()
                    && event.metric.as_str() != "nccl.collective.issued")
                    .then_some(event.timestamp),
                last_call: (event.metric.as_str() == "fleet.process.calls_ms")
                    .then_some(event.timestamp),
            },
        });
    }
    reporting.into_rows()
}

/// Events of a few ranks within two hours.
fn events() -> impl Strategy<Value = Vec<Event>> {
    let metrics = [
        "fleet.host.off_cpu_ms",
        "fleet.rank.period_ms",
        "fleet.process.calls_ms",
        "nccl.collective.issued",
    ];
    let event = (0_i64..4, 0_i64..7_200_000, select(metrics.to_vec()));
    let event = event.prop_map(|(rank, millis, metric)| {
        gauge(
            &origin("prod", "node-1", rank),
            metric,
            millis,
            Reading::Int(1),
        )
    });
    prop::collection::vec(event, 1..8)
}

fn windows() -> impl Strategy<Value = Window> {
    let ends = (0_i64..7_300_000, 1_i64..7_300_000);
    let anywhere = ends.prop_map(|(from, length)| window(from, from + length));
    let ever = Window::new(Nanos::EARLIEST, Nanos::LATEST).unwrap();
    prop_oneof![9 => anywhere, 1 => Just(ever)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn cached_coverage_equals_a_fresh_count(steps in prop::collection::vec((events(), prop::collection::vec(windows(), 1..4)), 1..8)) {
        let store = DuckDbStore::scratch();
        let mut stored = Vec::new();
        let runtime = Runtime::new().unwrap();
        runtime.block_on(async {
            for (number, (events, windows)) in (0_u64..).zip(steps) {
                store.append(batch(number, events.clone())).await.unwrap();
                stored.extend(events);
                for window in windows {
                    let answers = store.coverage(None, window).await.unwrap();
                    prop_assert_eq!(answers, counted(&stored, window));
                }
            }
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn events_stored_during_queries_are_in_later_results() {
    let store = DuckDbStore::scratch();
    let whole = window(0, 100_000);
    let one = |number: u64| {
        let (rank, millis) = (
            i64::try_from(number % 20).unwrap(),
            i64::try_from(number).unwrap(),
        );
        let event = gauge(
            &origin("prod", "node-1", rank),
            "m",
            millis * 400,
            Reading::Int(1),
        );
        batch(number, vec![event])
    };
    let storing = async {
        for number in 0..200 {
            store.append(one(number)).await.unwrap();
            let rows = store.coverage(None, whole).await.unwrap();
            let last = rows.iter().map(|row| row.last).max();
            assert_eq!(
                last,
                Some(one(number).events[0].timestamp),
                "acknowledged events are included"
            );
        }
    };
    let querying = async {
        for _ in 0..200 {
            store.coverage(None, whole).await.unwrap();
        }
    };
    tokio::join!(storing, querying);
    let stored: Vec<_> = (0..200).flat_map(|number| one(number).events).collect();
    let answer = store.coverage(None, whole).await.unwrap();
    assert_eq!(answer, counted(&stored, whole));
}

#[tokio::test]
async fn coverage_of_one_cluster_of_many_equals_a_fresh_count() {
    let store = DuckDbStore::scratch();
    let mut stored = Vec::new();
    let cluster = |number: i64| format!("cluster-{number}");
    for number in 0..40_i64 {
        let events = [1_000, 11_000, 61_000].map(|millis| {
            let origin = origin(&cluster(number), "node-1", number % 2);
            gauge(&origin, "m", millis + number * 7, Reading::Int(1))
        });
        let batch = batch(number.unsigned_abs(), events.to_vec());
        store.append(batch).await.unwrap();
        stored.push(events);
    }
    // The first query about the window counts, the others use the cache.
    for (number, events) in (0..).zip(&stored) {
        let one = cluster(number).parse().unwrap();
        for window in [window(0, 120_000), window(10_500, 70_000)] {
            let answer = store.coverage(Some(&one), window).await.unwrap();
            assert_eq!(answer.len(), 1);
            assert_eq!(answer, counted(events, window));
        }
    }
}
