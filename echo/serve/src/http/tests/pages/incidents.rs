//! Pages: what is open now comes first, and every page agrees about it.

use std::sync::Arc;

use axum::Router;
use echo_core::clock::ManualClock;
use echo_core::ids::{IncidentId, Rank};
use echo_core::model::detector_output::{
    Baseline, Condition, ConditionKind, DetectorOutput, Finding, Incident, IncidentState,
};
use echo_core::model::event::BatchKey;
use echo_tools::ToolContext;
use echo_tools::fixture::{self, at, batch, culprit, empty, lost};

use serde_json::Value;

use super::{BROWSER, Page, get_json, guarded, send, service};

/// A collective that ranks 3 did not enter.
fn hang(id: u64, communicator: &str) -> Incident {
    let detail = format!(
        "3 of 4 ranks entered operation 17 of communicator {communicator} and it does not end: missing rank 3"
    );
    let finding = Finding::Condition(Condition {
        ranks: vec![Rank::new(3)],
        detail: detail.clone(),
        ..Condition::new(ConditionKind::Hang)
    });
    Incident {
        id: IncidentId::new(id),
        first_seen: at(420),
        last_seen: at(600),
        effect_ratio: 0.0,
        period_ms: 0.0,
        baseline: Baseline::None { period_ms: 0.0 },
        reason: detail,
        finding,
        inputs: None,
        ..culprit()
    }
}

/// A job of four ranks that hangs.
async fn hanging() -> ToolContext {
    let context = empty();
    context.store.append(batch(0..4, 0..=600)).await.unwrap();
    let hang = hang(1, "aa");
    let loss = (420..600)
        .step_by(5)
        .map(|second| lost(&hang, "node-0", Some("NVIDIA H200"), second));
    let output = DetectorOutput {
        lost: loss.collect(),
        incidents: vec![hang],
        ..DetectorOutput::default()
    };
    context.store.store_verdicts(output).await.unwrap();
    context
}

pub(super) async fn text(echo: &Router, path: &str) -> String {
    let Page(status, _, page) = get_json(echo, path).await;
    assert_eq!(status, 200, "{page}");
    page.replace('\u{a0}', " ")
}

#[track_caller]
pub(super) fn assert_order(page: &str, parts: &[&str]) {
    let places: Vec<Option<usize>> = parts.iter().map(|part| page.find(part)).collect();
    assert!(places.iter().all(Option::is_some), "{places:?}: {page}");
    assert!(places.is_sorted(), "{parts:?} at {places:?}");
}

#[tokio::test]
async fn a_hang_is_one_red_card_that_names_the_node_of_the_missing_rank() {
    let echo = service(hanging().await);
    let page = text(&echo, "/clusters/prod").await;
    assert_eq!(page.matches("<article class=\"incident bad\"").count(), 1);
    assert_eq!(page.matches("<article class=\"incident").count(), 1);
    for part in [
        "Rank 3 on node-1 did not enter a collective",
        "Open for 3 min",
        "<dt>Waiting</dt><dd>3 ranks</dd>",
        "NVIDIA H200",
        "Cost so far",
        "of communicator aa and it does not end",
        "<a href=\"/clusters/prod/ranks/3?job=llama&amp;window=1h\">Rank 3 in detail</a>",
    ] {
        assert_eq!(page.matches(part).count(), 1, "{part}: {page}");
    }
    for absent in ["0.0 %", "0.00 ms", "+0 %"] {
        assert!(!page.contains(absent), "{absent}: {page}");
    }
    let overview = text(&echo, "/").await;
    assert!(overview.contains("badge bad\">Rank 3 on node-1 did not enter a collective"));
}

#[tokio::test]
async fn two_missing_ranks_are_both_named() {
    let context = empty();
    context.store.append(batch(0..4, 0..=600)).await.unwrap();
    let mut both = hang(2, "bb");
    if let Finding::Condition(condition) = &mut both.finding {
        condition.ranks = [0, 3].map(Rank::new).to_vec();
    }
    let output = DetectorOutput {
        incidents: vec![both],
        ..DetectorOutput::default()
    };
    context.store.store_verdicts(output).await.unwrap();
    let page = text(&service(context), "/clusters/prod").await;
    assert_eq!(page.matches("<article class=\"incident").count(), 1);
    let headline = "Ranks 0, 3 on 2 nodes did not enter a collective";
    assert!(page.contains(headline), "{page}");
}

#[tokio::test]
async fn the_incident_comes_before_the_window_and_the_figures() {
    let page = text(&service(fixture::context().await), "/clusters/prod").await;
    assert_order(
        &page,
        &[
            "<h1>prod</h1>",
            "Rank 2 on node-1 holds back its job",
            "Open for 5 min",
            "<h2 class=\"quiet\" id=\"window\">",
            "Coverage",
            "Lag of ranks over time",
        ],
    );
    let card = page.split("id=\"window\"").next().unwrap();
    assert_eq!(card.matches("111.0 ms instead of 100.0 ms").count(), 1);
}

#[tokio::test]
async fn the_overview_and_the_cluster_page_agree_about_a_job_that_ended() {
    let mut context = fixture::context().await;
    context.store.store_verdicts(cleared()).await.unwrap();
    context.clock = Arc::new(ManualClock::at(at(1_200)));
    let echo = service(context);
    for path in [
        "/",
        "/clusters/prod",
        "/clusters/prod?window=all",
        "/clusters/prod?window=7d",
    ] {
        let page = text(&echo, path).await;
        for part in ["badge idle\">Unknown", "stale: last event 10 min ago"] {
            assert!(page.contains(part), "{path}: {part}: {page}");
        }
        for absent in ["Healthy", "Cost now", "USD/h", "0 s ago"] {
            assert!(!page.contains(absent), "{path}: {absent}: {page}");
        }
    }
}

#[tokio::test]
async fn an_open_incident_without_recent_events_lasted_until_it_was_last_seen() {
    let mut context = fixture::context().await;
    context.clock = Arc::new(ManualClock::at(at(1_200)));
    let page = text(&service(context), "/clusters/prod").await;
    for part in [
        "Open for 5 min",
        "last seen <time datetime=\"2026-06-01T00:10:00.000Z\"",
        "Stale: last event 10 min ago",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

/// The usual incident, cleared when the job ended.
pub(super) fn cleared() -> DetectorOutput {
    let over = Incident {
        state: IncidentState::Cleared,
        cleared_at: Some(at(600)),
        ..culprit()
    };
    DetectorOutput {
        incidents: vec![over],
        ..DetectorOutput::default()
    }
}

#[tokio::test]
async fn the_overview_lists_the_most_severe_cluster_first_with_a_sum_and_stale_ones_last() {
    let context = fixture::context().await;
    for (number, (name, second)) in [("aged", 100), ("calm", 595)].into_iter().enumerate() {
        let mut events = batch(0..4, second..=second);
        events.key = BatchKey::Content(2_000 + number as u128);
        for event in &mut events.events {
            let mut origin = (*event.origin).clone();
            origin.cluster = name.parse().unwrap();
            event.origin = Arc::new(origin);
        }
        context.store.append(events).await.unwrap();
    }
    let page = text(&service(context), "/").await;
    assert_order(
        &page,
        &[
            "<dd>1 of 3</dd>",
            ">prod</a>",
            ">calm</a>",
            "<article class=\"card over\"",
            ">aged</a>",
        ],
    );
}

#[tokio::test]
async fn the_page_of_a_rank_has_its_summary_and_its_plot() {
    let echo = service(fixture::context().await);
    let page = text(&echo, "/clusters/prod/ranks/2?job=llama&window=15m").await;
    for part in [
        "<h1>Rank 2 on node-1</h1>",
        "It has held back its peers since",
        "NVIDIA H200",
        "explain_rank?cluster=prod&amp;rank=2&amp;job=llama&amp;window=15m&amp;format=json",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let unknown = send(&echo, ("GET", "/clusters/prod/ranks/99"), BROWSER, "").await;
    assert_eq!(unknown.0, 404);
}

#[tokio::test]
async fn a_node_with_bad_health_is_a_card_without_slowdown_and_cost() {
    let context = empty();
    context.store.append(batch(0..4, 0..=600)).await.unwrap();
    let output = DetectorOutput {
        incidents: vec![fixture::unhealthy_node()],
        ..DetectorOutput::default()
    };
    context.store.store_verdicts(output).await.unwrap();
    let page = text(&service(context), "/clusters/prod").await;
    for part in [
        "<article class=\"incident bad\"",
        "<h3>Node node-7 reports bad health</h3>",
        "Node node-7 reports health score 0.41, below the threshold 0.88 of its peers.",
    ] {
        assert_eq!(page.matches(part).count(), 1, "{part}: {page}");
    }
    for absent in ["<dt>Slowdown</dt>", "<dt>Cost so far</dt>"] {
        assert!(!page.contains(absent), "{absent}: {page}");
    }
}

#[tokio::test]
async fn a_card_has_the_plot_of_its_rank_and_the_command_that_explains_it() {
    let echo = service(fixture::context().await);
    for (path, flags) in [
        ("/clusters/prod", " --job llama"),
        ("/clusters/prod?window=24h", " --job llama --window 24h"),
    ] {
        let page = text(&echo, path).await;
        let command = format!("<code>fleet-echo explain --cluster prod --rank 2{flags}</code>");
        assert_eq!(page.matches(&command).count(), 1, "{page}");
        let plots = page.matches("<img class=\"plot\"").count();
        assert_eq!(plots, 1, "{page}");
    }
}

#[tokio::test]
async fn the_page_of_an_incident_links_the_trace_of_its_rank() {
    let echo = service(fixture::context().await);
    let by_incident = "/api/v1/trace.json?cluster=prod&rank=2&job=llama&window=15m";
    for path in [
        "/clusters/prod?window=15m",
        "/clusters/prod/ranks/2?job=llama&window=15m",
    ] {
        let page = text(&echo, path).await;
        let link = format!(
            "<a href=\"{}\" download>",
            by_incident.replace('&', "&amp;")
        );
        assert_eq!(page.matches(&link).count(), 1, "{path}: {page}");
    }
    let Page(status, headers, body) = get_json(&echo, by_incident).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(headers["content-type"], "application/json");
    assert_eq!(
        headers["content-disposition"],
        "attachment; filename=\"rank-2.json\""
    );
    let trace: Value = serde_json::from_str(&body).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let names = events
        .iter()
        .filter(|event| event["name"] == "process_name");
    let names: Vec<&str> = names
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["rank 2 on node-1", "rank 0 on node-0", "incidents"]);
    for (wrong, status) in [
        ("cluster=prod", 400),
        ("cluster=prod&rank=2&plot=svg", 400),
        ("cluster=&rank=2", 400),
        ("cluster=prod&rank=2&window=15", 400),
        ("cluster=nowhere&rank=2", 404),
        ("cluster=prod&rank=99", 404),
    ] {
        let path = format!("/api/v1/trace.json?{wrong}");
        assert_eq!(get_json(&echo, &path).await.0, status, "{wrong}");
    }
}

#[tokio::test]
async fn a_trace_needs_the_permissions_of_the_tools_that_it_is_made_of() {
    let all = "id: all, query: { clusters: [prod] }";
    let no_events =
        "id: some, query: { clusters: [prod], tools: [\"*find_*\", \"*explain_rank\"] }";
    let (echo, site) = guarded(&[all, no_events]).await;
    let trace = "/api/v1/trace.json?cluster=prod&rank=2";
    let page = "/clusters/prod";
    for (token, status, n_links) in [(0, 200, 1), (1, 404, 0)] {
        let headers = format!("{BROWSER}\nauthorization: Bearer {}", site.tokens[token]);
        assert_eq!(send(&echo, ("GET", trace), &headers, "").await.0, status);
        let Page(_, _, page) = send(&echo, ("GET", page), &headers, "").await;
        assert!(page.contains("Rank 2 in detail"), "{page}");
        let links = page.matches("/api/v1/trace.json").count();
        assert_eq!(links, n_links, "{page}");
    }
    assert_eq!(send(&echo, ("GET", trace), "", "").await.0, 401);
}

#[tokio::test]
async fn the_page_of_an_incident_links_an_archive_without_what_the_visitor_may_not_query() {
    let id = culprit().id;
    let archive = format!("/api/v1/incident.tar.gz?cluster=prod&incident={id}");
    let all = "id: all, query: { clusters: [prod] }";
    let outliers = "id: some, query: { clusters: [prod], tools: [\"*find_*\"] }";
    let cost = "id: other, query: { clusters: [prod], tools: [\"*get_cost\"] }";
    let (echo, site) = guarded(&[all, outliers, cost]).await;
    let mut sizes = Vec::new();
    for (token, expected) in [(0, 200), (1, 200), (2, 404)] {
        let headers = format!("{BROWSER}\nauthorization: Bearer {}", site.tokens[token]);
        let Page(status, headers, body) = send(&echo, ("GET", &archive), &headers, "").await;
        assert_eq!(status, expected, "{body}");
        if status == 200 {
            let name = format!("attachment; filename=\"incident-{id}.tar.gz\"");
            assert_eq!(headers["content-disposition"], name.as_str());
            sizes.push(body.len());
        }
    }
    assert!(sizes[0] > 2 * sizes[1], "{sizes:?}");
    let page = text(&service(fixture::context().await), "/clusters/prod").await;
    let link = format!("<a href=\"{}\" download>", archive.replace('&', "&amp;"));
    assert_eq!(page.matches(&link).count(), 1, "{page}");
}
