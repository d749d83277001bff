//! Minimums, pages and the size of an answer.

use echo_core::ids::{IncidentId, Rank};
use echo_core::model::detector_output::{
    Condition, ConditionKind, DetectorOutput, Finding, Incident,
};

use super::{run_tool, store_incident};
use crate::ToolContext;
use crate::find_outlier_nodes::{FindOutlierNodes, Outliers};
use crate::fixture::{batch, context, culprit, empty};
use crate::tool::Tool;

#[tokio::test]
async fn culprits_below_a_minimum_are_omitted() {
    // 11 ms late, 11 % slower, 90 % confident.
    let context = context().await;
    let found = async |tool: FindOutlierNodes| {
        let answer = FindOutlierNodes {
            window: Some("all".parse().unwrap()),
            ..tool
        };
        let answer = answer.run(&context).await.unwrap();
        assert_eq!(answer.conditions.len(), 1, "conditions are not filtered");
        answer.outliers.len()
    };
    let least = |lag, slowdown, confidence| FindOutlierNodes {
        min_lag_ms: Some(lag),
        min_slowdown: Some(slowdown),
        min_confidence: Some(confidence),
        ..FindOutlierNodes::default()
    };
    assert_eq!(found(least(11.0, 0.11, 0.9)).await, 1);
    for tool in [
        least(11.1, 0.0, 0.0),
        least(0.0, 0.12, 0.0),
        least(0.0, 0.0, 0.91),
    ] {
        assert_eq!(found(tool).await, 0);
    }
}

/// Estimated number of tokens, at four bytes of JSON each.
fn tokens(answer: &Outliers) -> usize {
    serde_json::to_string(answer).unwrap().len() / 4
}

/// Context with two hundred culprits, each more severe than the one before.
async fn many() -> ToolContext {
    let context = empty();
    context.store.append(batch(0..4, 0..=600)).await.unwrap();
    let incidents = (1..=200_u32).map(|id| Incident {
        id: IncidentId::new(u64::from(id)),
        effect_ratio: f64::from(id) / 1_000.0,
        ..culprit()
    });
    let output = DetectorOutput {
        incidents: incidents.collect(),
        ..DetectorOutput::default()
    };
    context.store.store_verdicts(output).await.unwrap();
    context
}

#[tokio::test]
async fn pages_list_all_culprits_once_most_severe_first() {
    let context = many().await;
    let mut tool = FindOutlierNodes {
        limit: Some(90),
        ..FindOutlierNodes::default()
    };
    let mut seen = Vec::new();
    loop {
        let page = tool.clone().run(&context).await.unwrap();
        assert_eq!(page.truncated, page.next_cursor.is_some());
        seen.extend(page.outliers.iter().filter_map(|row| row.effect_ratio));
        let Some(next) = page.next_cursor else { break };
        tool.cursor = Some(next.parse().unwrap());
    }
    assert_eq!(seen.len(), 200);
    assert!(seen.is_sorted_by(|a, b| a > b), "{seen:?}");
}

#[tokio::test]
async fn a_cursor_cannot_be_combined_with_a_window() {
    let tool = FindOutlierNodes {
        cursor: Some("1-2-0".parse().unwrap()),
        window: Some("15m".parse().unwrap()),
        ..FindOutlierNodes::default()
    };
    let refused = tool.run(&context().await).await.unwrap_err();
    assert!(
        refused.to_string().contains("already contains the window"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_condition_of_a_whole_fleet_lists_at_most_64_ranks() {
    let context = context().await;
    let missing = Condition {
        ranks: (0..10_240).map(Rank::new).collect(),
        ..Condition::new(ConditionKind::Hang)
    };
    let hung = Incident {
        finding: Finding::Condition(missing),
        ..culprit()
    };
    store_incident(&context, hung).await;
    let answer = run_tool(&context, None, "now-5m", "now").await;
    let condition = &answer.conditions[0];
    assert_eq!((condition.ranks.len(), condition.rank_count), (64, 10_240));
}

#[tokio::test]
async fn an_answer_is_limited_to_the_most_severe_and_marked_truncated() {
    let context = many().await;
    let answer = run_tool(&context, None, "now-5m", "now").await;
    assert_eq!((answer.outliers.len(), answer.truncated), (40, true));
    assert_eq!(answer.outliers[0].effect_ratio, Some(0.2));
    assert!(tokens(&answer) < 25_000, "{} tokens", tokens(&answer));
    let all = FindOutlierNodes {
        limit: Some(1_000),
        ..FindOutlierNodes::default()
    };
    let answer = all.run(&context).await.unwrap();
    assert_eq!((answer.outliers.len(), answer.truncated), (200, false));
}
