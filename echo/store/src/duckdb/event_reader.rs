//! Reads events with their samples.

use std::collections::HashMap;

use echo_core::model::event::StoredEvent;

use crate::duckdb::connection_pool::Reader;
use crate::duckdb::dictionary::Dictionary;
use crate::duckdb::engine::EngineResult;
use crate::duckdb::query::Query;
use crate::duckdb::rows::event_queries;
use crate::duckdb::rows::query_results::{EventReader, add_samples};
use crate::timeseries::TimeseriesPoint;
use crate::{Cursor, EventQuery, Page, TimedOperations, uses_samples};

/// Returns the events of a page with all fields.
pub(super) fn page(
    reader: &Reader,
    dictionary: &Dictionary,
    query: &EventQuery,
) -> EngineResult<Page> {
    let mut events = Vec::new();
    let mut rows = EventReader::new(dictionary);
    reader.each_batch(&event_queries::page(query), |batch| {
        rows.events(batch, &mut events)
    })?;
    let more = events.len() > query.limit;
    events.truncate(query.limit);
    let ids: Vec<_> = events.iter().map(|stored| stored.id).collect();
    if !ids.is_empty() {
        read_samples(reader, &event_queries::samples(&ids), &mut events)?;
    }
    let next = events.last().filter(|_| more).map(|last| Cursor {
        timestamp: last.event.timestamp,
        id: last.id,
    });
    Ok(Page { events, next })
}

/// Returns events as the detector reads them, with the samples that it uses.
pub(super) fn judged(
    reader: &Reader,
    dictionary: &Dictionary,
    query: &Query,
) -> EngineResult<Vec<StoredEvent>> {
    let mut events = Vec::new();
    let mut rows = EventReader::new(dictionary);
    reader.each_batch(query, |batch| rows.events(batch, &mut events))?;
    let judged = events.iter().filter(|stored| uses_samples(&stored.event));
    let ids = judged.map(|stored| stored.id);
    if let Some((first, last)) = ids.clone().min().zip(ids.max()) {
        read_samples(
            reader,
            &event_queries::device_samples(first, last),
            &mut events,
        )?;
    }
    Ok(events)
}

/// Returns sums of signals per rank and time bucket.
pub(super) fn timeseries(
    reader: &Reader,
    dictionary: &Dictionary,
    query: &Query,
) -> EngineResult<Vec<TimeseriesPoint>> {
    let mut points = Vec::new();
    let mut rows = EventReader::new(dictionary);
    reader.each_batch(query, |batch| {
        points.extend(rows.timeseries(batch)?);
        Ok(())
    })?;
    Ok(points)
}

/// Returns the operations of each rank and how many of them have times.
pub(super) fn timed_operations(
    reader: &Reader,
    dictionary: &Dictionary,
    query: &Query,
) -> EngineResult<Vec<TimedOperations>> {
    let mut found = Vec::new();
    let mut rows = EventReader::new(dictionary);
    reader.each_batch(query, |batch| {
        found.extend(rows.timed_operations(batch)?);
        Ok(())
    })?;
    Ok(found)
}

fn read_samples(reader: &Reader, query: &Query, events: &mut [StoredEvent]) -> EngineResult<()> {
    let by_id = events
        .iter_mut()
        .map(|stored| (stored.id, &mut stored.event));
    let mut by_id: HashMap<_, _> = by_id.collect();
    reader.each_batch(query, |batch| add_samples(batch, &mut by_id))
}
