//! Outliers in one line of text.

use echo_core::text::decimal;

use super::{Outlier, Outliers};

/// Describes outliers: how many there are, and the most severe one.
pub(super) fn headline(answer: &Outliers) -> String {
    let count = |is_counted: fn(&Outlier) -> bool| {
        let counted = answer.outliers.iter().filter(|row| is_counted(row));
        counted.count()
    };
    let (n_culprits, n_victims) = (count(Outlier::is_culprit), count(Outlier::is_victim));
    let mut counts = format!(
        "{}, {}",
        counted(n_culprits, "culprit"),
        counted(n_victims, "victim")
    );
    let n_nodes = answer.outliers.len() - n_culprits - n_victims;
    if n_nodes > 0 {
        counts = format!("{counts}, {}", counted(n_nodes, "unhealthy node"));
    }
    counts = format!(
        "{counts}, {}",
        counted(answer.conditions.len(), "condition")
    );
    if let Some(first) = answer.outliers.first() {
        let node = first.node_id.as_deref().unwrap_or("an unknown node");
        let cluster = &first.cluster;
        let what = match (first.rank, first.effect_ratio) {
            (Some(rank), Some(ratio)) => {
                format!(
                    "rank {rank} on {node} of {cluster}, slowdown {} %",
                    decimal(ratio * 100.0, 1)
                )
            }
            _ => format!("unhealthy node {node} of {cluster}"),
        };
        let confidence = first.confidence.map_or_else(String::new, |confidence| {
            format!(", confidence {:.0} %", confidence * 100.0)
        });
        return format!("{counts}; most severe: {what}{confidence}");
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
    use crate::fixture::{context, empty};
    use crate::tool::Tool;

    #[tokio::test]
    async fn a_headline_names_the_worst_rank() {
        let context = context().await;
        let found = FindOutlierNodes::default().run(&context).await.unwrap();
        assert_eq!(
            FindOutlierNodes::headline(&found).unwrap(),
            "1 culprit, 0 victims, 1 condition; most severe: rank 2 on node-1 of prod, slowdown 11.0 %, confidence 90 %"
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
