//! Outliers in one line of text.

use super::Outliers;

/// Describes outliers: how many there are, and the most severe one.
pub(super) fn headline(answer: &Outliers) -> String {
    let n_culprits = answer
        .outliers
        .iter()
        .filter(|row| row.is_culprit())
        .count();
    let counts = format!(
        "{n_culprits} culprits, {} victims, {} conditions",
        answer.outliers.len() - n_culprits,
        answer.conditions.len()
    );
    if let Some(first) = answer.outliers.first() {
        let node = first.node_id.as_deref().unwrap_or("an unknown node");
        let slowdown = first.effect_ratio.unwrap_or_default() * 100.0;
        let confidence = first.confidence.unwrap_or_default() * 100.0;
        let (rank, cluster) = (first.rank, &first.cluster);
        return format!(
            "{counts}; most severe: rank {rank} on {node} of {cluster}, slowdown {slowdown:.1} %, confidence {confidence:.0} %"
        );
    }
    if let Some(first) = answer.conditions.first() {
        return format!("{counts}; most severe: {} in {}", first.kind, first.cluster);
    }
    if answer.data_quality.quorum_met {
        format!("{counts}: healthy in this window")
    } else {
        format!("{counts}, but too few ranks report to say that the cluster is healthy")
    }
}

#[cfg(test)]
mod tests {
    use crate::find_outlier_nodes::FindOutlierNodes;
    use crate::fixture::{context, empty};
    use crate::tool::Tool;

    #[tokio::test]
    async fn a_headline_names_the_worst_rank() {
        let context = context().await;
        let found = FindOutlierNodes::default().run(&context).await.unwrap();
        assert_eq!(
            FindOutlierNodes::headline(&found).unwrap(),
            "1 culprits, 0 victims, 1 conditions; most severe: rank 2 on node-1 of prod, slowdown 11.0 %, confidence 90 %"
        );
    }

    #[tokio::test]
    async fn a_headline_without_events_claims_no_health() {
        let context = empty();
        let found = FindOutlierNodes::default().run(&context).await.unwrap();
        assert_eq!(
            FindOutlierNodes::headline(&found).unwrap(),
            "0 culprits, 0 victims, 0 conditions, but too few ranks report to say that the cluster is healthy"
        );
    }
}
