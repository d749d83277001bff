//! Pages: content, authorization and browser security headers.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request};
use echo_core::model::detector_output::{CauseClass, ConditionKind, DetectorOutput, Finding};
use echo_core::model::event::BatchKey;
use echo_tools::ToolContext;
use echo_tools::fixture::{self, batch, culprit, empty};
use echo_tools::registry::Registry;
use tower::ServiceExt;

use super::tenants::two_clusters;
use super::{feeds, router, service};
use crate::auth::tests::Site;
use crate::http::metrics::Metrics;
use crate::middleware::Middleware;
use crate::tool_context::{OtlpEndpoint, ToolContexts};

mod costs;
mod incidents;
mod late;
mod overview;
mod processes;
mod sessions;
mod views;

/// `Accept` header of browsers.
const BROWSER: &str = "accept: text/html,application/xhtml+xml,*/*;q=0.8";
const FORM: &str = "content-type: application/x-www-form-urlencoded";

/// Status, headers and body of a page.
struct Page(u16, HeaderMap, String);

/// Sends a request with these headers, one per line, to a router at `127.0.0.1:8081`.
async fn send(echo: &Router, (method, path): (&str, &str), headers: &str, body: &str) -> Page {
    let mut request = Request::builder().method(method).uri(path);
    request = request.header("host", "127.0.0.1:8081");
    for line in headers.lines().filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(": ").unwrap();
        request = request.header(name, value);
    }
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let response = echo.clone().oneshot(request).await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    // Archives are no text.
    let body = String::from_utf8_lossy(&body).into_owned();
    Page(status, headers, body)
}

async fn get_json(echo: &Router, path: &str) -> Page {
    send(echo, ("GET", path), BROWSER, "").await
}

/// Returns a router with two clusters and a token for each entry.
async fn guarded(entries: &[&str]) -> (Router, Site) {
    let site = Site::with_tokens(entries);
    let feeds = (feeds(), Metrics::default());
    let echo = router(
        Registry::standard(),
        two_clusters().await,
        feeds,
        &site.middleware,
    );
    (echo, site)
}

const TENANT: &str = "id: tenant, query: { clusters: [prod], sql: false }";

#[tokio::test]
async fn the_overview_shows_status_and_cost_of_each_cluster() {
    let echo = service(fixture::context().await);
    let Page(status, headers, page) = get_json(&echo, "/").await;
    assert_eq!(status, 200, "{page}");
    assert_eq!(headers["content-type"], "text/html; charset=utf-8");
    for part in [
        "<a href=\"/clusters/prod\">prod</a>",
        "Rank 2 on node-1 holds back its job",
        "Open for 5\u{a0}min",
        "USD/h",
        "100\u{a0}%, 4 of 4",
        "<time datetime=",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(
        !page.contains("Sign out"),
        "the visitor is not signed in: {page}"
    );
}

/// Returns a context with the usual events for this many additional clusters.
async fn of_many_clusters(n: usize) -> ToolContext {
    let context = fixture::context().await;
    for number in 0..n {
        let mut events = batch(0..1, 600..=600);
        events.key = BatchKey::Content(1_000 + number as u128);
        for event in &mut events.events {
            let mut origin = (*event.origin).clone();
            origin.cluster = format!("other-{number:03}").parse().unwrap();
            event.origin = Arc::new(origin);
        }
        context.store.append(events).await.unwrap();
    }
    context
}

#[tokio::test]
async fn the_overview_links_clusters_that_it_has_no_time_to_query() {
    let mut context = of_many_clusters(60).await;
    // On a busy machine fifty clusters take longer than a page may.
    context.limits.deadline = Duration::from_mins(5);
    let Page(status, _, page) = get_json(&service(context.clone()), "/").await;
    assert_eq!(status, 200, "{page}");
    assert_eq!(page.matches("<article class=\"card").count(), 50);
    assert!(page.contains(">other-059</a>"), "{page}");

    let mut hurried = context;
    hurried.limits.deadline = Duration::ZERO;
    let Page(status, _, page) = get_json(&service(hurried), "/").await;
    assert_eq!(status, 200, "{page}");
    assert_eq!(page.matches("class=\"card\"").count(), 0);
    assert!(page.contains(">other-000</a>"), "{page}");
}

#[tokio::test]
async fn a_cluster_page_shows_culprits_with_evidence_and_past_incidents() {
    let echo = service(fixture::context().await);
    let Page(status, _, page) = get_json(&echo, "/clusters/prod?window=15m").await;
    assert_eq!(status, 200, "{page}");
    for part in [
        "Rank 2 on node-1 holds back its job",
        "Open for 5\u{a0}min",
        "NVIDIA H200",
        "11.0 ms per step later than its peers",
        "An iteration takes 111.0 ms instead of 100.0 ms",
        "/clusters/prod/ranks/2?job=llama&amp;window=15m",
        "Uniform slowdown",
        "/clusters/prod/incidents/0000000000000099",
        "Cost per day",
        "Cost of the window by job",
        "<th scope=\"row\">llama</th>",
        "on demand",
        "without a price",
        "aria-current=\"true\">15 minutes",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[tokio::test]
async fn every_page_has_headings_in_order_one_main_landmark_and_tables_with_captions() {
    let echo = service(fixture::context().await);
    for path in [
        "/",
        "/clusters/prod?window=15m",
        "/clusters/prod/ranks/2",
        "/clusters/nowhere",
        "/runbook",
    ] {
        let Page(_, _, page) = get_json(&echo, path).await;
        assert_eq!(page.matches("<main").count(), 1, "{path}");
        assert_eq!(page.matches("<h1").count(), 1, "{path}");
        assert_eq!(
            page.matches("<table").count(),
            page.matches("<caption").count()
        );
        let levels = page.split("<h").skip(1);
        let levels = levels.filter_map(|rest| rest.chars().next()?.to_digit(10));
        let levels: Vec<u32> = levels.collect();
        let skipped = levels.windows(2).find(|pair| pair[1] > pair[0] + 1);
        assert_eq!(skipped, None, "{path}: {levels:?}");
    }
}

#[tokio::test]
async fn the_runbook_has_a_heading_for_each_class_and_condition_and_incidents_link_theirs() {
    let echo = service(fixture::context().await);
    let Page(status, _, page) = get_json(&echo, "/runbook").await;
    assert_eq!(status, 200, "{page}");
    let classes = CauseClass::ALL.map(CauseClass::name);
    let kinds = ConditionKind::ALL.map(ConditionKind::name);
    for name in classes.into_iter().chain(kinds) {
        let heading = format!("<h2 id=\"{name}\">{name}</h2>");
        assert!(page.contains(&heading), "{heading}: {page}");
    }
    let Page(_, _, cluster) = get_json(&echo, "/clusters/prod?window=15m").await;
    assert!(cluster.contains("href=\"/runbook#host\""), "{cluster}");
}

#[tokio::test]
async fn an_empty_database_says_what_to_do_next_with_the_scheme_host_and_port_of_this_instance() {
    let echo = service(empty());
    let Page(status, _, page) = get_json(&echo, "/").await;
    assert_eq!(status, 200);
    assert!(page.contains("No events are stored yet"), "{page}");
    assert!(page.contains("--endpoint URL"), "{page}");
    for (is_encrypted, url) in [
        (false, "http://127.0.0.1:7317"),
        (true, "https://127.0.0.1:7317"),
    ] {
        let otlp = OtlpEndpoint {
            port: 7_317,
            is_encrypted,
        };
        let contexts = ToolContexts::from(empty()).with_otlp(otlp);
        let middleware = Middleware::without_auth(Arc::clone(&empty().clock));
        let feeds = (feeds(), Metrics::default());
        let echo = router(Registry::standard(), contexts, feeds, &middleware);
        let Page(_, _, page) = get_json(&echo, "/").await;
        let command = format!("fleet-agent run --cluster NAME --endpoint {url}</code>");
        assert!(page.contains(&command), "{page}");
    }
    assert_eq!(get_json(&echo, "/clusters/prod").await.0, 404);
}

#[tokio::test]
async fn a_window_without_events_is_not_healthy() {
    let echo = service(fixture::context().await);
    let path = "/clusters/prod?from=2026-05-01T00:00:00Z&to=2026-05-02T00:00:00Z";
    let Page(status, _, page) = get_json(&echo, path).await;
    assert_eq!(status, 200, "{page}");
    assert!(page.contains("Unknown"), "{page}");
    assert!(page.contains("no events in this window"), "{page}");
    assert!(!page.contains("Healthy"), "{page}");
    let Page(status, _, page) = get_json(&echo, "/clusters/prod?window=soon").await;
    assert_eq!(status, 400);
    assert!(page.contains("<h1>Bad Request</h1>"), "{page}");
}

#[tokio::test]
async fn names_in_pages_are_escaped() {
    let evil = "<script>alert('&\"1')</script>";
    let context = empty();
    let mut events = batch(0..4, 0..=600);
    for event in &mut events.events {
        let mut origin = (*event.origin).clone();
        origin.cluster = evil.parse().unwrap();
        origin.node = evil.parse().unwrap();
        origin.job = Some(evil.parse().unwrap());
        event.origin = Arc::new(origin);
    }
    context.store.append(events).await.unwrap();
    let mut late = culprit();
    late.cluster = evil.parse().unwrap();
    late.job = Some(evil.parse().unwrap());
    late.reason = evil.to_owned();
    if let Finding::Culprit(culprit) = &mut late.finding {
        culprit.node = evil.parse().unwrap();
    }
    let concluded = DetectorOutput {
        incidents: vec![late],
        ..DetectorOutput::default()
    };
    context.store.store_verdicts(concluded).await.unwrap();
    let echo = service(context);
    let Page(_, _, front) = get_json(&echo, "/").await;
    let link = front
        .split("href=\"")
        .find(|part| part.starts_with("/clusters/"));
    let path = link.unwrap().split('"').next().unwrap().to_owned();
    let Page(status, _, page) = get_json(&echo, &format!("{path}?window=15m")).await;
    assert_eq!(status, 200, "{page}");
    let Page(_, _, unknown) = get_json(&echo, "/clusters/%3Cscript%3E").await;
    let Page(_, _, searched) = get_json(&echo, "/?q=%3Cscript%3E&open=search").await;
    let Page(status, _, rank) = get_json(&echo, &format!("{path}/ranks/2?window=15m")).await;
    assert_eq!(status, 200, "{rank}");
    for page in [&front, &page, &unknown, &searched, &rank] {
        assert!(page.contains("&lt;script&gt;"), "{page}");
        assert!(!page.contains("<script"), "{page}");
    }
}

#[tokio::test]
async fn pages_forbid_loading_scripts_and_framing() {
    let (echo, _door) = guarded(&[TENANT]).await;
    let open = service(fixture::context().await);
    for (echo, path) in [
        (&echo, "/login"),
        (&open, "/"),
        (&open, "/nowhere"),
        (&open, "/clusters/prod/ranks/2"),
    ] {
        let Page(_, headers, page) = get_json(echo, path).await;
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(
            policy.starts_with("default-src 'none'; style-src 'sha256-"),
            "{policy}"
        );
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["referrer-policy"], "same-origin");
        assert_eq!(headers["cache-control"], "no-store");
        assert!(
            !page.contains(" style=") && !page.contains("<script"),
            "{page}"
        );
    }
}
