use std::collections::BTreeSet;

use echo_core::ids::CommId;
use echo_core::model::event::{Block, Source};
use echo_core::units::Window;
use echo_store::Cursor;

use super::{EventHistory, History, PageCursor};
use crate::ToolContext;
use crate::fixture::{at, batch, context};
use crate::time::TimeArg;
use crate::tool::Tool;

async fn run_tool(context: &ToolContext, tool: EventHistory) -> History {
    tool.run(context).await.unwrap()
}

#[tokio::test]
async fn an_event_has_the_columns_of_the_events_view() {
    let tool = EventHistory {
        limit: Some(1),
        ..EventHistory::default()
    };
    insta::assert_json_snapshot!(run_tool(&context().await, tool).await);
}

#[tokio::test]
async fn every_filter_narrows_the_list() {
    let context = context().await;
    for (tool, n_events) in [
        (EventHistory::default(), 4 * 121),
        (
            EventHistory {
                rank: Some(2),
                ..EventHistory::default()
            },
            121,
        ),
        (
            EventHistory {
                node: Some("node-1".to_owned()),
                ..EventHistory::default()
            },
            2 * 121,
        ),
        (
            EventHistory {
                metric: Some("other".to_owned()),
                ..EventHistory::default()
            },
            0,
        ),
        (
            EventHistory {
                op: Some("AllReduce".to_owned()),
                ..EventHistory::default()
            },
            0,
        ),
        (
            EventHistory {
                from: Some("now-10s".parse().unwrap()),
                ..EventHistory::default()
            },
            4 * 3,
        ),
    ] {
        let to = Some("2026-06-01T00:10:00.001Z".parse().unwrap());
        let tool = EventHistory {
            to,
            limit: Some(1_000),
            ..tool
        };
        assert_eq!(
            run_tool(&context, tool.clone()).await.events.len(),
            n_events,
            "{tool:?}"
        );
    }
}

#[tokio::test]
async fn an_answer_without_a_limit_is_short_enough_for_a_language_model() {
    let answer = run_tool(&context().await, EventHistory::default()).await;
    assert_eq!((answer.events.len(), answer.truncated), (20, true));
    let bytes = serde_json::to_vec(&answer).unwrap().len();
    assert!(bytes < 20_000, "{bytes} bytes");
}

#[tokio::test]
async fn pages_list_all_events_once() {
    let context = context().await;
    let mut tool = EventHistory {
        limit: Some(100),
        ..EventHistory::default()
    };
    let mut seen = BTreeSet::new();
    loop {
        let page = run_tool(&context, tool.clone()).await;
        assert!(
            page.events.iter().all(|event| seen.insert(event.event_id)),
            "listed twice"
        );
        let Some(next) = page.next_cursor else { break };
        tool.cursor = Some(next.parse().unwrap());
    }
    assert_eq!(
        seen.len(),
        4 * 120,
        "the last instant is outside of the window"
    );
}

#[tokio::test]
async fn an_operation_is_found_in_any_spelling_and_in_that_of_its_sender_first() {
    let context = context().await;
    let of_op = async |op: &str, second: i64| {
        let mut reduced = batch(0..4, second..=second);
        for event in &mut reduced.events {
            event.block = Some(Block {
                comm: CommId::new(7),
                op: Some(op.parse().unwrap()),
                seqs: None,
                role: None,
                iterations: None,
                anchor: None,
                source: Source::Host,
            });
        }
        let n_events = reduced.events.len();
        context.store.append(reduced).await.unwrap();
        n_events
    };
    let found = async |op: &str| {
        let tool = EventHistory {
            from: Some(TimeArg::At(at(0))),
            to: Some(TimeArg::At(at(700))),
            op: Some(op.to_owned()),
            ..EventHistory::default()
        };
        run_tool(&context, tool).await.events.len()
    };
    let n_events = of_op("AllReduce", 605).await;
    for op in ["AllReduce", "ALL_REDUCE", "all_reduce", "ncclAllReduce"] {
        assert_eq!(found(op).await, n_events, "{op}");
    }
    assert_eq!(found("Broadcast").await, 0);
    let n_others = of_op("all_reduce", 610).await;
    assert_eq!(
        [found("all_reduce").await, found("AllReduce").await],
        [n_others, n_events]
    );
}

#[test]
fn a_cursor_round_trips() {
    let cursor = PageCursor {
        window: Window::new(at(0), at(9)).unwrap(),
        end: Cursor {
            timestamp: at(3),
            id: u64::MAX,
        },
    };
    assert_eq!(cursor.to_string().parse(), Ok(cursor));
    for text in ["", "1-2-3", "2-1-1-1", "1-2-3-4-5", "1-2-3-x"] {
        assert!(text.parse::<PageCursor>().is_err(), "{text:?} was accepted");
    }
}

#[tokio::test]
async fn events_with_long_attributes_take_more_pages() {
    let context = context().await;
    let long = format!(r#"{{"note":"{}"}}"#, "x".repeat(16 * 1024));
    let mut large = batch(0..4, 601..=650);
    for event in &mut large.events {
        event.attrs = long.as_str().into();
    }
    let n_large = large.events.len();
    context.store.append(large).await.unwrap();
    let mut tool = EventHistory {
        from: Some(TimeArg::At(at(0))),
        to: Some(TimeArg::At(at(700))),
        ..EventHistory::default()
    };
    let mut seen = BTreeSet::new();
    loop {
        let page = run_tool(&context, tool.clone()).await;
        let tokens = serde_json::to_string(&page).unwrap().len() / 4;
        assert!(tokens < 25_000, "{tokens} tokens");
        assert_eq!(page.truncated, page.next_cursor.is_some());
        seen.extend(page.events.iter().map(|event| event.event_id));
        let Some(next) = page.next_cursor else { break };
        (tool.from, tool.to) = (None, None);
        tool.cursor = Some(next.parse().unwrap());
    }
    assert_eq!(seen.len(), 4 * 121 + n_large);
}
