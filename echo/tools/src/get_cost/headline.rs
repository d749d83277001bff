//! Cost in one line of text.

use super::answer::Cost;

/// Describes costs: the total, the loss per hour, and the largest contributor.
pub(super) fn headline(answer: &Cost) -> String {
    let currency = answer.currency.as_deref().unwrap_or_default();
    let at_least = if answer.lower_bound { "at least " } else { "" };
    let money = |amount: Option<f64>| {
        amount.map_or_else(
            || "an unknown amount".to_owned(),
            |amount| format!("{at_least}{amount} {currency}"),
        )
    };
    let now = match &answer.as_of {
        Some(as_of) if answer.stale => format!("; no event since {as_of}"),
        _ => String::new(),
    };
    let sums = format!(
        "{} lost in the window, {} per hour now{now}",
        money(answer.window_total),
        money(answer.run_rate_per_hour)
    );
    let largest = answer
        .contributors
        .first()
        .map(|row| match (row.rank, &row.node_id) {
            (Some(rank), Some(node)) => {
                format!("; largest: rank {rank} on {node} of {}", row.cluster)
            }
            _ => format!(
                "; largest: {} in {}",
                row.kind.unwrap_or("unknown"),
                row.cluster
            ),
        });
    format!("{sums}{}", largest.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use crate::fixture::{context, context_without_past};
    use crate::get_cost::GetCost;
    use crate::tool::Tool;

    #[tokio::test]
    async fn a_headline_says_what_is_lost_and_to_whom() {
        let cost = GetCost::default().run(&context().await).await.unwrap();
        assert_eq!(
            GetCost::headline(&cost).unwrap(),
            "0.130889 USD lost in the window, 1.52 USD per hour now; largest: rank 2 on node-1 of prod"
        );
    }

    #[tokio::test]
    async fn a_sum_with_a_lower_bound_is_at_least_that() {
        let context = context_without_past().await;
        let cost = GetCost::default().run(&context).await.unwrap();
        assert_eq!(
            (cost.lower_bound, cost.contributors[0].lower_bound),
            (true, true)
        );
        assert!(!cost.contributors[1].lower_bound);
        let headline = GetCost::headline(&cost).unwrap();
        let sums = "at least 0.130889 USD lost in the window, at least 1.52 USD per hour now; ";
        assert!(headline.starts_with(sums), "{headline}");
    }
}
