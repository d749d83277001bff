//! Outliers in one line of text.

use echo_core::text::decimal;

use super::Outliers;

/// Describes outliers: how many there are, and the most severe one.
pub(super) fn headline(answer: &Outliers) -> String {
    let culprits = answer.outliers.iter().filter(|row| row.is_culprit());
    let n_culprits = culprits.count();
    let mut counts = counted(n_culprits, "culprit");
    let n_nodes = answer.outliers.len() - n_culprits;
    if n_nodes > 0 {
        counts = format!("{counts}, {}", counted(n_nodes, "unhealthy node"));
    }
    counts = format!(
        "{counts}, {}",
        counted(answer.conditions.len(), "condition")
    );
    if let Some(first) = answer.outliers.first() {
        let (node, cluster) = (&first.node_id, &first.cluster);
        let what = match (first.rank, first.effect_ratio) {
            (Some(rank), Some(ratio)) => {
                let at_least = if first.lifecycle.lower_bound {
                    "at least "
                } else {
                    ""
                };
                format!(
                    "rank {rank} on {node} of {cluster}, slowdown {at_least}{} %",
                    decimal(ratio * 100.0, 1)
                )
            }
            _ => format!("unhealthy node {node} of {cluster}"),
        };
        let confidence = first.confidence * 100.0;
        return format!("{counts}; most severe: {what}, confidence {confidence:.0} %");
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

/// Formats a number with its noun.
fn counted(n: usize, noun: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use crate::find_outlier_nodes::FindOutlierNodes;
    use crate::fixture::{context, context_without_past, empty};
    use crate::tool::Tool;

    #[tokio::test]
    async fn a_headline_names_the_worst_rank() {
        let context = context().await;
        let found = FindOutlierNodes::default().run(&context).await.unwrap();
        assert_eq!(
            FindOutlierNodes::headline(&found).unwrap(),
            "1 culprit, 1 condition; most severe: rank 2 on node-1 of prod, slowdown 11.0 %, confidence 90 %"
        );
    }

    #[tokio::test]
    async fn without_a_healthy_past_the_slowdown_is_at_least_that() {
        let context = context_without_past().await;
        let found = FindOutlierNodes::default().run(&context).await.unwrap();
        let bounds = found.outliers.iter().map(|one| &one.lifecycle);
        let bounds = bounds.chain(found.conditions.iter().map(|one| &one.lifecycle));
        assert_eq!(
            bounds.map(|one| one.lower_bound).collect::<Vec<_>>(),
            [true, false]
        );
        let headline = FindOutlierNodes::headline(&found).unwrap();
        assert!(headline.contains("slowdown at least 11.0 %"), "{headline}");
    }

    #[tokio::test]
    async fn a_headline_without_events_claims_no_health() {
        let context = empty();
        let found = FindOutlierNodes::default().run(&context).await.unwrap();
        assert_eq!(
            FindOutlierNodes::headline(&found).unwrap(),
            "0 culprits, 0 conditions, but too few ranks report to say that the cluster is healthy"
        );
    }
}
