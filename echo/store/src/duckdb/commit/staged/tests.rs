use std::sync::Arc;

use echo_core::model::detector_output::DetectorOutput;
use echo_core::model::event::{Event, Origin};

use super::Staged;
use crate::contract::sample::{bare_origin, batch, origin, wait};
use crate::duckdb::dictionary::Entries;
use crate::duckdb::dictionary::series::{Series, series_id};
use crate::duckdb::dictionary::{find, origin_id};

/// Event, and entries that were stored before under its hashes but belong to another.
fn hash_collision() -> (Event, Entries) {
    let event = wait(&origin("prod", "node-1", 0), 10);
    let mut other = event.clone();
    other.unit = "other".into();
    let mut stored = Entries::default();
    let series = Arc::new(Series::from_event(&other));
    stored.series.insert(series_id(&event), series);
    let origin = bare_origin("others", "node-9");
    stored.origins.insert(origin_id(&event.origin), origin);
    (event, stored)
}

#[test]
fn entries_with_the_same_hash_get_different_ids() {
    let (event, stored) = hash_collision();
    let batch = batch(1, vec![event.clone(), event.clone()]);
    let mut staged = Staged::with(DetectorOutput::default());
    staged.add(&batch, 0, &stored);
    let ids = staged.events.iter().map(|row| (row.series, row.origin));
    let [first, second] = ids.collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(first, second);
    assert_eq!(*staged.entries.series[&first.0], Series::from_event(&event));
    assert_eq!(staged.entries.origins[&first.1], event.origin);
    assert!(!stored.series.contains_key(&first.0));
    assert!(!stored.origins.contains_key(&first.1));
}

#[test]
fn an_entry_with_a_hash_collision_is_found_again() {
    let (event, mut stored) = hash_collision();
    let batch = batch(1, vec![event]);
    let mut first = Staged::with(DetectorOutput::default());
    first.add(&batch, 0, &stored);
    stored.absorb(first.entries);
    let mut second = Staged::with(DetectorOutput::default());
    second.add(&batch, 1, &stored);
    assert_eq!(second.events[0].series, first.events[0].series);
    assert_eq!(second.events[0].origin, first.events[0].origin);
    assert!(second.entries.series.is_empty() && second.entries.origins.is_empty());
}

#[test]
fn probing_wraps_around_after_the_last_id() {
    let taken = Origin::clone(&bare_origin("others", "node-9"));
    let known = |id| (id == u64::MAX).then_some(&taken);
    let entry = find(u64::MAX, known, |_| false);
    assert_eq!((entry.id, entry.is_known), (0, false));
}
