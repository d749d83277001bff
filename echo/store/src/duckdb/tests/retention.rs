//! Tests of retention: the oldest slices are deleted first, and nothing else.

use std::sync::Arc;
use std::time::Duration;

use echo_core::clock::ManualClock;
use echo_core::model::detector_output::Severity;
use echo_core::model::event::{BatchKey, EventBatch};
use echo_core::units::Nanos;
use tempfile::TempDir;

use super::{column, config, connect};
use crate::contract::sample::{START, at, incident, incidents, origin, query, wait, window};
use crate::duckdb::{DuckDbConfig, DuckDbStore};
use crate::limits::{Amount, Limits};
use crate::{Appended, EventStore};

const HOUR: i64 = 3_600_000;

const DAY: i64 = 24 * HOUR;

pub(super) fn limited(folder: &TempDir, limits: Limits) -> DuckDbConfig {
    DuckDbConfig {
        checkpoint_every: Duration::from_millis(2),
        limits,
        ..config(folder)
    }
}

pub(super) fn open(config: &DuckDbConfig, clock: &ManualClock) -> DuckDbStore {
    DuckDbStore::open(config, Arc::new(clock.clone())).unwrap()
}

pub(super) fn by_age(days: u64) -> Limits {
    Limits {
        age: Some(Duration::from_hours(days * 24)),
        size: None,
        ..Limits::default()
    }
}

fn by_size(bytes: u64) -> Limits {
    Limits {
        size: Some(Amount::Bytes(bytes)),
        age: None,
        ..Limits::default()
    }
}

pub(super) fn received(millis: i64, number: u64, n_events: usize) -> EventBatch {
    EventBatch {
        key: BatchKey::Numbered {
            agent: "agent-1".parse().unwrap(),
            number,
        },
        received: at(millis),
        events: vec![wait(&origin("prod", "node-1", 0), millis); n_events],
    }
}

/// Marks everything as read by the detector.
pub(super) async fn follow(store: &DuckDbStore) {
    let committed = *store.committed().borrow();
    store.tail(committed, &[], 1).await.unwrap();
}

/// Keeps the store busy for longer than a few rounds take.
pub(super) async fn some_rounds(store: &DuckDbStore) {
    for _ in 0..20 {
        store.append(received(0, 1, 0)).await.unwrap();
        store.extent(None).await.unwrap();
    }
}

/// Waits until at most `bytes` are in use, or only the newest batch is left: the engine does not
/// rewrite the last row group for a batch that is much smaller than it.
async fn until_settled(store: &DuckDbStore, bytes: i64) {
    let used = "SELECT (block_size * used_blocks)::BIGINT FROM pragma_database_size()";
    let received = "SELECT count(DISTINCT received_ns) FROM event_rows";
    while column::<i64>(store, used).await > vec![bytes]
        && column::<i64>(store, received).await > vec![1]
    {
        store.extent(None).await.unwrap();
    }
}

/// Appends 6,000 events with text that does not compress well, 20 minutes after the last ones.
async fn append_noise(store: &DuckDbStore, clock: &ManualClock, number: u64) {
    let now = i64::try_from(number).unwrap() * 1_200_000;
    clock.set(at(now));
    let mut batch = received(now, number, 6_000);
    for (index, event) in batch.events.iter_mut().enumerate() {
        let index = number * 6_000 + index as u64;
        let noise = index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        event.attrs = Arc::from(format!(r#"{{"n":"{noise:x}{:x}"}}"#, noise.rotate_left(29)));
    }
    store.append(batch).await.unwrap();
    follow(store).await;
}

pub(super) async fn until_dropped(store: &DuckDbStore, until: Nanos) {
    while store.dropped_until().await.unwrap() != Some(until) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn hours_that_are_too_old_are_deleted_with_their_samples_and_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(at(3 * DAY + 2 * HOUR));
    let store = open(&limited(&folder, by_age(3)), &clock);
    // The event times show that the clock is right.
    for (number, hours) in [(1, 0), (2, 1), (3, 2), (4, 26), (5, 50), (6, 74)] {
        let batch = received(hours * HOUR + 1, number, 5);
        store.append(batch).await.unwrap();
    }
    drop(store);
    let store = open(&limited(&folder, by_age(3)), &clock);
    // The detector has not read them yet, so they are kept at any age.
    some_rounds(&store).await;
    assert_eq!(store.dropped_until().await.unwrap(), None);
    let reporting = async || {
        let window = window(0, 2 * HOUR);
        store.coverage(None, window).await.unwrap().len()
    };
    assert_eq!(reporting().await, 1);
    follow(&store).await;
    until_dropped(&store, at(2 * HOUR)).await;
    // Coverage is deleted as well, a moment later.
    while reporting().await > 0 {
        tokio::task::yield_now().await;
    }

    let page = store.events(query(0, 4 * HOUR)).await.unwrap();
    assert_eq!(page.events.len(), 5);
    let samples: Vec<i64> = column(&store, "SELECT count(*) FROM sample_rows").await;
    assert_eq!(samples, [40], "two for each remaining event");
    let recorded: Vec<String> = column(
        &store,
        "SELECT concat_ws(' ', (until_ns - from_ns) // 1000000000, n_events, reason)
         FROM dropped_slices ORDER BY from_ns",
    )
    .await;
    assert_eq!(recorded, ["3600 5 age", "3600 5 age"]);
    let again = store.append(received(1, 1, 5)).await.unwrap();
    assert_eq!(again, Appended::Duplicate, "batch keys are kept");
}

#[tokio::test]
async fn clock_jumps_ahead_or_back_delete_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(at(HOUR));
    let store = open(&limited(&folder, by_age(1)), &clock);
    store.append(received(0, 1, 5)).await.unwrap();
    follow(&store).await;
    for (number, now) in [(2, 365 * DAY), (3, -365 * DAY), (4, 2 * HOUR)] {
        clock.set(at(now));
        // Events received with the wrong clock are stored, too, and many rounds pass.
        store.append(received(now, number, 1)).await.unwrap();
        follow(&store).await;
        some_rounds(&store).await;
    }
    let page = store.events(query(-366 * DAY, 366 * DAY)).await.unwrap();
    assert_eq!(page.events.len(), 8);
}

#[tokio::test]
async fn a_database_over_its_size_limit_loses_its_oldest_slices_and_stops_growing() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(at(0));
    let store = open(&limited(&folder, by_size(8_000_000)), &clock);
    let mut sizes = Vec::new();
    for number in 1..=30 {
        append_noise(&store, &clock, number).await;
        until_settled(&store, 6_400_000).await;
        let file = std::fs::metadata(folder.path().join("echo.db")).unwrap();
        sizes.push(file.len());
    }
    let dropped = store.dropped_until().await.unwrap();
    assert!(dropped > Some(at(HOUR)), "{dropped:?} {sizes:?}");
    // Blocks are freed when all rows of a row group are gone, so a database this small exceeds its
    // limit for a while.
    assert!(sizes.iter().all(|size| *size <= 16_000_000), "{sizes:?}");
    let newest = store.events(query(0, 30 * 1_200_000 + 1)).await.unwrap();
    assert_eq!(newest.events[0].event.timestamp, at(30 * 1_200_000));
}

#[tokio::test]
async fn queries_that_always_overlap_make_retention_delete_no_more_than_needed() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(at(0));
    let store = open(&limited(&folder, by_size(8_000_000)), &clock);
    let queries = async || {
        let sum = "SELECT sum(hash(attrs) % 3)::BIGINT FROM event_rows, range(8)";
        loop {
            column::<Option<i64>>(&store, sum).await;
        }
    };
    let batches = async {
        for number in 1..=14 {
            append_noise(&store, &clock, number).await;
            until_settled(&store, 6_400_000).await;
            let kept: Vec<i64> = column(&store, "SELECT count(*) FROM event_rows").await;
            let least = i64::try_from(number.min(4)).unwrap() * 6_000;
            assert!(kept[0] >= least, "{kept:?} after batch {number}");
        }
    };
    tokio::select! {
        () = batches => {}
        () = queries() => {}
        () = queries() => {}
    }
}

#[tokio::test]
async fn event_numbers_are_not_reused_after_everything_was_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(at(DAY));
    let store = open(&limited(&folder, by_age(1)), &clock);
    store.append(received(DAY + HOUR, 1, 1)).await.unwrap();
    store.append(received(2 * HOUR, 3, 1)).await.unwrap();
    store.append(received(1, 2, 5)).await.unwrap();
    follow(&store).await;
    clock.set(at(DAY + HOUR));
    drop(store);
    let store = open(&limited(&folder, by_age(1)), &clock);
    follow(&store).await;
    until_dropped(&store, at(HOUR)).await;
    drop(store);
    // Changed from outside, where no maintenance deletes at the same time.
    let outside = connect(&config(&folder).path);
    outside
        .execute_batch("DELETE FROM ingested_batches; DELETE FROM event_rows")
        .unwrap();
    drop(outside);
    let store = open(&limited(&folder, by_age(1)), &clock);
    assert_eq!(*store.committed().borrow(), 7);
}

#[tokio::test]
async fn a_wrong_clock_across_a_restart_deletes_no_events_and_no_batch_keys() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(at(HOUR));
    let mut store = open(&limited(&folder, by_age(1)), &clock);
    store.append(received(HOUR, 1, 5)).await.unwrap();
    let content = EventBatch {
        key: BatchKey::Content(7),
        ..received(HOUR, 0, 5)
    };
    store.append(content.clone()).await.unwrap();
    clock.set(at(365 * DAY));
    let late = EventBatch {
        key: BatchKey::Content(8),
        ..received(365 * DAY, 0, 1)
    };
    store.append(late).await.unwrap();
    for _ in 0..2 {
        drop(store);
        store = open(&limited(&folder, by_age(1)), &clock);
        follow(&store).await;
        some_rounds(&store).await;
    }
    let page = store.events(query(0, 366 * DAY)).await.unwrap();
    assert_eq!(page.events.len(), 11);
    for batch in [received(HOUR, 1, 5), content] {
        assert_eq!(store.append(batch).await.unwrap(), Appended::Duplicate);
    }
}

#[tokio::test]
async fn after_a_day_an_incident_keeps_its_first_state_its_changes_and_the_last_of_each_hour() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(Nanos::new(START));
    let config = config(&folder);
    let store = open(&config, &clock);
    for minute in 0..120 {
        clock.set(at(minute * 60_000));
        let mut state = incident(1, "prod", 0, minute);
        if (30..40).contains(&minute) {
            state.severity = Severity::Critical;
        }
        store.store_verdicts(incidents([state])).await.unwrap();
    }
    drop(store);
    clock.set(at(3 * DAY));
    let store = open(&config, &clock);
    let kept: Vec<i64> = column(
        &store,
        "SELECT last_seen_ns FROM verdict_history ORDER BY revision",
    )
    .await;
    let kept: Vec<i64> = kept.iter().map(|seen| (seen - START) / 1_000_000).collect();
    assert_eq!(kept, [0, 30, 40, 59, 119]);
}
