//! Reads events with their samples.

use std::collections::HashMap;
use std::time::Duration;

use echo_core::ids::{ClusterId, MetricName};
use echo_core::model::event::StoredEvent;
use echo_core::units::Nanos;

use crate::duckdb::connection_pool::Reader;
use crate::duckdb::dictionary::Dictionary;
use crate::duckdb::engine::EngineResult;
use crate::duckdb::query::Query;
use crate::duckdb::rows::event_queries;
use crate::duckdb::rows::query_results::{EventReader, add_samples, read_extent};
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

/// Time before the last event of all in which the last one of a cluster is searched first. The engine has the ends of
/// all events at hand, and would read all rows for those of a cluster: 0.2 s of 18 million.
const RECENT: Duration = Duration::from_mins(1);

/// Returns the first and last event time.
pub(super) fn extent(
    reader: &Reader,
    cluster: Option<&ClusterId>,
) -> EngineResult<Option<(Nanos, Nanos)>> {
    let Some((first, last)) = ends(reader, &event_queries::extent(None, None))? else {
        return Ok(None);
    };
    let Some(cluster) = cluster else {
        return Ok(Some((first, last)));
    };
    let Some((first, _)) = ends(reader, &event_queries::first(cluster))? else {
        return Ok(None);
    };
    let since = last.before(RECENT);
    let recent = ends(reader, &event_queries::extent(Some(cluster), Some(since)))?;
    let found = match recent {
        Some(recent) => Some(recent),
        None => ends(reader, &event_queries::extent(Some(cluster), None))?,
    };
    Ok(found.map(|(_, last)| (first, last)))
}

fn ends(reader: &Reader, query: &Query) -> EngineResult<Option<(Nanos, Nanos)>> {
    let mut ends = None;
    reader.each_batch(query, |batch| {
        if batch.num_rows() > 0 {
            ends = read_extent(batch)?;
        }
        Ok(())
    })?;
    Ok(ends)
}

/// Numbers of events of a tail.
#[derive(Debug, Clone, Copy)]
pub(super) struct TailRange {
    after: u64,
    until: u64,
    /// Numbers that are looked at first. To find the first few events after a number, the engine reads
    /// all later ones: for each part of a long tail, most of the database. Each range is twice as long
    /// as the one before.
    span: u64,
}

impl TailRange {
    /// Numbers above `after` and up to `until`.
    pub(super) const fn new(after: u64, until: u64) -> Self {
        Self {
            after,
            until,
            span: 200_000,
        }
    }
}

/// Returns the first events of a tail as the detector reads them, with the samples that it uses.
pub(super) fn tail(
    reader: &Reader,
    dictionary: &Dictionary,
    mut range: TailRange,
    metrics: &[MetricName],
    limit: usize,
) -> EngineResult<Vec<StoredEvent>> {
    let mut events = Vec::new();
    let mut rows = EventReader::new(dictionary);
    while range.after < range.until && events.len() < limit {
        let until = range.until.min(range.after.saturating_add(range.span));
        let left = limit - events.len();
        let query = event_queries::tail(range.after, until, metrics, left);
        reader.each_batch(&query, |batch| rows.events(batch, &mut events))?;
        range.after = until;
        range.span = range.span.saturating_mul(2);
    }
    read_used_samples(reader, &mut events)?;
    Ok(events)
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
    read_used_samples(reader, &mut events)?;
    Ok(events)
}

fn read_used_samples(reader: &Reader, events: &mut [StoredEvent]) -> EngineResult<()> {
    let judged = events.iter().filter(|stored| uses_samples(&stored.event));
    let ids = judged.map(|stored| stored.id);
    if let Some((first, last)) = ids.clone().min().zip(ids.max()) {
        let samples = event_queries::device_samples(first, last);
        read_samples(reader, &samples, events)?;
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::EventStore;
    use crate::contract::sample::{batch, origin, wait};
    use crate::duckdb::DuckDbStore;

    #[tokio::test]
    async fn the_parts_of_a_tail_are_those_of_one_query_however_many_numbers_are_looked_at_first() {
        let store = DuckDbStore::scratch();
        let rank = origin("prod", "node-1", 0);
        for number in 0_u32..9 {
            let events = (0..3).map(|at| wait(&rank, 100 * i64::from(number) + at));
            let mut events: Vec<_> = events.collect();
            events[1].metric = "fleet.rank.period_ms".parse().unwrap();
            store.append(batch(number.into(), events)).await.unwrap();
        }
        let period: MetricName = "fleet.rank.period_ms".parse().unwrap();
        for (span, limit) in [(1, 2), (2, 4), (5, 9), (1, 100), (100, 3)] {
            let mut found = Vec::new();
            loop {
                let range = TailRange {
                    span,
                    ..TailRange::new(found.last().copied().unwrap_or(0), 27)
                };
                let (dictionary, period) = (Arc::clone(&store.dictionary), period.clone());
                let read =
                    move |reader: &Reader| tail(reader, &dictionary, range, &[period], limit);
                let part = store.readers.run("testing", read).await.unwrap();
                assert!(part.len() <= limit, "{span} {limit}");
                found.extend(part.iter().map(|stored| stored.id));
                if part.len() < limit {
                    break;
                }
            }
            let expected: Vec<u64> = (0..9).map(|number| 3 * number + 2).collect();
            assert_eq!(found, expected, "{span} {limit}");
        }
        drop(store);
    }
}
