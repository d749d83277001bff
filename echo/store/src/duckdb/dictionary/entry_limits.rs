//! Whether there is room for what a batch brings that is new.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, PoisonError};

use echo_core::ids::ClusterId;
use echo_core::model::event::{Event, Origin};

use crate::ExceededLimit;
use crate::duckdb::dictionary::series::Series;
use crate::duckdb::dictionary::{Dictionary, read};
use crate::limits::EntryLimits;

/// One part in so many of the limits is plenty of room: what comes with which token is counted only beyond that.
const SHARED_FRACTION: usize = 4;

/// Tokens that are remembered. Tokens of identity providers are as many as there are names.
const MAX_TOKENS: usize = 10_000;

impl Dictionary {
    /// The events whose new series, origins or clusters there is no room for, by their places. Events whose entries are known
    /// are never among them. What comes with a token takes at most as much as it leaves free, and so do the origins of its
    /// clusters; only what comes without access control is bounded by the limits alone.
    pub(in crate::duckdb) fn over_entry_limits(
        &self,
        events: &[Event],
        token: Option<&str>,
    ) -> Vec<(usize, ExceededLimit)> {
        let (held, limits) = self.fullness();
        let plenty = token.map_or(limits, |_| limits.part(SHARED_FRACTION));
        let most = EntryLimits {
            series: events.len(),
            origins: events.len(),
            clusters: events.len(),
        };
        // Mostly there is room for whatever events bring, and nothing has to be looked up.
        if held.plus(most).fits(plenty) {
            return Vec::new();
        }
        let mut brought = self.brought.lock().unwrap_or_else(PoisonError::into_inner);
        let known = token.and_then(|token| brought.get(token)).copied();
        let mut newcomers = NewEntries {
            dictionary: self,
            series: HashSet::new(),
            origins: HashSet::new(),
            clusters: BTreeMap::new(),
            free: limits.minus(held),
            brought: token.map(|_| known.unwrap_or(EntryLimits::NONE)),
        };
        let refused = |(place, event)| Some((place, newcomers.admit_event(event).err()?));
        let refused = events.iter().enumerate().filter_map(refused).collect();
        if let Some((token, more)) = token.zip(newcomers.brought) {
            if known.is_none() && brought.len() >= MAX_TOKENS {
                brought.clear();
            }
            brought.insert(Arc::from(token), more);
        }
        refused
    }
}

/// What a batch would add.
struct NewEntries<'d> {
    dictionary: &'d Dictionary,
    series: HashSet<Series>,
    origins: HashSet<Arc<Origin>>,
    /// New origins of each cluster.
    clusters: BTreeMap<ClusterId, usize>,
    /// Room that is left, without what the batch adds.
    free: EntryLimits,
    /// What came with the token, with what the batch adds; nothing without one.
    brought: Option<EntryLimits>,
}

impl NewEntries<'_> {
    /// Adds what is new of an event, all or nothing.
    fn admit_event(&mut self, event: &Event) -> Result<(), ExceededLimit> {
        let cluster = &event.origin.cluster;
        let origin = &event.origin;
        let is_new =
            self.dictionary.same_origin(origin).is_none() && !self.origins.contains(origin);
        let stored = read(&self.dictionary.origins)
            .clusters
            .get(cluster)
            .copied();
        let in_cluster = stored.unwrap_or(0) + self.clusters.get(cluster).copied().unwrap_or(0);
        let series = Series::from_event(event);
        let is_new_series = !self.dictionary.knows_series(event) && !self.series.contains(&series);
        let more = EntryLimits {
            series: usize::from(is_new_series),
            origins: usize::from(is_new),
            clusters: usize::from(is_new && in_cluster == 0),
        };
        self.admit(more, in_cluster)?;
        self.free = self.free.minus(more);
        self.brought = self.brought.map(|brought| brought.plus(more));
        if is_new_series {
            self.series.insert(series);
        }
        if is_new {
            self.origins.insert(Arc::clone(origin));
            *self.clusters.entry(cluster.clone()).or_default() += 1;
        }
        Ok(())
    }

    /// Whether there is room for so much more, of a cluster that has so many origins.
    fn admit(&self, more: EntryLimits, in_cluster: usize) -> Result<(), ExceededLimit> {
        let room = |of: fn(&EntryLimits) -> usize, of_cluster: usize| {
            let more = of(&more);
            let share = self
                .brought
                .map(|brought| of(&brought).max(of_cluster) + more);
            // A share is at most as much as it leaves free.
            let left = of(&self.free).checked_sub(more);
            more == 0 || left.is_some_and(|left| share.is_none_or(|share| share <= left))
        };
        if !room(|limits| limits.clusters, 0) {
            return Err(ExceededLimit::Cluster);
        }
        if !room(|limits| limits.origins, in_cluster) {
            return Err(ExceededLimit::Origin);
        }
        if !room(|limits| limits.series, 0) {
            return Err(ExceededLimit::Series);
        }
        Ok(())
    }
}
