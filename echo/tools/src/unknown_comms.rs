//! Operations on communicators that the agents do not know. They are not compared, so who reads that
//! nothing is wrong has to know.

use std::collections::BTreeMap;

use echo_core::ids::{ClusterId, NodeId};
use echo_core::text::decimal;
use echo_core::units::Window;
use echo_store::process_reports::NodeReport;
use fleet_proto::metric;

use crate::ToolError;
use crate::scope::Scope;

/// Number of operations of a node from which on they are more than those before a communicator is adopted.
const LEAST_OPERATIONS: f64 = 1000.0;

/// Maximum number of nodes in the note.
const MAX_NAMED: usize = 3;

/// Returns a note about the nodes of which operations in a window were not compared.
pub(crate) async fn note(scope: &Scope<'_>, window: Window) -> Result<Option<String>, ToolError> {
    let (store, cluster) = (&scope.context.store, scope.cluster.as_ref());
    let reports = store
        .node_reports(cluster, window, Some(metric::UNKNOWN_COMM_OPS))
        .await?;
    Ok(sentence(&reports))
}

fn sentence(reports: &[NodeReport]) -> Option<String> {
    let mut nodes: BTreeMap<(&ClusterId, &NodeId), f64> = BTreeMap::new();
    for report in reports {
        *nodes.entry((&report.cluster, &report.node)).or_default() += report.total;
    }
    nodes.retain(|_, operations| *operations >= LEAST_OPERATIONS);
    let operations: f64 = nodes.values().sum();
    let named = nodes.keys().take(MAX_NAMED);
    let named: Vec<&str> = named.map(|(_, node)| node.as_str()).collect();
    let more = match nodes.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and of {more} more nodes"),
    };
    (!nodes.is_empty()).then(|| {
        format!(
            "{} operations of the last minute are not compared, because the agents of {}{more} do not know their \
             communicators: start agents before jobs, or use the NCCL profiler plugin",
            decimal(operations, 0),
            named.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use echo_core::units::Nanos;

    use super::*;

    fn report(node: &str, total: f64) -> NodeReport {
        NodeReport {
            cluster: "prod".parse().unwrap(),
            node: node.parse().unwrap(),
            metric: metric::UNKNOWN_COMM_OPS.parse().unwrap(),
            total,
            last: Nanos::new(60_000_000_000),
        }
    }

    #[test]
    fn nodes_of_which_operations_are_not_compared_are_named() {
        let reports = [report("node-1", 17_698.0), report("node-2", 40.0)];
        let note = sentence(&reports).unwrap();
        assert!(
            note.starts_with(
                "17698 operations of the last minute are not compared, because the agents of node-1 do not know"
            ),
            "{note}"
        );
    }

    #[test]
    fn operations_before_a_communicator_is_adopted_are_no_caveat() {
        assert_eq!(sentence(&[report("node-1", 999.0)]), None);
        let many: Vec<NodeReport> = (1..6).map(|n| report(&format!("node-{n}"), 1e4)).collect();
        let note = sentence(&many).unwrap();
        assert!(note.contains("node-3 and of 2 more nodes do not"), "{note}");
    }
}
