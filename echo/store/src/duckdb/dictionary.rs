//! Names and origins by the hashes that stand for them in the rows.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
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
    origins: RwLock<Origins>,
    limits: EntryLimits,
    /// What came with each token since there has no longer been plenty of room.
    brought: Mutex<HashMap<Arc<str>, EntryLimits>>,
    /// Whoever begins to read holds the present one.
    lease: RwLock<Lease>,
    /// Leases given before entries were forgotten that have not been taken away.
    retired: Mutex<Vec<Weak<()>>>,
}

/// Origins by their ids, and how many of them each cluster has.
#[derive(Debug, Default)]
struct Origins {
    by_id: HashMap<u64, Arc<Origin>>,
    clusters: BTreeMap<ClusterId, usize>,
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
        write(&self.origins).retain(|id| stored.origins.contains_key(&id));
    }

    fn retired(&self) -> MutexGuard<'_, Vec<Weak<()>>> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many names, origins and clusters there are, and how many there may be.
    pub(super) fn fullness(&self) -> (EntryLimits, EntryLimits) {
        let held = EntryLimits {
            names: read(&self.names).len(),
            origins: read(&self.origins).by_id.len(),
            clusters: read(&self.origins).clusters.len(),
        };
        (held, self.limits)
    }

    /// The events whose new names, origins or clusters there is no room for, by their places. Events whose entries are known
    /// are never among them. What comes with a token takes at most as much as it leaves free, and so do the origins of its
    /// clusters; only what comes without access control is bounded by the limits alone.
    pub(super) fn unnameable(
        &self,
        events: &[Event],
        token: Option<&str>,
    ) -> Vec<(usize, Unnameable)> {
        let (held, limits) = self.fullness();
        let plenty = token.map_or(limits, |_| limits.part(PLENTY));
        let most = EntryLimits {
            names: events.len().saturating_mul(NAMES_PER_EVENT),
            origins: events.len(),
            clusters: events.len(),
        };
        // Mostly there is room for whatever events bring, and nothing has to be looked up.
        if held.plus(most).fits(plenty) {
            return Vec::new();
        }
        let mut brought = self.brought.lock().unwrap_or_else(PoisonError::into_inner);
        let known = token.and_then(|token| brought.get(token)).copied();
        let mut newcomers = Newcomers {
            dictionary: self,
            names: HashSet::new(),
            origins: HashSet::new(),
            clusters: BTreeMap::new(),
            free: limits.minus(held),
            brought: token.map(|_| known.unwrap_or(EntryLimits::NONE)),
        };
        let refused = |(place, event)| Some((place, newcomers.take_in(event).err()?));
        let refused = events.iter().enumerate().filter_map(refused).collect();
        if let Some((token, more)) = token.zip(newcomers.brought) {
            if known.is_none() && brought.len() >= MAX_TOKENS {
                brought.clear();
            }
            brought.insert(Arc::from(token), more);
        }
        refused
    }

    /// The name with this id.
    pub(super) fn name(&self, id: u64) -> Option<Arc<str>> {
        read(&self.names).get(&id).cloned()
    }

    /// The origin with this id; all callers share one.
    pub(super) fn origin(&self, id: u64) -> Option<Arc<Origin>> {
        read(&self.origins).by_id.get(&id).cloned()
    }

    /// The clusters that origins belong to.
    pub(super) fn clusters(&self) -> BTreeSet<ClusterId> {
        read(&self.origins).clusters.keys().cloned().collect()
    }

    /// Ids of the origins of a cluster, in order.
    pub(super) fn origins_of(&self, cluster: &ClusterId) -> Vec<u64> {
        let mut ids: Vec<u64> = read(&self.origins)
            .by_id
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
            for (id, origin) in &entries.origins {
                origins.add(*id, origin);
            }
        }
    }
}

/// Metric, unit and operation.
const NAMES_PER_EVENT: usize = 3;

/// One part in so many of the limits is plenty of room: what comes with which token is counted only beyond that.
const PLENTY: usize = 4;

/// Tokens that are remembered. Tokens of identity providers are as many as there are names.
const MAX_TOKENS: usize = 10_000;

/// What a batch would add.
struct Newcomers<'d> {
    dictionary: &'d Dictionary,
    names: HashSet<u64>,
    origins: HashSet<u64>,
    /// New origins of each cluster.
    clusters: BTreeMap<ClusterId, usize>,
    /// Room that is left, without what the batch adds.
    free: EntryLimits,
    /// What came with the token, with what the batch adds; nothing without one.
    brought: Option<EntryLimits>,
}

impl Newcomers<'_> {
    /// Adds what is new of an event, all or nothing.
    fn take_in(&mut self, event: &Event) -> Result<(), Unnameable> {
        let cluster = &event.origin.cluster;
        let origin = origin_id(&event.origin);
        let is_new = self.dictionary.origin(origin).is_none() && !self.origins.contains(&origin);
        let stored = read(&self.dictionary.origins)
            .clusters
            .get(cluster)
            .copied();
        let in_cluster = stored.unwrap_or(0) + self.clusters.get(cluster).copied().unwrap_or(0);
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
        let more = EntryLimits {
            names: new.len(),
            origins: usize::from(is_new),
            clusters: usize::from(is_new && in_cluster == 0),
        };
        self.admit(more, in_cluster)?;
        self.free = self.free.minus(more);
        self.brought = self.brought.map(|brought| brought.plus(more));
        self.names.extend(new);
        if is_new {
            self.origins.insert(origin);
            *self.clusters.entry(cluster.clone()).or_default() += 1;
        }
        Ok(())
    }

    /// Whether there is room for so much more, of a cluster that has so many origins.
    fn admit(&self, more: EntryLimits, in_cluster: usize) -> Result<(), Unnameable> {
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
            return Err(Unnameable::Cluster);
        }
        if !room(|limits| limits.origins, in_cluster) {
            return Err(Unnameable::Origin);
        }
        if !room(|limits| limits.names, 0) {
            return Err(Unnameable::Name);
        }
        Ok(())
    }
}

impl Origins {
    fn add(&mut self, id: u64, origin: &Arc<Origin>) {
        if self.by_id.insert(id, Arc::clone(origin)).is_none() {
            *self.clusters.entry(origin.cluster.clone()).or_default() += 1;
        }
    }

    fn retain(&mut self, is_kept: impl Fn(u64) -> bool) {
        self.by_id.retain(|id, _| is_kept(*id));
        self.by_id.shrink_to_fit();
        self.clusters.clear();
        for origin in self.by_id.values() {
            *self.clusters.entry(origin.cluster.clone()).or_default() += 1;
        }
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
            clusters: 2,
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
        assert_eq!(dictionary.unnameable(&batch, None), [(2, Unnameable::Name)]);
        let batch = events(&[("n-3", "c"), ("n-3", "a"), ("n-4", "a"), ("n-1", "a")]);
        assert_eq!(
            dictionary.unnameable(&batch, None),
            [(2, Unnameable::Origin)]
        );
        // An event that is refused for its name takes no place of an origin.
        let batch = events(&[("n-1", "b"), ("n-2", "c"), ("n-3", "a")]);
        assert_eq!(dictionary.unnameable(&batch, None), [(1, Unnameable::Name)]);
    }

    /// Events of one node of each of these clusters.
    fn of_clusters(clusters: std::ops::Range<usize>) -> Vec<Event> {
        let event = |n| {
            let origin = bare_origin(Box::leak(format!("c-{n}").into_boxed_str()), "n");
            gauge(&origin, "m", 0, Reading::Int(1))
        };
        clusters.map(event).collect()
    }

    fn stored(events: &[Event]) -> Entries {
        let origins = events.iter().map(|event| &event.origin);
        Entries {
            origins: origins
                .map(|one| (origin_id(one), Arc::clone(one)))
                .collect(),
            ..names(&["m", ""])
        }
    }

    #[test]
    fn one_token_leaves_others_as_much_as_it_brings() {
        let dictionary = Dictionary::new(EntryLimits {
            names: 1_000,
            origins: 100,
            clusters: 1_000,
        });
        let take = |events: Vec<Event>, token| {
            let refused = dictionary.unnameable(&events, token);
            let is_taken = |place: &usize| refused.iter().all(|(refused, _)| refused != place);
            let taken: Vec<Event> = (0..events.len())
                .filter(is_taken)
                .map(|place| events[place].clone())
                .collect();
            dictionary.extend(&stored(&taken));
            taken.len()
        };
        // A quarter is plenty; of the rest one token gets half, and the next one half of what is left.
        assert_eq!(take(of_clusters(0..20), Some("greedy")), 20);
        assert_eq!(take(of_clusters(20..120), Some("greedy")), 40);
        assert_eq!(take(of_clusters(120..220), Some("greedy")), 0);
        assert_eq!(take(of_clusters(220..320), Some("modest")), 20);
        assert_eq!(take(of_clusters(320..420), None), 20, "all that is left");
    }

    #[test]
    fn one_cluster_leaves_others_as_many_senders_as_it_has() {
        let dictionary = Dictionary::new(EntryLimits {
            names: 1_000,
            origins: 8,
            clusters: 8,
        });
        let nodes = ["a", "b", "c", "d", "e"];
        let of_one = nodes.map(|node| gauge(&bare_origin("one", node), "m", 0, Reading::Int(1)));
        dictionary.extend(&stored(&of_one[..3]));
        let fourth = dictionary.unnameable(&of_one[3..], Some("agents"));
        assert_eq!(fourth, [(1, Unnameable::Origin)]);
    }

    #[test]
    fn clusters_are_limited_and_counted_anew_when_origins_are_forgotten() {
        let dictionary = Dictionary::new(EntryLimits {
            clusters: 2,
            ..EntryLimits::default()
        });
        let all = of_clusters(0..3);
        dictionary.extend(&stored(&all[..2]));
        assert_eq!(
            dictionary.unnameable(&all, None),
            [(2, Unnameable::Cluster)]
        );
        dictionary.retire();
        dictionary.settle(&stored(&all[..1]));
        assert_eq!(dictionary.clusters().len(), 1);
        assert_eq!(dictionary.unnameable(&all[2..], None), []);
    }
}
