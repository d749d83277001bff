use std::sync::Arc;

use super::{FindOutlierNodes, Outliers};
use crate::store::EventStore;
use crate::store::memory::MemoryStore;
use crate::tools::ToolContext;
use crate::tools::fixture::{batch, context, over};
use crate::tools::registry::Tool;

async fn asked(context: &ToolContext, cluster: Option<&str>, from: &str, to: &str) -> Outliers {
    let tool = FindOutlierNodes {
        cluster: cluster.map(str::to_owned),
        from: Some(from.parse().unwrap()),
        to: Some(to.parse().unwrap()),
        window: None,
    };
    tool.call(context).await.unwrap()
}

#[tokio::test]
async fn a_culprit_and_a_condition_are_told_apart() {
    let answer = asked(&context().await, Some("prod"), "now-10m", "now").await;
    insta::assert_json_snapshot!(answer);
}

#[tokio::test]
async fn only_incidents_that_were_open_in_the_window_are_listed() {
    let answer = asked(&context().await, None, "now-5m", "now").await;
    assert_eq!((answer.outliers.len(), answer.conditions.len()), (1, 0));
    let answer = asked(&context().await, None, "now-10m", "now-7m").await;
    assert_eq!((answer.outliers.len(), answer.conditions.len()), (0, 1));
}

#[tokio::test]
async fn a_missing_rank_costs_the_quorum() {
    let store = MemoryStore::new();
    store.append(batch(0..3, 0..=600)).await.unwrap();
    let quality = asked(&over(Arc::new(store)), None, "now-10m", "now")
        .await
        .data_quality;
    assert_eq!((quality.ranks_reporting, quality.ranks_expected), (3, 4));
    assert_eq!(quality.coverage, Some(0.75));
    assert!(!quality.quorum_met);
    assert!(quality.note.unwrap().contains("too few ranks"));
}

#[tokio::test]
async fn an_empty_window_does_not_pass_for_a_healthy_cluster() {
    let quality = asked(&context().await, None, "now-50m", "now-40m")
        .await
        .data_quality;
    assert_eq!((quality.coverage, quality.last_event_age_s), (None, None));
    assert!(!quality.quorum_met);
    let note = quality.note.unwrap();
    assert!(
        note.contains("2026-06-01T00:00:00.000Z") && note.contains("window=all"),
        "{note}"
    );
    let empty = over(Arc::new(MemoryStore::new()));
    let note = asked(&empty, None, "now-50m", "now-40m")
        .await
        .data_quality
        .note;
    assert_eq!(note.unwrap(), "no events are stored yet");
}
