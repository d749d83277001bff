//! Circuit breakers: conditions under which nothing new is done.

use std::collections::BTreeSet;

use crate::policy::{Limits, NodeLimit};
use crate::refusal::Refusal;

/// How much of a cluster reports.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ClusterHealth {
    /// Nodes that report.
    pub nodes: usize,
    /// Share of the expected ranks that report, 0 to 1; `None` when none does.
    pub coverage: Option<f64>,
}

/// Number of nodes of a cluster that may be acted on at a time: the lower of both limits, rounded
/// down.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of nodes are small, and the share is between 0 and 1"
)]
pub fn allowed_nodes(limit: NodeLimit, nodes: usize) -> usize {
    let share = (nodes as f64 * limit.max_percent / 100.0).floor() as usize;
    share.min(usize::try_from(limit.max_nodes).unwrap_or(usize::MAX))
}

/// Returns why nothing new may be done in a cluster, and the numbers. `qualifying` are the nodes
/// that are acted on already, and all that qualify: if they are too many, none of the new ones is
/// acted on, because the cause is more likely something that they share.
pub fn refusal(
    limits: &Limits,
    nodes: NodeLimit,
    health: ClusterHealth,
    qualifying: &BTreeSet<&str>,
) -> Option<(Refusal, String)> {
    let coverage = health.coverage.unwrap_or(0.0);
    if coverage < limits.min_coverage {
        return Some((
            Refusal::LowCoverage,
            format!(
                "{:.0} % of the ranks report, at least {:.0} % are required",
                coverage * 100.0,
                limits.min_coverage * 100.0
            ),
        ));
    }
    let allowed = allowed_nodes(nodes, health.nodes);
    (qualifying.len() > allowed).then(|| {
        (
            Refusal::NodeLimit,
            format!(
                "{} nodes qualify, at most {allowed} of {} may be acted on at a time (max_nodes {}, max_percent {})",
                qualifying.len(),
                health.nodes,
                nodes.max_nodes,
                nodes.max_percent
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{ClusterHealth, allowed_nodes, refusal};
    use crate::policy::{Limits, NodeLimit};
    use crate::refusal::Refusal;

    const LIMITS: Limits = Limits {
        nodes: NodeLimit {
            max_nodes: 3,
            max_percent: 5.0,
        },
        min_coverage: 0.9,
        min_confidence: 0.8,
    };

    fn refused(nodes: usize, coverage: Option<f64>, qualifying: &[&str]) -> Option<Refusal> {
        let health = ClusterHealth { nodes, coverage };
        let qualifying = qualifying.iter().copied().collect();
        refusal(&LIMITS, LIMITS.nodes, health, &qualifying).map(|(refusal, _)| refusal)
    }

    #[test]
    fn the_lower_of_number_and_percent_limits_the_nodes() {
        let allowed: Vec<usize> = [0, 19, 20, 40, 60, 1_000]
            .map(|nodes| allowed_nodes(LIMITS.nodes, nodes))
            .to_vec();
        assert_eq!(allowed, [0, 0, 1, 2, 3, 3]);
    }

    #[test]
    fn too_many_nodes_stop_all_new_actions() {
        assert_eq!(refused(60, Some(1.0), &["a", "b", "c"]), None);
        let four = refused(60, Some(1.0), &["a", "b", "c", "d"]);
        assert_eq!(four, Some(Refusal::NodeLimit));
        assert_eq!(refused(4, Some(1.0), &["a"]), Some(Refusal::NodeLimit));
    }

    #[test]
    fn low_and_unknown_coverage_stop_all_new_actions() {
        assert_eq!(refused(60, Some(0.9), &["a"]), None);
        assert_eq!(refused(60, Some(0.89), &["a"]), Some(Refusal::LowCoverage));
        assert_eq!(refused(60, None, &["a"]), Some(Refusal::LowCoverage));
    }
}
