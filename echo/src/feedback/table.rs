//! The policy table: the one value that flows back. Readers borrow it; nobody waits for it.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::ids::ClusterId;

/// Encoded policies by cluster, replaced as a whole whenever one changes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PolicyTable {
    clusters: BTreeMap<ClusterId, ClusterPolicy>,
}

/// What the responses to one cluster's agents carry.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterPolicy {
    /// Version of the encoded set.
    pub version: u64,
    /// Encoded `PolicySet`, at most 8 KiB.
    pub encoded: Bytes,
    /// Scalar threshold for Ingero agents, milliseconds of lag; nothing without quorum.
    pub threshold: Option<f64>,
    /// Whether any cohort of the cluster has quorum.
    pub quorum_met: bool,
}

impl PolicyTable {
    /// The policy of the cluster, if there is one.
    pub fn of(&self, cluster: &ClusterId) -> Option<&ClusterPolicy> {
        self.clusters.get(cluster)
    }

    /// The table with the policy of `cluster` replaced.
    #[must_use]
    pub fn with(mut self, cluster: ClusterId, policy: ClusterPolicy) -> Self {
        self.clusters.insert(cluster, policy);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::{ClusterPolicy, PolicyTable};
    use bytes::Bytes;

    #[test]
    fn a_cluster_sees_its_own_policy_only() {
        let policy = ClusterPolicy {
            version: 3,
            encoded: Bytes::from_static(b"x"),
            threshold: Some(1.5),
            quorum_met: true,
        };
        let table = PolicyTable::default().with("a".parse().unwrap(), policy.clone());
        assert_eq!(table.of(&"a".parse().unwrap()), Some(&policy));
        assert_eq!(table.of(&"b".parse().unwrap()), None);
    }
}
