//! Names and origins by the hashes that stand for them in the rows.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};

use echo_core::ids::{ClusterId, JobId, Op, RankOf};
use echo_core::model::event::{Event, Origin};
use xxhash_rust::xxh64::{Xxh64, xxh64};

use crate::Unnameable;
use crate::limits::EntryLimits;

/// What ids stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A metric, a unit, an operation or a span.
    Name,
    /// An origin.
    Origin,
}

/// Everything that rows refer to. The writer adds entries before it commits the rows that refer to them, so a reader
/// that sees a row finds its entries; and it takes entries away only once nobody reads any more who began before the rows
/// that referred to them were deleted.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    names: RwLock<HashMap<u64, Arc<str>>>,
    origins: RwLock<HashMap<u64, Arc<Origin>>>,
    limits: EntryLimits,
    /// Whoever begins to read holds the present one.
    lease: RwLock<Lease>,
    /// Leases given before entries were forgotten that have not been taken away.
    retired: Mutex<Vec<Weak<()>>>,
}

/// Held by whoever reads rows, from before the first question until the last entry is looked up.
pub(super) type Lease = Arc<()>;

/// Entries that rows refer to.
#[derive(Debug, Default, Clone)]
pub(super) struct Entries {
    /// Names by their ids.
    pub(super) names: HashMap<u64, Arc<str>>,
    /// Origins by their ids.
    pub(super) origins: HashMap<u64, Arc<Origin>>,
}

impl Dictionary {
    /// An empty dictionary that is full with so many entries.
    pub(super) fn new(limits: EntryLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Keeps entries from being taken away.
    pub(super) fn lease(&self) -> Lease {
        Arc::clone(&read(&self.lease))
    }

    /// Notes that entries were forgotten. Whoever takes a lease from now on sees no row that refers to them.
    pub(super) fn retire(&self) {
        let before = std::mem::take(&mut *write(&self.lease));
        self.retired().push(Arc::downgrade(&before));
    }

    /// Takes away what is not among the entries that are `stored`, unless somebody may still need it; then the next call does.
    pub(super) fn settle(&self, stored: &Entries) {
        let mut retired = self.retired();
        if retired.is_empty() || retired.iter().any(|lease| lease.strong_count() > 0) {
            return;
        }
        retired.clear();
        drop(retired);
        let mut names = write(&self.names);
        names.retain(|id, _| stored.names.contains_key(id));
        names.shrink_to_fit();
        drop(names);
        let mut origins = write(&self.origins);
        origins.retain(|id, _| stored.origins.contains_key(id));
        origins.shrink_to_fit();
    }

    fn retired(&self) -> MutexGuard<'_, Vec<Weak<()>>> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many names and origins there are, and how many there may be.
    pub(super) fn fullness(&self) -> (EntryLimits, EntryLimits) {
        let held = EntryLimits {
            names: read(&self.names).len(),
            origins: read(&self.origins).len(),
        };
        (held, self.limits)
    }

    /// The events whose new names or origins there is no room for, by their places. Events whose entries are known are
    /// never among them.
    pub(super) fn unnameable(&self, events: &[Event]) -> Vec<(usize, Unnameable)> {
        let (held, limits) = self.fullness();
        let mut newcomers = Newcomers {
            dictionary: self,
            names: HashSet::new(),
            origins: HashSet::new(),
            room: EntryLimits {
                names: limits.names.saturating_sub(held.names),
                origins: limits.origins.saturating_sub(held.origins),
            },
        };
        // Mostly there is room for whatever events bring, and nothing has to be looked up.
        let most = events.len().saturating_mul(NAMES_PER_EVENT);
        if newcomers.room.names >= most && newcomers.room.origins >= events.len() {
            return Vec::new();
        }
        let refused = |(place, event)| Some((place, newcomers.take_in(event).err()?));
        events.iter().enumerate().filter_map(refused).collect()
    }

    /// The name with this id.
    pub(super) fn name(&self, id: u64) -> Option<Arc<str>> {
        read(&self.names).get(&id).cloned()
    }

    /// The origin with this id; all callers share one.
    pub(super) fn origin(&self, id: u64) -> Option<Arc<Origin>> {
        read(&self.origins).get(&id).cloned()
    }

    /// The clusters that origins belong to.
    pub(super) fn clusters(&self) -> BTreeSet<ClusterId> {
        let mut clusters = BTreeSet::new();
        for origin in read(&self.origins).values() {
            if !clusters.contains(&origin.cluster) {
                clusters.insert(origin.cluster.clone());
            }
        }
        clusters
    }

    /// Ids of the origins of a cluster, in order.
    pub(super) fn origins_of(&self, cluster: &ClusterId) -> Vec<u64> {
        let mut ids: Vec<u64> = read(&self.origins)
            .iter()
            .filter(|(_, origin)| origin.cluster == *cluster)
            .map(|(id, _)| *id)
            .collect();
        ids.sort_unstable();
        ids
    }

    /// Adds entries.
    pub(super) fn extend(&self, entries: &Entries) {
        if !entries.names.is_empty() {
            let mut names = write(&self.names);
            names.extend(
                entries
                    .names
                    .iter()
                    .map(|(id, name)| (*id, Arc::clone(name))),
            );
        }
        if !entries.origins.is_empty() {
            let mut origins = write(&self.origins);
            let added = entries.origins.iter();
            origins.extend(added.map(|(id, origin)| (*id, Arc::clone(origin))));
        }
    }
}

/// Metric, unit and operation.
const NAMES_PER_EVENT: usize = 3;

/// What a batch would add.
struct Newcomers<'d> {
    dictionary: &'d Dictionary,
    names: HashSet<u64>,
    origins: HashSet<u64>,
    room: EntryLimits,
}

impl Newcomers<'_> {
    /// Adds what is new of an event, all or nothing.
    fn take_in(&mut self, event: &Event) -> Result<(), Unnameable> {
        let origin = origin_id(&event.origin);
        let is_new = self.dictionary.origin(origin).is_none() && !self.origins.contains(&origin);
        if is_new && self.origins.len() >= self.room.origins {
            return Err(Unnameable::Origin);
        }
        let op = event.block.as_ref().and_then(|block| block.op.as_ref());
        let names = [
            Some(event.metric.as_str()),
            Some(&*event.unit),
            op.map(Op::as_str),
        ];
        let new: HashSet<u64> = names
            .into_iter()
            .flatten()
            .map(name_id)
            .filter(|id| self.dictionary.name(*id).is_none() && !self.names.contains(id))
            .collect();
        if !new.is_empty() && self.names.len() + new.len() > self.room.names {
            return Err(Unnameable::Name);
        }
        self.names.extend(new);
        if is_new {
            self.origins.insert(origin);
        }
        Ok(())
    }
}

impl Entries {
    /// Takes away those with these ids.
    pub(super) fn forget(&mut self, kind: Kind, ids: &[u64]) {
        for id in ids {
            match kind {
                Kind::Name => drop(self.names.remove(id)),
                Kind::Origin => drop(self.origins.remove(id)),
            }
        }
    }

    /// Adds all of `later`.
    pub(super) fn absorb(&mut self, later: Self) {
        self.names.extend(later.names);
        self.origins.extend(later.origins);
    }
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// The id of a name.
pub(super) fn name_id(name: &str) -> u64 {
    xxh64(name.as_bytes(), 0)
}

/// The id of an origin: a hash of all that it consists of.
pub(super) fn origin_id(origin: &Origin) -> u64 {
    let mut hash = Xxh64::new(0);
    let mut text = |part: Option<&str>| {
        // The length keeps neighbours apart, and no text has the length that stands for none.
        let length = part.map_or(u64::MAX, |part| part.len() as u64);
        hash.update(&length.to_le_bytes());
        hash.update(part.unwrap_or_default().as_bytes());
    };
    text(Some(origin.cluster.as_str()));
    text(Some(origin.node.as_str()));
    text(origin.job.as_ref().map(JobId::as_str));
    text(origin.gpu_model.as_deref());
    text(origin.gpu_uuid.as_deref());
    text(origin.namespace.as_deref());
    text(origin.pod.as_deref());
    let rank = origin.rank.map(|rank| rank.rank().value());
    let world_size = origin.rank.and_then(RankOf::world_size);
    for number in [rank, world_size] {
        hash.update(&number.map_or(u64::MAX, u64::from).to_le_bytes());
    }
    hash.digest()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use echo_core::ids::RankOf;
    use echo_core::model::event::Origin;
    use echo_core::model::event::{Event, Reading};

    use super::Kind;
    use super::{Dictionary, Entries, name_id, origin_id};
    use crate::Unnameable;
    use crate::contract::sample::{bare_origin, gauge, origin};
    use crate::limits::EntryLimits;

    #[test]
    fn every_part_of_an_origin_counts() {
        let base = Origin::clone(&bare_origin("ab", "c"));
        let with = |change: fn(&mut Origin)| {
            let mut origin = base.clone();
            change(&mut origin);
            origin
        };
        let all = [
            base.clone(),
            Origin::clone(&bare_origin("a", "bc")),
            with(|origin| origin.job = Some("x".parse().unwrap())),
            with(|origin| origin.gpu_model = Some(Arc::from("x"))),
            with(|origin| origin.gpu_uuid = Some(Arc::from("x"))),
            with(|origin| origin.gpu_uuid = Some(Arc::from(""))),
            with(|origin| origin.namespace = Some(Arc::from("x"))),
            with(|origin| origin.pod = Some(Arc::from("x"))),
            with(|origin| origin.rank = RankOf::new(0, None).ok()),
            with(|origin| origin.rank = RankOf::new(0, Some(1)).ok()),
        ];
        let ids: BTreeSet<_> = all.iter().map(origin_id).collect();
        assert_eq!(ids.len(), all.len());
    }

    #[test]
    fn an_id_is_the_same_on_every_machine() {
        assert_eq!(name_id(""), 0xef46_db37_51d8_e999, "the reference value");
        assert_eq!(
            origin_id(&origin("prod", "node-1", 0)),
            18_304_359_056_072_534_627,
            "it is in the databases that exist"
        );
    }

    fn names(names: &[&str]) -> Entries {
        let names = names.iter().map(|name| (name_id(name), Arc::from(*name)));
        Entries {
            names: names.collect(),
            ..Entries::default()
        }
    }

    #[test]
    fn a_forgotten_name_stays_as_long_as_somebody_reads_who_began_before() {
        let dictionary = Dictionary::default();
        let mut stored = names(&["kept", "gone"]);
        dictionary.extend(&stored);
        let reader = dictionary.lease();
        stored.forget(Kind::Name, &[name_id("gone")]);
        dictionary.retire();
        let later = dictionary.lease();
        dictionary.settle(&stored);
        assert!(dictionary.name(name_id("gone")).is_some());
        drop(reader);
        dictionary.settle(&stored);
        assert!(dictionary.name(name_id("gone")).is_none());
        assert!(dictionary.name(name_id("kept")).is_some());
        drop(later);
    }

    #[test]
    fn events_with_new_names_are_refused_when_it_is_full_and_known_ones_never() {
        let dictionary = Dictionary::new(EntryLimits {
            names: 3,
            origins: 2,
        });
        let node = |name| bare_origin("prod", name);
        let event = |node_name, metric| gauge(&node(node_name), metric, 0, Reading::Int(1));
        let events = |of: &[(&'static str, &'static str)]| -> Vec<Event> {
            of.iter()
                .map(|(node, metric)| event(node, metric))
                .collect()
        };
        // The empty unit is a name, too.
        let mut known = names(&["a", ""]);
        let first = node("n-1");
        known.origins.insert(origin_id(&first), first);
        dictionary.extend(&known);
        let batch = events(&[("n-1", "a"), ("n-1", "b"), ("n-1", "c"), ("n-1", "b")]);
        assert_eq!(dictionary.unnameable(&batch), [(2, Unnameable::Name)]);
        let batch = events(&[("n-3", "c"), ("n-3", "a"), ("n-4", "a"), ("n-1", "a")]);
        assert_eq!(dictionary.unnameable(&batch), [(2, Unnameable::Origin)]);
        // An event that is refused for its name takes no place of an origin.
        let batch = events(&[("n-1", "b"), ("n-2", "c"), ("n-3", "a")]);
        assert_eq!(dictionary.unnameable(&batch), [(1, Unnameable::Name)]);
    }
}
