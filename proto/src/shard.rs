//! Assignment of clusters to shards.

use std::num::NonZeroU32;

use xxhash_rust::xxh64::Xxh64;

/// Placeholder for the ordinal of a shard in an address.
pub const PLACEHOLDER: &str = "{shard}";

/// Maximum number of shards: finding the shard of a cluster costs one hash per shard.
pub const MAX_SHARDS: u32 = 1024;

/// Returns the ordinal, from 0 to `shards` - 1, of the shard of a cluster, by rendezvous hashing.
///
/// For each ordinal the hash is XXH64 with seed 0 over the bytes of the cluster's id in UTF-8, as
/// agents send it, followed by the ordinal as four bytes, the lowest first. The ordinal with the
/// largest hash wins; of equal ones the lowest does. Agents and Echo of different versions must
/// agree, so this never changes. Adding one shard moves about one cluster in `shards` + 1, always
/// to the new shard.
#[must_use]
pub fn for_cluster(cluster: &str, shards: NonZeroU32) -> u32 {
    let mut prefix = Xxh64::new(0);
    prefix.update(cluster.as_bytes());
    let weight = |ordinal: u32| {
        let mut hash = prefix.clone();
        hash.update(&ordinal.to_le_bytes());
        hash.digest()
    };
    let mut best = (weight(0), 0);
    for ordinal in 1..shards.get() {
        let weight = weight(ordinal);
        if weight > best.0 {
            best = (weight, ordinal);
        }
    }
    best.1
}

/// Returns the address of a shard: the template with every [`PLACEHOLDER`] replaced by the ordinal.
#[must_use]
pub fn address(template: &str, ordinal: u32) -> String {
    template.replace(PLACEHOLDER, &ordinal.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(cluster: &str, shards: u32) -> u32 {
        for_cluster(cluster, NonZeroU32::new(shards).unwrap())
    }

    fn clusters() -> impl Iterator<Item = String> {
        (0..10_000).map(|number| format!("cluster-{number}"))
    }

    #[test]
    fn the_shards_of_these_clusters_never_change() {
        let pinned = ["", "prod", "lab", "cluster-7", "eu-west/h200", "集群"]
            .map(|cluster| [1, 2, 3, 10, MAX_SHARDS].map(|shards| shard(cluster, shards)));
        assert_eq!(
            pinned,
            [
                [0, 1, 1, 1, 473],
                [0, 0, 0, 6, 141],
                [0, 0, 2, 6, 11],
                [0, 0, 0, 3, 931],
                [0, 1, 2, 2, 662],
                [0, 0, 2, 7, 54],
            ]
        );
    }

    #[test]
    fn an_added_shard_gets_its_share_and_no_other_cluster_moves() {
        for shards in [1, 2, 3, 9] {
            let mut moved = 0;
            for cluster in clusters() {
                let (before, after) = (shard(&cluster, shards), shard(&cluster, shards + 1));
                assert!(after == before || after == shards, "{cluster}");
                moved += u32::from(after != before);
            }
            let fair = 10_000 / (shards + 1);
            assert!(moved.abs_diff(fair) < fair / 10, "{moved} of {fair}");
        }
    }

    #[test]
    fn the_load_is_even() {
        for shards in [2, 3, 10] {
            let mut load = vec![0_u32; 10];
            for cluster in clusters() {
                load[shard(&cluster, shards) as usize] += 1;
            }
            let fair = 10_000 / shards;
            for clusters in &load[..shards as usize] {
                assert!(clusters.abs_diff(fair) < fair / 10, "{load:?}");
            }
        }
    }

    #[test]
    fn an_address_may_name_its_shard_several_times() {
        let template = "https://echo-{shard}.echo/{shard}";
        assert_eq!(address(template, 12), "https://echo-12.echo/12");
    }
}
