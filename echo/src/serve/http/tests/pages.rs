//! Pages: what a person sees, who sees it, and what a browser is allowed to do with it.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request};
use tower::ServiceExt;

use super::tenants::{HIDDEN, two_clusters};
use super::{feeds, router, service};
use crate::model::conclusion::{Conclusions, Finding};
use crate::serve::gate::tests::Doorkeeper;
use crate::serve::http::metrics::Metrics;
use crate::store::EventStore;
use crate::store::memory::MemoryStore;
use crate::tools::fixture::{self, batch, culprit, over};
use crate::tools::registry::Registry;

/// What browsers say that they take.
const BROWSER: &str = "accept: text/html,application/xhtml+xml,*/*;q=0.8";
const FORM: &str = "content-type: application/x-www-form-urlencoded";

/// Status, headers and body of what a browser is answered.
struct Page(u16, HeaderMap, String);

/// Sends a request with these headers, one to a line, from an Echo at `127.0.0.1:8081`.
async fn sent(echo: &Router, (method, path): (&str, &str), headers: &str, body: &str) -> Page {
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
    Page(status, headers, String::from_utf8(body.to_vec()).unwrap())
}

async fn got(echo: &Router, path: &str) -> Page {
    sent(echo, ("GET", path), BROWSER, "").await
}

/// One Echo with two clusters, and who may ask.
async fn guarded(entries: &[&str]) -> (Router, Doorkeeper) {
    let door = Doorkeeper::of(entries);
    let feeds = (feeds(), Metrics::default());
    let echo = router(
        Registry::standard(),
        two_clusters().await,
        feeds,
        &door.terms,
    );
    (echo, door)
}

const TENANT: &str = "id: tenant, ask: { clusters: [prod], sql: false }";
const SENDER: &str = "id: agents, write: { clusters: [\"*\"] }";

async fn signed_in(echo: &Router, token: &str) -> String {
    let body = format!("token={token}&next=%2Fclusters%2Fprod");
    let own = format!("{FORM}\norigin: http://127.0.0.1:8081\nsec-fetch-site: same-origin");
    let Page(status, headers, body) = sent(echo, ("POST", "/login"), &own, &body).await;
    assert_eq!(status, 303, "{body}");
    assert_eq!(headers["location"], "/clusters/prod");
    let cookie = headers["set-cookie"].to_str().unwrap();
    assert!(
        cookie.ends_with("; HttpOnly; SameSite=Strict; Path=/"),
        "{cookie}"
    );
    format!("{BROWSER}\ncookie: {}", cookie.split(';').next().unwrap())
}

#[tokio::test]
async fn the_front_page_says_how_each_cluster_stands_and_what_it_costs() {
    let echo = service(fixture::context().await);
    let Page(status, headers, page) = got(&echo, "/").await;
    assert_eq!(status, 200, "{page}");
    assert_eq!(headers["content-type"], "text/html; charset=utf-8");
    for part in [
        "<a href=\"/clusters/prod\">prod</a>",
        "1 rank holds back its peers",
        "USD/h",
        "100\u{a0}%, 4 of 4",
        "<time datetime=",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("Sign out"), "nobody is signed in: {page}");
}

#[tokio::test]
async fn the_page_of_a_cluster_names_the_rank_with_its_evidence_and_what_is_over() {
    let echo = service(fixture::context().await);
    let Page(status, _, page) = got(&echo, "/clusters/prod?window=15m").await;
    assert_eq!(status, 200, "{page}");
    for part in [
        "Rank 2 on <span class=\"name\">node-1</span> holds back its peers",
        "11.0 ms per step later than its peers",
        "an iteration takes 111.0 ms instead of 100.0 ms",
        "explain_rank?cluster=prod&amp;rank=2&amp;job=llama&amp;window=15m&amp;format=svg",
        "Uniform slowdown",
        "Cost per day",
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
    for path in ["/", "/clusters/prod?window=15m", "/clusters/nowhere"] {
        let Page(_, _, page) = got(&echo, path).await;
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
async fn an_empty_database_says_what_to_do_next() {
    let echo = service(over(Arc::new(MemoryStore::new())));
    let Page(status, _, page) = got(&echo, "/").await;
    assert_eq!(status, 200);
    assert!(page.contains("No events are stored yet"), "{page}");
    assert!(page.contains("fleet-agent run --cluster"), "{page}");
    assert_eq!(got(&echo, "/clusters/prod").await.0, 404);
}

#[tokio::test]
async fn a_window_without_events_is_not_called_healthy() {
    let echo = service(fixture::context().await);
    let path = "/clusters/prod?from=2026-05-01T00:00:00Z&to=2026-05-02T00:00:00Z";
    let Page(status, _, page) = got(&echo, path).await;
    assert_eq!(status, 200, "{page}");
    assert!(page.contains("Not known"), "{page}");
    assert!(page.contains("no events in this window"), "{page}");
    assert!(!page.contains("Healthy"), "{page}");
    let Page(status, _, page) = got(&echo, "/clusters/prod?window=soon").await;
    assert_eq!(status, 400);
    assert!(page.contains("<h1>Bad Request</h1>"), "{page}");
}

#[tokio::test]
async fn names_from_outside_are_text_and_never_markup() {
    let evil = "<script>alert('&\"1')</script>";
    let store = MemoryStore::new();
    let mut events = batch(0..4, 0..=600);
    for event in &mut events.events {
        let mut origin = (*event.origin).clone();
        origin.cluster = evil.parse().unwrap();
        origin.node = evil.parse().unwrap();
        origin.job = Some(evil.parse().unwrap());
        event.origin = Arc::new(origin);
    }
    store.append(events).await.unwrap();
    let mut late = culprit();
    late.cluster = evil.parse().unwrap();
    late.job = Some(evil.parse().unwrap());
    late.reason = evil.to_owned();
    if let Finding::Culprit(culprit) = &mut late.finding {
        culprit.node = evil.parse().unwrap();
    }
    let concluded = Conclusions {
        incidents: vec![late],
        ..Conclusions::default()
    };
    store.conclude(concluded).await.unwrap();
    let echo = service(over(Arc::new(store)));
    let Page(_, _, front) = got(&echo, "/").await;
    let link = front
        .split("href=\"")
        .find(|part| part.starts_with("/clusters/"));
    let path = link.unwrap().split('"').next().unwrap().to_owned();
    let Page(status, _, page) = got(&echo, &format!("{path}?window=15m")).await;
    assert_eq!(status, 200, "{page}");
    let Page(_, _, unknown) = got(&echo, "/clusters/%3Cscript%3E").await;
    for page in [&front, &page, &unknown] {
        assert!(page.contains("&lt;script&gt;"), "{page}");
        assert!(!page.contains("<script"), "{page}");
    }
}

#[tokio::test]
async fn a_page_lets_nothing_be_loaded_run_or_framed() {
    let (echo, _door) = guarded(&[TENANT]).await;
    let open = service(fixture::context().await);
    for (echo, path) in [(&echo, "/login"), (&open, "/"), (&open, "/nowhere")] {
        let Page(_, headers, page) = got(echo, path).await;
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

#[tokio::test]
async fn a_browser_without_a_token_is_sent_to_the_form_and_a_program_is_refused_as_before() {
    let (echo, door) = guarded(&[TENANT]).await;
    let Page(status, headers, _) = got(&echo, "/clusters/prod?window=24h").await;
    assert_eq!(status, 303);
    let form = "/login?next=%2Fclusters%2Fprod%3Fwindow%3D24h";
    assert_eq!(headers["location"], form);
    let Page(status, _, page) = got(&echo, form).await;
    assert_eq!(status, 200);
    assert!(
        page.contains("value=\"/clusters/prod?window=24h\""),
        "{page}"
    );
    let Page(status, headers, _) = sent(&echo, ("GET", "/"), "accept: */*", "").await;
    assert_eq!(status, 401);
    assert_eq!(headers["content-type"], "application/json");
    let stale = format!("{BROWSER}\nauthorization: Bearer nobody");
    assert_eq!(sent(&echo, ("GET", "/"), &stale, "").await.0, 401);
    let lines = door.log.lines();
    assert_eq!(lines[0]["outcome"], "unauthenticated", "{lines:?}");
}

#[tokio::test]
async fn whoever_signs_in_sees_the_own_cluster_and_is_written_down_by_name() {
    let (echo, door) = guarded(&[TENANT]).await;
    let cookie = signed_in(&echo, &door.tokens[0]).await;
    let Page(status, _, front) = sent(&echo, ("GET", "/"), &cookie, "").await;
    assert_eq!(status, 200, "{front}");
    assert!(front.contains("Signed in as <b>tenant</b>"), "{front}");
    for path in ["/", "/clusters/prod?window=all", "/clusters/hidden-fleet"] {
        let Page(status, _, page) = sent(&echo, ("GET", path), &cookie, "").await;
        let known = page.replace("hidden-fleet", "");
        let expected = if path.contains("hidden") { 404 } else { 200 };
        assert_eq!(status, expected, "{path}");
        for part in HIDDEN {
            assert!(!known.contains(part), "{path}: {page}");
        }
    }
    let picture = "/api/v1/tools/fleet.cluster.explain_rank?cluster=prod&rank=2&format=svg";
    let Page(status, headers, _) = sent(&echo, ("GET", picture), &cookie, "").await;
    assert_eq!(
        (status, &headers["content-type"]),
        (200, &"image/svg+xml".parse().unwrap())
    );
    let lines = door.log.lines();
    assert!(
        lines.iter().all(|line| line["principal"] == "tenant"),
        "{lines:?}"
    );
    let log = format!("{lines:?}");
    assert!(!log.contains(&door.tokens[0]), "{log}");
}

#[tokio::test]
async fn a_cluster_that_may_not_be_seen_has_the_page_of_one_that_is_not_there() {
    let (echo, door) = guarded(&[TENANT]).await;
    let cookie = signed_in(&echo, &door.tokens[0]).await;
    let mut pages = Vec::new();
    for name in ["hidden-fleet", "nowhere"] {
        let path = format!("/clusters/{name}");
        let request = format!("{cookie}\nx-request-id: same");
        let Page(status, _, page) = sent(&echo, ("GET", &path), &request, "").await;
        pages.push((status, page.replace(name, "NAME")));
    }
    assert_eq!(pages[0], pages[1]);
    assert_eq!(pages[0].0, 404);
}

#[tokio::test]
async fn a_cookie_asks_no_tool_by_post_and_nothing_for_a_page_from_elsewhere() {
    let (echo, door) = guarded(&[TENANT]).await;
    let cookie = signed_in(&echo, &door.tokens[0]).await;
    let tool = "/api/v1/tools/fleet.cluster.get_cost";
    let own = format!("{cookie}\norigin: http://127.0.0.1:8081\nsec-fetch-site: same-origin");
    assert_eq!(sent(&echo, ("POST", tool), &own, "").await.0, 401);
    assert_eq!(sent(&echo, ("POST", "/mcp"), &own, "").await.0, 401);
    let other = format!("{cookie}\nsec-fetch-site: same-site\nsec-fetch-dest: document");
    assert_eq!(sent(&echo, ("GET", "/"), &other, "").await.0, 303);
    let image = format!("{cookie}\nsec-fetch-site: cross-site\nsec-fetch-dest: image");
    assert_eq!(sent(&echo, ("GET", tool), &image, "").await.0, 403);
}

#[tokio::test]
async fn a_form_of_another_origin_signs_nobody_in_or_out() {
    let (echo, door) = guarded(&[TENANT]).await;
    let body = format!("token={}", door.tokens[0]);
    for (path, headers) in [
        ("/login", "origin: https://evil.example"),
        ("/login", "origin: null"),
        (
            "/login",
            "sec-fetch-site: same-site\nsec-fetch-dest: document",
        ),
        ("/logout", "origin: https://evil.example"),
        (
            "/logout",
            "sec-fetch-site: cross-site\nsec-fetch-dest: document",
        ),
    ] {
        let headers = format!("{FORM}\n{headers}");
        let Page(status, headers, _) = sent(&echo, ("POST", path), &headers, &body).await;
        assert_eq!(status, 403, "{path}");
        assert!(!headers.contains_key("set-cookie"));
    }
}

#[tokio::test]
async fn a_token_that_is_not_valid_or_does_not_ask_is_told_so_and_not_kept() {
    let (echo, door) = guarded(&[TENANT, SENDER]).await;
    for (token, status, says) in [
        ("nonsense", 401, "this token is not valid"),
        ("", 401, "this token is not valid"),
        (door.tokens[1].as_str(), 403, "for sending measurements"),
    ] {
        let body = format!("token={token}");
        let Page(got, headers, page) = sent(&echo, ("POST", "/login"), FORM, &body).await;
        assert_eq!(got, status, "{page}");
        assert!(
            page.contains(says) && page.contains("role=\"alert\""),
            "{page}"
        );
        assert!(!headers.contains_key("set-cookie"));
    }
}

#[tokio::test]
async fn guesses_in_the_form_are_slowed_down_like_guesses_in_a_header() {
    let (echo, _door) = guarded(&[TENANT]).await;
    let echo = echo.layer(axum::Extension(crate::ingest::sender::Peer(
        "192.0.2.7:1234".parse().unwrap(),
    )));
    let mut statuses = Vec::new();
    for _ in 0..40 {
        statuses.push(sent(&echo, ("POST", "/login"), FORM, "token=guess").await.0);
    }
    assert_eq!((statuses[0], statuses[39]), (401, 429));
}

#[tokio::test]
async fn signing_out_makes_the_browser_forget_both_cookies() {
    let (echo, _door) = guarded(&[TENANT]).await;
    let own = "origin: http://127.0.0.1:8081";
    let Page(status, headers, _) = sent(&echo, ("POST", "/logout"), own, "").await;
    assert_eq!(
        (status, &headers["location"]),
        (303, &"/login".parse().unwrap())
    );
    let forgotten: Vec<&str> = headers
        .get_all("set-cookie")
        .iter()
        .map(|value| value.to_str().unwrap())
        .collect();
    assert_eq!(forgotten.len(), 2);
    assert!(
        forgotten.iter().all(|cookie| cookie.contains("Max-Age=0")),
        "{forgotten:?}"
    );
}

#[tokio::test]
async fn where_everybody_is_let_in_there_is_nothing_to_sign_in_to() {
    let echo = service(fixture::context().await);
    let Page(status, headers, _) = got(&echo, "/login?next=%2Fclusters%2Fprod").await;
    assert_eq!(
        (status, &headers["location"]),
        (303, &"/clusters/prod".parse().unwrap())
    );
}

#[tokio::test]
async fn a_token_without_a_tool_gets_the_page_without_its_part() {
    let entry = "id: cost, ask: { clusters: [\"*\"], tools: [\"fleet.cluster.get_*\"] }";
    let (echo, door) = guarded(&[entry]).await;
    let cookie = signed_in(&echo, &door.tokens[0]).await;
    let path = "/clusters/prod?window=all";
    let Page(status, _, page) = sent(&echo, ("GET", path), &cookie, "").await;
    assert_eq!(status, 200, "{page}");
    assert!(page.contains("Cost per day"), "{page}");
    assert!(
        !page.contains("Lag of ranks") && !page.contains("Past incidents"),
        "{page}"
    );
}
