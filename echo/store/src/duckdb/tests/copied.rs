//! Copies elsewhere: rows are read by their numbers, and kept until they are copied.

use echo_core::clock::ManualClock;

use super::config;
use super::retention::{by_age, follow, limited, open, received, some_rounds, until_dropped};
use crate::EventStore;
use crate::contract::sample::at;
use crate::duckdb::DuckDbConfig;
use crate::duckdb::slices::{Numbers, SliceReader, Table};
use crate::limits::{Amount, Limits};

const HOUR: i64 = 3_600_000;

/// Number of rows of a part of a slice.
fn count(slices: &SliceReader, table: Table, first: u64, last: u64) -> usize {
    let mut rows = 0;
    let numbers = Numbers { first, last };
    let counted = slices.each_batch(table, numbers, |batch| {
        rows += batch.num_rows();
        Ok::<(), ()>(())
    });
    counted.unwrap();
    rows
}

#[tokio::test]
async fn a_slice_has_the_rows_with_its_numbers_and_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(at(60_000));
    let config = DuckDbConfig {
        keep_until_copied: true,
        ..config(&folder)
    };
    let store = open(&config, &clock);
    for number in 1..3 {
        let millis = i64::try_from(number).unwrap();
        store.append(received(millis, number, 5)).await.unwrap();
    }
    let slices = store.take_slices().unwrap();
    assert!(store.take_slices().is_none(), "it is there once");
    assert_eq!(count(&slices, Table::Events, 4, 7), 4);
    assert_eq!(count(&slices, Table::Samples, 4, 7), 8);
    assert_eq!(count(&slices, Table::Series, 4, 7), 1);
    assert_eq!(count(&slices, Table::Origins, 4, 7), 1);
    assert_eq!(count(&slices, Table::Verdicts, 1, 9), 0);
    let columns = slices.columns(Table::Samples).unwrap();
    let columns: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(columns[..4], ["day", "cluster", "event_id", "ordinal"]);
    assert_eq!(slices.first_event().unwrap(), Some(1));
    assert_eq!(slices.received(6).unwrap(), Some(at(2)));
    assert_eq!(slices.received(11).unwrap(), None);
    assert_eq!(slices.oldest_received(5).unwrap(), Some(at(2)));
    assert_eq!(slices.database_id().unwrap().len(), 36);
}

#[tokio::test]
async fn a_store_without_copies_has_no_reader_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&config(&folder), &ManualClock::at(at(60_000)));
    assert!(store.take_slices().is_none());
}

#[tokio::test]
async fn age_deletes_only_what_is_copied() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(at(74 * HOUR));
    let config = DuckDbConfig {
        keep_until_copied: true,
        ..limited(&folder, by_age(3))
    };
    let store = open(&config, &clock);
    // The event times show that the clock is right.
    for (number, hours) in [(1, 0), (2, 1), (3, 2), (4, 26), (5, 50), (6, 74)] {
        let batch = received(hours * HOUR + 1, number, 5);
        store.append(batch).await.unwrap();
    }
    drop(store);
    let store = open(&config, &clock);
    follow(&store).await;
    some_rounds(&store).await;
    assert_eq!(store.dropped_until().await.unwrap(), None);
    let slices = store.take_slices().unwrap();
    slices.confirm(10);
    until_dropped(&store, at(2 * HOUR)).await;
    assert_eq!(slices.first_event().unwrap(), Some(11));
    assert_eq!(slices.lost().get(), 0);
}

#[tokio::test]
async fn below_the_floor_of_the_volume_events_are_deleted_before_they_are_copied_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(at(74 * HOUR));
    let with_floor = |bytes| DuckDbConfig {
        keep_until_copied: true,
        ..limited(
            &folder,
            Limits {
                floor: Some(Amount::Bytes(bytes)),
                ballast_bytes: 0,
                ..by_age(3)
            },
        )
    };
    let store = open(&with_floor(0), &clock);
    // The event times show that the clock is right.
    for (number, hours) in [(1, 0), (2, 1), (3, 2), (4, 26), (5, 50), (6, 74)] {
        let batch = received(hours * HOUR + 1, number, 5);
        store.append(batch).await.unwrap();
    }
    follow(&store).await;
    some_rounds(&store).await;
    assert_eq!(store.dropped_until().await.unwrap(), None, "they wait");
    drop(store);
    let store = open(&with_floor(u64::MAX / 2), &clock);
    follow(&store).await;
    until_dropped(&store, at(2 * HOUR)).await;
    let slices = store.take_slices().unwrap();
    // They are counted after they are deleted.
    while slices.lost().get() < 10 {
        tokio::task::yield_now().await;
    }
    assert_eq!(slices.lost().get(), 10);
    assert_eq!(slices.first_event().unwrap(), Some(11));
}
