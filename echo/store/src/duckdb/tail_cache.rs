//! Recently committed events, cached for the detector.
//!
//! Reading them back would cost a query plan per poll, and per event as much time as storing it. So
//! the events of a commit are passed on directly. They are in the database as well: a reader that
//! has fallen behind the cache, or reads again, reads them there.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec;

use echo_core::ids::MetricName;
use echo_core::model::event::{Event, EventBatch, Origin, StoredEvent};
use echo_core::units::Nanos;

use crate::duckdb::dictionary::Dictionary;
use crate::{Tail, is_host_wait, uses_attrs, uses_samples};

/// Maximum number of cached events, a few hundred bytes each without attributes: seconds of the
/// largest supported fleet.
const MAX_EVENTS: u64 = 200_000;

/// Committed events that have not been read yet, in the order of their numbers, which have no gaps.
#[derive(Debug)]
pub(super) struct TailCache {
    dictionary: Arc<Dictionary>,
    batches: Mutex<CachedBatches>,
    no_attrs: Arc<str>,
}

#[derive(Debug, Default)]
struct CachedBatches {
    /// Number of the event before the first cached one.
    before: u64,
    batches: VecDeque<Batch>,
    /// Number of events of all batches.
    events: u64,
}

#[derive(Debug)]
struct Batch {
    /// Number of the event before the first of these.
    before: u64,
    received: Nanos,
    events: vec::IntoIter<Event>,
}

impl TailCache {
    /// Empty cache.
    pub(super) fn new(dictionary: Arc<Dictionary>) -> Self {
        Self {
            dictionary,
            batches: Mutex::default(),
            no_attrs: Arc::from("{}"),
        }
    }

    /// Starts after the event with this number, the last that was committed before.
    pub(super) fn start_after(&self, last_event: u64) {
        self.lock().before = last_event;
    }

    /// Adds the events of a batch committed after all earlier ones, without those that the detector
    /// ignores.
    pub(super) fn add(&self, mut batch: EventBatch) {
        for event in &mut batch.events {
            if !uses_attrs(event) {
                event.attrs = Arc::clone(&self.no_attrs);
            }
            if !uses_samples(event) {
                event.samples = Vec::new();
            }
        }
        let mut cached = self.lock();
        let before = cached.before + cached.events;
        cached.events += batch.events.len() as u64;
        cached.batches.push_back(Batch {
            before,
            received: batch.received,
            events: batch.events.into_iter(),
        });
        while cached.events > MAX_EVENTS && cached.pop().is_some() {}
    }

    /// Removes and returns the tail after `after`; `None` if it begins before the first cached
    /// event.
    pub(super) fn take(&self, after: u64, metrics: &[MetricName], limit: usize) -> Option<Tail> {
        let mut origins = Origins::new(&self.dictionary);
        let (mut events, mut until) = (Vec::new(), None);
        // The batches are examined without the lock, so that the writer can add more.
        while events.len() < limit {
            let Some(mut batch) = self.pop_after(until.unwrap_or(after)) else {
                break;
            };
            let mut number = batch.before;
            while events.len() < limit
                && let Some(mut event) = batch.events.next()
            {
                number += 1;
                if number <= after || !metrics.contains(&event.metric) || is_host_wait(&event) {
                    continue;
                }
                event.origin = origins.shared(&event.origin);
                events.push(StoredEvent {
                    id: number,
                    received: batch.received,
                    event,
                });
            }
            until = Some(number.max(after));
            self.put_back(Batch {
                before: number,
                ..batch
            });
        }
        let until = until.or_else(|| self.is_at_end(after).then_some(after))?;
        Some(Tail { events, until })
    }

    /// Removes the first batch, if no event is missing between it and `after`.
    fn pop_after(&self, after: u64) -> Option<Batch> {
        let mut cached = self.lock();
        let is_gone = after < cached.before;
        if is_gone { None } else { cached.pop() }
    }

    /// Returns the rest of the batch that was removed last, unless its successor has been evicted
    /// meanwhile.
    fn put_back(&self, rest: Batch) {
        let n_events = rest.events.len() as u64;
        let mut cached = self.lock();
        if n_events > 0 && rest.before + n_events == cached.before {
            cached.before = rest.before;
            cached.events += n_events;
            cached.batches.push_front(rest);
        }
    }

    /// Returns true if nothing was committed after that number.
    fn is_at_end(&self, number: u64) -> bool {
        let cached = self.lock();
        cached.before == number
    }

    // No code that holds the lock can panic.
    fn lock(&self) -> MutexGuard<'_, CachedBatches> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CachedBatches {
    /// Removes the first batch.
    fn pop(&mut self) -> Option<Batch> {
        let first = self.batches.pop_front()?;
        let n_events = first.events.len() as u64;
        self.before = first.before + n_events;
        self.events -= n_events;
        Some(first)
    }
}

/// Shared origins, so that the detector does not keep a copy for each request.
struct Origins<'d> {
    dictionary: &'d Dictionary,
    /// The last origin looked up, and the shared one: neighbours are mostly equal.
    last: Option<(Arc<Origin>, Arc<Origin>)>,
}

impl<'d> Origins<'d> {
    const fn new(dictionary: &'d Dictionary) -> Self {
        Self {
            dictionary,
            last: None,
        }
    }

    fn shared(&mut self, origin: &Arc<Origin>) -> Arc<Origin> {
        if let Some((last, shared)) = &self.last
            && Arc::ptr_eq(last, origin)
        {
            return Arc::clone(shared);
        }
        let shared = self.dictionary.same_origin(origin);
        let shared = shared.unwrap_or_else(|| Arc::clone(origin));
        self.last = Some((Arc::clone(origin), Arc::clone(&shared)));
        shared
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use echo_core::ids::MetricName;
    use echo_core::model::event::EventBatch;

    use super::{MAX_EVENTS, TailCache};
    use crate::contract::sample::{batch, device_wait, origin};
    use crate::duckdb::dictionary::{Dictionary, Entries, origin_id};

    fn tail_cache(last_event: u64) -> TailCache {
        let tail_cache = TailCache::new(Arc::default());
        tail_cache.start_after(last_event);
        tail_cache
    }

    fn of_events(number: u64, count: usize) -> EventBatch {
        batch(
            number,
            vec![device_wait(&origin("prod", "node-1", 0), 1); count],
        )
    }

    /// Numbers of the events in the tail, and its end; `None` if it is not cached.
    fn take(tail_cache: &TailCache, after: u64, limit: usize) -> Option<(Vec<u64>, u64)> {
        let metric: MetricName = device_wait(&origin("prod", "node-1", 0), 1).metric;
        let tail = tail_cache.take(after, &[metric], limit)?;
        let ids = tail.events.iter().map(|stored| stored.id).collect();
        Some((ids, tail.until))
    }

    #[test]
    fn events_are_numbered_across_batches_and_returned_once() {
        let tail_cache = tail_cache(10);
        tail_cache.add(of_events(1, 2));
        tail_cache.add(of_events(2, 3));
        assert_eq!(take(&tail_cache, 10, 3), Some((vec![11, 12, 13], 13)));
        assert_eq!(take(&tail_cache, 10, 3), None, "it is in the database");
        assert_eq!(
            take(&tail_cache, 14, 3),
            Some((vec![15], 15)),
            "14 is skipped"
        );
        assert_eq!(take(&tail_cache, 15, 3), Some((vec![], 15)));
    }

    #[test]
    fn earlier_commits_are_not_cached() {
        assert_eq!(take(&tail_cache(10), 9, 3), None);
        assert_eq!(take(&tail_cache(10), 10, 3), Some((vec![], 10)));
        assert_eq!(
            take(&tail_cache(10), 11, 3),
            None,
            "this number does not exist yet"
        );
    }

    #[test]
    fn the_first_batches_are_evicted_when_the_cache_is_full() {
        let tail_cache = tail_cache(0);
        let most = usize::try_from(MAX_EVENTS).unwrap();
        tail_cache.add(of_events(1, 2));
        tail_cache.add(of_events(2, most));
        assert_eq!(take(&tail_cache, 1, 1), None);
        assert_eq!(take(&tail_cache, 2, 1), Some((vec![3], 3)));
        tail_cache.add(of_events(3, most + 1));
        assert_eq!(
            take(&tail_cache, MAX_EVENTS + 2, 1),
            None,
            "the batch is larger than the cache"
        );
    }

    #[test]
    fn cached_origins_are_shared_with_readers() {
        let dictionary = Dictionary::default();
        let (shared, mut entries) = (origin("prod", "node-1", 0), Entries::default());
        entries
            .origins
            .insert(origin_id(&shared), Arc::clone(&shared));
        dictionary.extend(&entries);
        let tail_cache = TailCache::new(Arc::new(dictionary));
        tail_cache.add(of_events(1, 2));
        let metric = device_wait(&shared, 1).metric;
        let tail = tail_cache.take(0, &[metric], 9).unwrap();
        assert!(
            tail.events
                .iter()
                .all(|stored| Arc::ptr_eq(&stored.event.origin, &shared))
        );
    }
}
