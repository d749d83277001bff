//! Policy table: the policies sent back to agents. Readers do not block.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::ids::{ClusterId, NodeId};
use crate::pattern::Pattern;
use crate::units::Nanos;

/// Encoded policies by cluster, replaced as a whole whenever one changes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PolicyTable {
    clusters: BTreeMap<ClusterId, ClusterPolicy>,
    culprits: AgentReport,
}

/// Culprits that are reported to agents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentReport {
    /// Clusters whose agents get a statement; none unless agents are consumers of actions.
    pub clusters: Vec<Pattern>,
    /// Encoded `HostCulprits` of the nodes that have any, each at most 2 KiB.
    pub nodes: BTreeMap<(ClusterId, NodeId), Bytes>,
}

/// Contents of the responses to one cluster's agents.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClusterPolicy {
    /// Version of the encoded set; 0 while there is none.
    pub version: u64,
    /// Encoded `PolicySet`, at most 8 KiB; empty while there is none.
    pub encoded: Bytes,
    /// True if any cohort of the cluster has quorum.
    pub quorum_met: bool,
    /// Threshold for the health scores of Ingero agents, once nodes of the cluster send any.
    pub health: Option<HealthThreshold>,
}

impl ClusterPolicy {
    /// Scalar threshold for Ingero agents: a health score. `None` without quorum or health scores:
    /// these agents cannot use a lag in milliseconds.
    pub fn threshold(&self) -> Option<f64> {
        let health = self.health.filter(|health| health.quorum_met)?;
        health.threshold
    }

    /// Returns true if enough nodes report: health scores where nodes send any, else blocks of
    /// collectives.
    pub fn has_quorum(&self) -> bool {
        self.health
            .map_or(self.quorum_met, |health| health.quorum_met)
    }
}

/// Reference for a cluster's health scores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HealthThreshold {
    /// Score below which a node is a straggler, 0 to 1; `None` before the first quorum.
    pub threshold: Option<f64>,
    /// True if enough nodes report.
    pub quorum_met: bool,
    /// Nodes with a score that is still valid.
    pub nodes_reporting: usize,
    /// Number of nodes that form a quorum.
    pub nodes_needed: usize,
    /// Distance of the threshold below the centre, in scales.
    pub k: f64,
    /// Weight of a new threshold against the one before.
    pub ema_alpha: f64,
    /// Arrival time of the last score that was used.
    pub computed_at: Nanos,
}

#[cfg(any(test, feature = "testing"))]
impl HealthThreshold {
    /// Creates the threshold with five of five nodes.
    pub const fn example(threshold: f64) -> Self {
        Self {
            threshold: Some(threshold),
            quorum_met: true,
            nodes_reporting: 5,
            nodes_needed: 5,
            k: 3.5,
            ema_alpha: 0.2,
            computed_at: Nanos::EARLIEST,
        }
    }
}

impl PolicyTable {
    /// The policy of the cluster, if there is one.
    pub fn for_cluster(&self, cluster: &ClusterId) -> Option<&ClusterPolicy> {
        self.clusters.get(cluster)
    }

    /// Encoded `HostCulprits` for the agent of a node, empty if it has none; `None` if agents of the
    /// cluster get no statement.
    pub fn culprits(&self, cluster: &ClusterId, node: &NodeId) -> Option<Bytes> {
        let AgentReport { clusters, nodes } = &self.culprits;
        if !clusters.iter().any(|one| one.matches(cluster.as_str())) {
            return None;
        }
        let own = nodes.get(&(cluster.clone(), node.clone()));
        Some(own.cloned().unwrap_or_default())
    }

    /// Replaces the culprits that are reported to agents. Returns false if it is unchanged.
    pub fn set_culprits(&mut self, culprits: AgentReport) -> bool {
        let is_changed = self.culprits != culprits;
        self.culprits = culprits;
        is_changed
    }

    /// Replaces the policy of `cluster`, and keeps the threshold of its health scores.
    pub fn set_policy(&mut self, cluster: ClusterId, policy: ClusterPolicy) {
        let entry = self.clusters.entry(cluster).or_default();
        let health = entry.health.or(policy.health);
        *entry = ClusterPolicy { health, ..policy };
    }

    /// Replaces the threshold of the health scores of `cluster`, and keeps its policy.
    pub fn set_health(&mut self, cluster: ClusterId, health: HealthThreshold) {
        self.clusters.entry(cluster).or_default().health = Some(health);
    }
}

#[cfg(test)]
mod tests {
    use super::{AgentReport, ClusterPolicy, HealthThreshold, PolicyTable};
    use crate::pattern::Pattern;
    use bytes::Bytes;

    fn policy() -> ClusterPolicy {
        ClusterPolicy {
            version: 3,
            encoded: Bytes::from_static(b"x"),
            quorum_met: true,
            health: None,
        }
    }

    #[test]
    fn a_cluster_sees_its_own_policy_only() {
        let mut table = PolicyTable::default();
        table.set_policy("a".parse().unwrap(), policy());
        assert_eq!(table.for_cluster(&"a".parse().unwrap()), Some(&policy()));
        assert_eq!(table.for_cluster(&"b".parse().unwrap()), None);
    }

    #[test]
    fn policy_and_health_threshold_do_not_replace_each_other() {
        let (mut table, cluster) = (PolicyTable::default(), "a".parse().unwrap());
        table.set_health(cluster, HealthThreshold::example(0.7));
        let cluster = "a".parse().unwrap();
        table.set_policy(cluster, policy());
        let both = table.for_cluster(&"a".parse().unwrap()).unwrap();
        assert_eq!((both.version, both.threshold()), (3, Some(0.7)));
    }

    #[test]
    fn a_node_without_culprits_differs_from_a_cluster_without_a_statement() {
        let (prod, node) = ("prod".parse().unwrap(), "n1".parse().unwrap());
        let mut table = PolicyTable::default();
        assert_eq!(table.culprits(&prod, &node), None);
        let report = AgentReport {
            clusters: vec!["prod*".parse::<Pattern>().unwrap()],
            nodes: [((prod.clone(), node.clone()), Bytes::from_static(b"x"))].into(),
        };
        assert!(table.set_culprits(report.clone()) && !table.set_culprits(report));
        assert_eq!(table.culprits(&prod, &node).unwrap(), "x");
        assert_eq!(table.culprits(&prod, &"n2".parse().unwrap()).unwrap(), "");
        assert_eq!(table.culprits(&"lab".parse().unwrap(), &node), None);
    }

    #[test]
    fn no_quorum_means_no_threshold_and_without_scores_the_cohorts_decide() {
        let mut health = HealthThreshold::example(0.7);
        health.quorum_met = false;
        let without_quorum = ClusterPolicy {
            health: Some(health),
            ..policy()
        };
        assert_eq!(without_quorum.threshold(), None);
        assert!(!without_quorum.has_quorum());
        assert_eq!((policy().threshold(), policy().has_quorum()), (None, true));
    }
}
