//! Names and origins by the hashes that stand for them in the rows.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use xxhash_rust::xxh64::{Xxh64, xxh64};

use crate::ids::{JobId, RankOf};
use crate::model::event::Origin;

/// Everything that rows refer to. The writer adds entries before it commits the rows that refer to them, so a reader
/// that sees a row finds its entries.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    names: RwLock<HashMap<u64, Arc<str>>>,
    origins: RwLock<HashMap<u64, Arc<Origin>>>,
}

/// Entries that rows refer to.
#[derive(Debug, Default, Clone)]
pub(super) struct Entries {
    /// Names by their ids.
    pub(super) names: HashMap<u64, Arc<str>>,
    /// Origins by their ids.
    pub(super) origins: HashMap<u64, Arc<Origin>>,
}

impl Dictionary {
    /// The name with this id.
    pub(super) fn name(&self, id: u64) -> Option<Arc<str>> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        names.get(&id).cloned()
    }

    /// The origin with this id; all callers share one.
    pub(super) fn origin(&self, id: u64) -> Option<Arc<Origin>> {
        let origins = self.origins.read().unwrap_or_else(PoisonError::into_inner);
        origins.get(&id).cloned()
    }

    /// Adds entries.
    pub(super) fn extend(&self, entries: &Entries) {
        if !entries.names.is_empty() {
            let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
            names.extend(
                entries
                    .names
                    .iter()
                    .map(|(id, name)| (*id, Arc::clone(name))),
            );
        }
        if !entries.origins.is_empty() {
            let mut origins = self.origins.write().unwrap_or_else(PoisonError::into_inner);
            let added = entries.origins.iter();
            origins.extend(added.map(|(id, origin)| (*id, Arc::clone(origin))));
        }
    }
}

impl Entries {
    /// Adds all of `later`.
    pub(super) fn absorb(&mut self, later: Self) {
        self.names.extend(later.names);
        self.origins.extend(later.origins);
    }
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

    use super::{name_id, origin_id};
    use crate::ids::RankOf;
    use crate::model::event::Origin;
    use crate::store::contract::sample::{bare_origin, origin};

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
}
