use std::sync::Arc;

use echo_core::ids::Rank;
use echo_core::model::detector_output::{
    Condition, ConditionKind, DetectorOutput, Finding, Incident, IncidentState, LostTime,
};
use echo_core::model::event::Origin;

use super::GetCost;
use super::answer::Cost;
use crate::ToolContext;
use crate::fixture::{at, batch, context, culprit, detector_output, empty, lost};
use crate::rates::Rates;
use crate::tool::Tool;

async fn run_tool(context: &ToolContext, from: &str, to: &str) -> Cost {
    let tool = GetCost {
        from: Some(from.parse().unwrap()),
        to: Some(to.parse().unwrap()),
        ..GetCost::default()
    };
    tool.run(context).await.unwrap()
}

fn near(found: Option<f64>, expected: f64) -> bool {
    found.is_some_and(|found| (found / expected - 1.0).abs() < 1e-6)
}

#[tokio::test]
async fn the_answer_has_every_field() {
    let answer = run_tool(&context().await, "now-10m", "now").await;
    insta::assert_json_snapshot!(answer);
}

#[tokio::test]
async fn the_run_rate_does_not_depend_on_the_length_of_the_window() {
    let context = context().await;
    for from in ["now-10m", "now-5m", "now-1h"] {
        let answer = run_tool(&context, from, "now").await;
        // Four GPUs lose a tenth of their time, at 3.80 an hour.
        assert!(
            near(answer.run_rate_per_hour, 4.0 * 0.1 * 3.8),
            "{from}: {answer:?}"
        );
        assert!(near(answer.lost_gpu_hours_per_hour, 0.4), "{from}");
        assert!(!answer.stale);
    }
}

#[tokio::test]
async fn adjacent_windows_add_up() {
    let context = context().await;
    let total = run_tool(&context, "now-10m", "now")
        .await
        .window_total
        .unwrap();
    let first = run_tool(&context, "now-10m", "now-3m")
        .await
        .window_total
        .unwrap();
    let second = run_tool(&context, "now-3m", "now")
        .await
        .window_total
        .unwrap();
    assert!(first > 0.0 && second > 0.0);
    assert!(
        (first + second - total).abs() < 2e-6,
        "{first} + {second} != {total}"
    );
}

#[tokio::test]
async fn a_healthy_window_costs_zero() {
    let answer = run_tool(&context().await, "now-10m", "now-9m").await;
    assert_eq!(answer.window_total, Some(0.0));
    assert_eq!(answer.run_rate_per_hour, Some(0.0));
    assert_eq!(answer.currency.as_deref(), Some("USD"));
    assert!(answer.contributors.is_empty());
}

#[tokio::test]
async fn without_events_costs_are_unknown_rather_than_zero() {
    let answer = run_tool(&context().await, "now-50m", "now-40m").await;
    assert_eq!(
        (answer.window_total, answer.run_rate_per_hour),
        (None, None)
    );
    assert_eq!((answer.as_of, answer.lost_ratio), (None, None));
    assert!(answer.stale);
}

#[tokio::test]
async fn too_few_ranks_leave_the_run_rate_unknown() {
    let context = empty();
    context.store.append(batch(0..3, 0..=600)).await.unwrap();
    context
        .store
        .store_verdicts(detector_output())
        .await
        .unwrap();
    let answer = run_tool(&context, "now-10m", "now").await;
    assert_eq!(
        (answer.run_rate_per_hour, answer.lost_gpu_hours_per_hour),
        (None, None)
    );
    assert!(
        answer.window_total.is_some(),
        "losses in the window are known"
    );
}

#[tokio::test]
async fn a_rank_that_moved_to_another_node_does_not_change_the_run_rate() {
    let context = empty();
    let mut after = batch(0..4, 455..=600);
    let rank_2 = crate::fixture::origin(2);
    let moved = Arc::new(Origin {
        node: "node-9".parse().unwrap(),
        ..(*rank_2).clone()
    });
    for event in &mut after.events {
        if event.origin == rank_2 {
            event.origin = Arc::clone(&moved);
        }
    }
    for events in [batch(0..4, 0..=450), after] {
        context.store.append(events).await.unwrap();
    }
    let output = detector_output();
    context.store.store_verdicts(output).await.unwrap();
    let answer = run_tool(&context, "now-10m", "now").await;
    assert!(
        near(answer.run_rate_per_hour, 4.0 * 0.1 * 3.8),
        "{answer:?}"
    );
    assert_eq!(answer.data_quality.ranks_reporting, 4);
}

#[tokio::test]
async fn no_more_gpus_are_lost_than_report() {
    let context = empty();
    context.store.append(batch(0..4, 0..=600)).await.unwrap();
    let hang = culprit();
    // A little more than all of the time of two GPUs on each node.
    let losses = (290..600).step_by(5).flat_map(|second| {
        ["node-0", "node-1"].map(|node| LostTime {
            lost_gpu_ms: 10_200.0,
            ..lost(&hang, node, Some("NVIDIA H200"), second)
        })
    });
    let output = DetectorOutput {
        lost: losses.collect(),
        incidents: vec![hang.clone()],
        ..DetectorOutput::default()
    };
    context.store.store_verdicts(output).await.unwrap();
    let answer = run_tool(&context, "now-10m", "now").await;
    assert!(near(answer.lost_gpu_hours_per_hour, 4.0), "{answer:?}");
    assert!(near(answer.run_rate_per_hour, 4.0 * 3.8));
    assert!(near(answer.contributors[0].run_rate_per_hour, 4.0 * 3.8));
}

#[tokio::test]
async fn the_loss_of_a_hang_is_booked_on_the_only_rank_that_it_waits_for() {
    for (ranks, is_explained, booked) in [
        (vec![2], true, Some(2)),
        (vec![1, 2], true, None),
        (vec![2], false, None),
    ] {
        let context = empty();
        context.store.append(batch(0..4, 0..=600)).await.unwrap();
        let waits_for = Condition {
            ranks: ranks.into_iter().map(Rank::new).collect(),
            is_explained,
            ..Condition::new(ConditionKind::Hang)
        };
        let hang = Incident {
            finding: Finding::Condition(waits_for),
            ..culprit()
        };
        let output = DetectorOutput {
            lost: vec![lost(&hang, "node-0", Some("NVIDIA H200"), 300)],
            incidents: vec![hang.clone()],
            ..DetectorOutput::default()
        };
        context.store.store_verdicts(output).await.unwrap();
        let answer = run_tool(&context, "now-10m", "now").await;
        let row = &answer.contributors[0];
        assert_eq!((row.kind, row.rank), (Some("hang"), booked));
        assert_eq!(row.node_id.is_some(), booked.is_some());
    }
}

#[tokio::test]
async fn gpus_without_a_price_are_never_free() {
    let mut context = context().await;
    context.rates = Arc::new(Rates::default());
    let answer = run_tool(&context, "now-10m", "now").await;
    assert_eq!(
        (answer.window_total, answer.run_rate_per_hour),
        (None, None)
    );
    assert_eq!(answer.currency, None);
    assert!(answer.unpriced_gpu_hours > 0.0);
    assert!((answer.unpriced_gpu_hours - answer.lost_gpu_hours).abs() < 1e-12);
    assert!(answer.by_node.iter().all(|row| row.amount.cost.is_none()));
}

#[tokio::test]
async fn two_currencies_have_two_rows_and_no_total() {
    let mut context = context().await;
    let text = "rates: [{ node: node-0, rate_class: owned, rate: 1, currency: EUR },
                        { node: node-1, rate_class: owned, rate: 2, currency: USD }]";
    context.rates = Arc::new(Rates::parse(text).unwrap());
    let answer = run_tool(&context, "now-5m", "now").await;
    assert_eq!(
        (
            answer.currency,
            answer.window_total,
            answer.run_rate_per_hour
        ),
        (None, None, None)
    );
    let rows: Vec<_> = answer
        .by_currency
        .iter()
        .map(|row| (row.currency.as_str(), row.window_total))
        .collect();
    assert_eq!(rows, [("EUR", 0.016_667), ("USD", 0.033_333)]);
    assert!(near(answer.by_currency[0].run_rate_per_hour, 0.2));
}

#[tokio::test]
async fn an_incident_costs_money_per_hour_only_while_it_is_open() {
    let context = context().await;
    let per_hour = async |to: &str| {
        let answer = run_tool(&context, "now-10m", to).await;
        let rows = answer.contributors.into_iter();
        let rows = rows.map(|row| (row.rank, row.state, row.run_rate_per_hour));
        rows.collect::<Vec<_>>()
    };
    let without_price = (None, Some("cleared"), None);
    // Four GPUs lose a tenth of their time, at 3.80 an hour.
    let open = (Some(2), Some("open"), Some(1.52));
    assert_eq!(per_hour("now").await, [open, without_price]);
    let mut ended = culprit();
    ended.state = IncidentState::Cleared;
    ended.cleared_at = Some(at(500));
    let output = DetectorOutput {
        incidents: vec![ended],
        ..DetectorOutput::default()
    };
    context.store.store_verdicts(output).await.unwrap();
    let cleared = (Some(2), Some("cleared"), None);
    assert_eq!(per_hour("now").await, [cleared, without_price]);
    let (_, state, earlier) = per_hour("now-101s").await[0];
    assert_eq!(state, Some("open"), "it was still open then");
    assert!(earlier.is_some_and(|earlier| earlier > 0.5), "{earlier:?}");
    // Without an event in the last minute, nothing is known about this moment.
    let unknown = (Some(2), Some("open"), None);
    let later = empty();
    later.store.append(batch(0..4, 0..=500)).await.unwrap();
    later.store.store_verdicts(detector_output()).await.unwrap();
    let answer = run_tool(&later, "now-10m", "now").await;
    let row = &answer.contributors[0];
    assert_eq!((row.rank, row.state, row.run_rate_per_hour), unknown);
}

#[tokio::test]
async fn a_long_gap_without_events_makes_the_run_rate_stale() {
    let context = empty();
    context.store.append(batch(0..4, 0..=500)).await.unwrap();
    let answer = run_tool(&context, "now-10m", "now").await;
    assert!(answer.stale);
    assert_eq!(answer.as_of.as_deref(), Some("2026-06-01T00:08:20.000Z"));
}

#[tokio::test]
async fn time_lost_after_the_last_affected_iteration_is_attributed_to_its_incident() {
    let context = empty();
    context.store.append(batch(0..4, 0..=600)).await.unwrap();
    let mut ended = culprit();
    ended.state = IncidentState::Cleared;
    ended.last_seen = at(400);
    let tail = DetectorOutput {
        lost: vec![lost(&ended, "node-0", Some("NVIDIA H200"), 420)],
        incidents: vec![ended],
        ..DetectorOutput::default()
    };
    context.store.store_verdicts(tail).await.unwrap();
    let answer = run_tool(&context, "now-190s", "now").await;
    assert_eq!(answer.contributors[0].rank, Some(2));
    assert_eq!(answer.by_kind[0].kind, Some("culprit"));
}

#[tokio::test]
async fn contributors_beyond_the_limit_are_counted() {
    let tool = GetCost {
        limit: Some(1),
        ..GetCost::default()
    };
    let answer = tool.run(&context().await).await.unwrap();
    assert_eq!(
        (answer.contributors.len(), answer.contributors_left_out),
        (1, 1)
    );
    assert_eq!(answer.contributors[0].rank, Some(2));
}

#[tokio::test]
async fn a_large_cluster_lists_the_nodes_with_the_largest_losses() {
    let context = empty();
    context.store.append(batch(0..4, 0..=600)).await.unwrap();
    let late = culprit();
    let losses = (0..1_280_u32).map(|node| LostTime {
        lost_gpu_ms: f64::from(node + 1),
        ..lost(&late, &format!("node-{node:04}"), Some("NVIDIA H200"), 400)
    });
    let output = DetectorOutput {
        lost: losses.collect(),
        incidents: vec![late.clone()],
        ..DetectorOutput::default()
    };
    context.store.store_verdicts(output).await.unwrap();
    let answer = run_tool(&context, "now-5m", "now").await;
    assert_eq!((answer.by_node.len(), answer.truncated), (50, true));
    assert_eq!(answer.by_node[0].node_id, "node-1279");
    let tokens = serde_json::to_string(&answer).unwrap().len() / 4;
    assert!(tokens < 25_000, "{tokens} tokens");
    let all = GetCost {
        limit: Some(2_000),
        ..GetCost::default()
    };
    let answer = all.run(&context).await.unwrap();
    assert_eq!((answer.by_node.len(), answer.truncated), (1_280, false));
}

#[tokio::test]
async fn one_late_rank_of_64_costs_as_much_as_in_the_worked_example() {
    // 64 GPUs at 2.35 an hour, steps of a second, one rank 80 ms late in each step of an hour.
    let mut context = empty();
    context.store.append(batch(0..4, 0..=600)).await.unwrap();
    let late = culprit();
    let hour_ms = 3_600_000.0;
    let losses = (0..64_u32).map(|node| LostTime {
        lost_gpu_ms: 0.08 * hour_ms,
        peer_wait_gpu_ms: Some(if node == 2 { 0.0 } else { 0.08 * hour_ms }),
        ..lost(&late, &format!("node-{node}"), Some("NVIDIA H200"), 400)
    });
    let output = DetectorOutput {
        lost: losses.collect(),
        incidents: vec![late.clone()],
        ..DetectorOutput::default()
    };
    context.store.store_verdicts(output).await.unwrap();
    let rates = "rates: [{ gpu_model: H200, rate_class: reserved, rate: 2.35, currency: USD }]";
    context.rates = Arc::new(Rates::parse(rates).unwrap());
    let answer = run_tool(&context, "now-10m", "now").await;
    assert!(near(Some(answer.lost_gpu_hours), 5.12), "{answer:?}");
    assert!(near(answer.window_total, 12.032));
    assert!(near(answer.peer_wait_gpu_hours, 5.04));
    assert!(near(answer.peer_wait_total, 11.844));
}

#[tokio::test]
async fn fixing_one_of_two_late_ranks_saves_less_than_its_share() {
    let context = empty();
    context.store.append(batch(0..4, 0..=600)).await.unwrap();
    let late = culprit();
    let shared = LostTime {
        lost_gpu_ms: 750_000.0,
        saved_gpu_ms: 500_000.0,
        ..lost(&late, "node-2", Some("NVIDIA H200"), 400)
    };
    let output = DetectorOutput {
        lost: vec![shared],
        incidents: vec![late.clone()],
        ..DetectorOutput::default()
    };
    context.store.store_verdicts(output).await.unwrap();
    let answer = run_tool(&context, "now-10m", "now").await;
    let contributor = &answer.contributors[0];
    assert!(near(contributor.amount.cost, 750.0 / 3_600.0 * 3.8));
    assert!(near(contributor.if_fixed, 500.0 / 3_600.0 * 3.8));
}
