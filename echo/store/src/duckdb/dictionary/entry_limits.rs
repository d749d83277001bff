//! Entry limits: checks whether the new entries of a batch fit.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, PoisonError};

use echo_core::ids::ClusterId;
use echo_core::model::event::{Event, Origin};

use crate::ExceededLimit;
use crate::duckdb::dictionary::series::Series;
use crate::duckdb::dictionary::{Dictionary, read};
use crate::limits::EntryLimits;

/// Usage below this fraction of the limits is not attributed to tokens.
const SHARED_FRACTION: usize = 4;

/// Maximum number of tokens tracked: identity providers can issue any number of names.
const MAX_TOKENS: usize = 10_000;

impl Dictionary {
    /// Returns the indexes of events whose new series, origins or clusters exceed a limit. Events
    /// without new entries are never included. One token may add at most as many entries as it
    /// leaves free, and so may the origins of one cluster; without access control only the limits
    /// apply.
    pub(in crate::duckdb) fn over_entry_limits(
        &self,
        events: &[Event],
        token: Option<&str>,
    ) -> Vec<(usize, ExceededLimit)> {
        let (used, limits) = self.fullness();
        let plenty = token.map_or(limits, |_| limits.part(SHARED_FRACTION));
        let most = EntryLimits {
            series: events.len(),
            origins: events.len(),
            clusters: events.len(),
        };
        // Common case: the limits hold even if every event were new, so nothing has to be looked
        // up.
        if used.plus(most).fits(plenty) {
            return Vec::new();
        }
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        let known = token.and_then(|token| added.get(token)).copied();
        let mut newcomers = NewEntries {
            dictionary: self,
            series: HashSet::new(),
            origins: HashSet::new(),
            clusters: BTreeMap::new(),
            free: limits.minus(used),
            added: token.map(|_| known.unwrap_or(EntryLimits::NONE)),
        };
        let refused = |(index, event)| Some((index, newcomers.admit_event(event).err()?));
        let refused = events.iter().enumerate().filter_map(refused).collect();
        if let Some((token, more)) = token.zip(newcomers.added) {
            if known.is_none() && added.len() >= MAX_TOKENS {
                added.clear();
            }
            added.insert(Arc::from(token), more);
        }
        refused
    }
}

/// New entries of a batch.
struct NewEntries<'d> {
    dictionary: &'d Dictionary,
    series: HashSet<Series>,
    origins: HashSet<Arc<Origin>>,
    /// New origins of each cluster.
    clusters: BTreeMap<ClusterId, usize>,
    /// Free capacity before the batch.
    free: EntryLimits,
    /// Entries added by the token, including this batch; `None` without a token.
    added: Option<EntryLimits>,
}

impl NewEntries<'_> {
    /// Adds the new entries of an event, all or nothing.
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
        self.added = self.added.map(|added| added.plus(more));
        if is_new_series {
            self.series.insert(series);
        }
        if is_new {
            self.origins.insert(Arc::clone(origin));
            *self.clusters.entry(cluster.clone()).or_default() += 1;
        }
        Ok(())
    }

    /// Checks that `more` entries fit, for a cluster with `in_cluster` origins.
    fn admit(&self, more: EntryLimits, in_cluster: usize) -> Result<(), ExceededLimit> {
        let fits = |of: fn(&EntryLimits) -> usize, of_cluster: usize| {
            let more = of(&more);
            let share = self.added.map(|added| of(&added).max(of_cluster) + more);
            // A share must not exceed what it leaves free.
            let left = of(&self.free).checked_sub(more);
            more == 0 || left.is_some_and(|left| share.is_none_or(|share| share <= left))
        };
        if !fits(|limits| limits.clusters, 0) {
            return Err(ExceededLimit::Cluster);
        }
        if !fits(|limits| limits.origins, in_cluster) {
            return Err(ExceededLimit::Origin);
        }
        if !fits(|limits| limits.series, 0) {
            return Err(ExceededLimit::Series);
        }
        Ok(())
    }
}
