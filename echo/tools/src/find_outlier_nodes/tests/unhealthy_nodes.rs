//! Nodes that report bad health.

use echo_core::ids::{IncidentId, Rank};
use echo_core::model::detector_output::{Finding, Incident, Severity};

use serde_json::json;

use super::{run_tool, store_incident};
use crate::explain_rank::ExplainRank;
use crate::find_outlier_nodes::FindOutlierNodes;
use crate::fixture::{context, empty, unhealthy_node};
use crate::get_cost::GetCost;
use crate::tool::Tool;

/// Returns the incident of a node whose health is reported by its only rank.
fn of_rank(id: u64, node: &str, rank: u32) -> Incident {
    let mut incident = Incident {
        id: IncidentId::new(id),
        severity: Severity::Warn,
        ..unhealthy_node()
    };
    if let Finding::Condition(condition) = &mut incident.finding {
        condition.node = Some(node.parse().unwrap());
        condition.ranks = vec![Rank::new(rank)];
    }
    incident
}

#[tokio::test]
async fn a_node_with_bad_health_is_an_outlier_without_rank_effect_and_cost() {
    let context = context().await;
    store_incident(&context, unhealthy_node()).await;
    let answer = run_tool(&context, None, "now-5m", "now").await;
    let [late, node] = &answer.outliers[..] else {
        panic!("{answer:#?}");
    };
    assert_eq!((late.role, node.role), ("culprit", "unhealthy_node"));
    assert_eq!((node.node_id.as_str(), node.rank), ("node-7", None));
    assert_eq!(
        (node.effect_ratio, node.lag_ms, node.class),
        (None, None, None)
    );
    assert_eq!(
        (node.lifecycle.severity, node.confidence),
        ("critical", 0.5)
    );
    assert!(answer.conditions.is_empty(), "{:?}", answer.conditions);
    let headline = FindOutlierNodes::headline(&answer).unwrap();
    let expected = "1 culprit, 1 unhealthy node, 0 conditions; most severe: rank 2";
    assert!(headline.starts_with(expected), "{headline}");

    let cost = GetCost::default().run(&context).await.unwrap();
    let id = &node.incident_id;
    assert!(cost.contributors.iter().all(|one| one.incident_id != *id));
}

#[tokio::test]
async fn nodes_with_bad_health_are_listed_by_severity_behind_all_slowdowns() {
    let context = context().await;
    for incident in [of_rank(1, "node-1", 3), unhealthy_node()] {
        store_incident(&context, incident).await;
    }
    let answer = run_tool(&context, None, "now-5m", "now").await;
    let rows: Vec<_> = answer
        .outliers
        .iter()
        .map(|row| (row.role, row.rank))
        .collect();
    let node = "unhealthy_node";
    assert_eq!(rows, [("culprit", Some(2)), (node, None), (node, Some(3))]);
    let limited = FindOutlierNodes {
        limit: Some(1),
        ..FindOutlierNodes::default()
    };
    let answer = limited.run(&context).await.unwrap();
    assert_eq!((answer.outliers.len(), answer.truncated), (1, true));
}

#[tokio::test]
async fn a_headline_names_a_node_that_is_the_only_outlier() {
    let context = empty();
    store_incident(&context, unhealthy_node()).await;
    let answer = run_tool(&context, None, "now-5m", "now").await;
    assert_eq!(
        FindOutlierNodes::headline(&answer).unwrap(),
        "0 culprits, 1 unhealthy node, 0 conditions; \
         most severe: unhealthy node node-7 of prod, confidence 50 %"
    );
}

#[tokio::test]
async fn the_health_of_a_node_is_explained_with_the_ranks_that_run_there() {
    let context = context().await;
    let mut node_1 = unhealthy_node();
    if let Finding::Condition(condition) = &mut node_1.finding {
        condition.node = Some("node-1".parse().unwrap());
    }
    store_incident(&context, node_1).await;
    for (rank, expected) in [(2, 1), (0, 0)] {
        let explain: ExplainRank = serde_json::from_value(json!({ "rank": rank })).unwrap();
        let answer = explain.run(&context).await.unwrap();
        let of_node = answer.conditions.iter();
        let of_node = of_node.filter(|one| one.kind == "unhealthy_node");
        assert_eq!(of_node.count(), expected, "rank {rank}: {answer:#?}");
        let says = answer
            .summary
            .contains("Its node is unhealthy: node node-7");
        assert_eq!(says, expected == 1, "{}", answer.summary);
    }
}
