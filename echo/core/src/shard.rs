//! Sharding: the ordinal of this instance, and the shard that owns a cluster. Pure.
//!
//! The owner of a cluster follows only from its name and the operator's flags. It is also defined
//! for unknown clusters, so it can be disclosed to any caller.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use fleet_proto::shard::{PLACEHOLDER, address, for_cluster};

use crate::ids::ClusterId;

/// Maximum number of other shards whose addresses are listed one by one.
const MAX_LISTED: u32 = 4;

/// One of several instances that share the clusters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    ordinal: u32,
    count: NonZeroU32,
    url: Arc<str>,
}

/// Another shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherShard {
    /// Ordinal, from 0.
    pub ordinal: u32,
    /// URL of its query API.
    pub url: String,
}

impl fmt::Display for OtherShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {} at {}", self.ordinal, self.url)
    }
}

impl Shard {
    /// Creates shard `ordinal` of `count`, with the query API at `url`, which contains a
    /// placeholder for the ordinal; `None` if `ordinal` is out of range or `url` has no
    /// placeholder.
    pub fn new(ordinal: u32, count: NonZeroU32, url: &str) -> Option<Self> {
        let is_one = ordinal < count.get() && url.contains(PLACEHOLDER);
        is_one.then(|| Self {
            ordinal,
            count,
            url: Arc::from(url.trim_end_matches('/')),
        })
    }

    /// Ordinal, from 0.
    pub const fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Number of shards.
    pub const fn count(&self) -> u32 {
        self.count.get()
    }

    /// URL of the shards' query API, with a placeholder for the ordinal.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the other shard that owns this cluster; `None` if this one does.
    pub fn other_of(&self, cluster: &ClusterId) -> Option<OtherShard> {
        let ordinal = for_cluster(cluster.as_str(), self.count);
        (ordinal != self.ordinal).then(|| self.other(ordinal))
    }

    /// All other shards.
    pub fn others(&self) -> impl Iterator<Item = OtherShard> {
        let ordinals = (0..self.count()).filter(|ordinal| *ordinal != self.ordinal);
        ordinals.map(|ordinal| self.other(ordinal))
    }

    /// Note for responses about all clusters; `None` if there is only one shard.
    pub fn note(&self) -> Option<String> {
        let (ordinal, count) = (self.ordinal, self.count());
        let others = match count - 1 {
            0 => return None,
            1..=MAX_LISTED => {
                let urls: Vec<String> = self.others().map(|other| other.url).collect();
                urls.join(", ")
            }
            last => format!("{} for {PLACEHOLDER} from 0 to {last}", self.url),
        };
        Some(format!(
            "this is shard {ordinal} of {count}, other clusters are at {others}"
        ))
    }

    fn other(&self, ordinal: u32) -> OtherShard {
        OtherShard {
            ordinal,
            url: address(&self.url, ordinal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(ordinal: u32, count: u32) -> Option<Shard> {
        let count = NonZeroU32::new(count).unwrap();
        Shard::new(ordinal, count, "https://echo-{shard}.lab:8081/")
    }

    #[test]
    fn a_cluster_is_owned_by_one_shard_and_the_others_know_its_owner() {
        let cluster: ClusterId = "lab".parse().unwrap();
        for ordinal in 0..3 {
            let other = shard(ordinal, 3).unwrap().other_of(&cluster);
            let text = other.map(|other| other.to_string());
            let owner = "shard 2 at https://echo-2.lab:8081".to_owned();
            assert_eq!(text, (ordinal != 2).then_some(owner));
        }
    }

    #[test]
    fn a_shard_needs_an_ordinal_below_the_count_and_a_placeholder_in_the_url() {
        assert!(shard(2, 3).is_some());
        assert_eq!(shard(3, 3), None);
        let three = NonZeroU32::new(3).unwrap();
        assert_eq!(Shard::new(0, three, "https://echo.lab"), None);
    }

    #[test]
    fn few_other_shards_are_listed_and_many_are_given_as_a_pattern() {
        assert_eq!(shard(0, 1).unwrap().note(), None);
        let few = shard(1, 3).unwrap().note().unwrap();
        let expected = "this is shard 1 of 3, other clusters are at https://echo-0.lab:8081, https://echo-2.lab:8081";
        assert_eq!(few, expected);
        let many = shard(1, 100).unwrap().note().unwrap();
        assert!(
            many.ends_with("at https://echo-{shard}.lab:8081 for {shard} from 0 to 99"),
            "{many}"
        );
    }
}
