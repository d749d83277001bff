//! Pages whose queries are not answered in time.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use echo_tools::query_limit::QueryLimit;
use echo_tools::{ToolContext, ToolError, fixture};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tower::ServiceExt;

use super::service;

/// The usual cluster, where one query runs at a time.
async fn one_at_a_time() -> ToolContext {
    let mut context = fixture::context().await;
    context.query_limit = QueryLimit::with_max_wait(1, Duration::ZERO);
    context
}

/// Runs a query that is not answered before its deadline, and announces when it runs.
fn block(queries: &mut JoinSet<()>, context: &ToolContext) -> oneshot::Receiver<()> {
    let (announce, runs) = oneshot::channel();
    let mut context = context.clone();
    context.query_limit = context.query_limit.waiting_up_to(context.limits.deadline);
    queries.spawn(async move {
        let query = async move {
            announce.send(()).unwrap();
            std::future::pending::<Result<(), ToolError>>().await
        };
        let _timeout = context.run_limited(query).await;
    });
    runs
}

/// Starts to load the page of the usual cluster.
fn load(pages: &mut JoinSet<(u16, String)>, context: &ToolContext) {
    let request = Request::get("/clusters/prod").header("accept", "text/html");
    let request = request.body(Body::empty()).unwrap();
    let page = service(context.clone()).oneshot(request);
    pages.spawn(async move {
        let page = page.await.unwrap();
        let status = page.status().as_u16();
        let body = to_bytes(page.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    });
}

#[tokio::test]
async fn a_page_shows_its_incidents_and_names_the_sections_that_are_late() {
    let context = one_at_a_time().await;
    let (mut pages, mut queries) = (JoinSet::new(), JoinSet::new());
    load(&mut pages, &context);
    // The first query of the page has begun, or waits, before the other comes.
    while context.query_limit.in_flight() == 0 {
        tokio::task::yield_now().await;
    }
    block(&mut queries, &context).await.unwrap();
    // From here on nothing runs but timers.
    tokio::time::pause();
    let (status, page) = pages.join_next().await.unwrap().unwrap();
    assert_eq!(status, 200, "{page}");
    assert!(
        page.contains("Rank 2 on node-1 holds back its job"),
        "{page}"
    );
    let late = "Not available in time: lag of ranks, cost, cost per day. Load the page again.";
    assert!(page.contains(late), "{page}");
    let in_place = "<p class=\"caveat\">Not available in time; load the page again.</p>";
    assert_eq!(page.matches(in_place).count(), 3, "{page}");
}

#[tokio::test]
async fn a_page_without_any_answer_in_time_says_so() {
    let context = one_at_a_time().await;
    let (mut pages, mut queries) = (JoinSet::new(), JoinSet::new());
    block(&mut queries, &context).await.unwrap();
    load(&mut pages, &context);
    tokio::time::pause();
    let (status, page) = pages.join_next().await.unwrap().unwrap();
    assert_eq!(status, 200, "{page}");
    let late = "Not available in time: open incidents, incidents of the window, lag of ranks, cost, cost per day.";
    assert!(page.contains(late), "{page}");
    assert!(!page.contains("Healthy"), "{page}");
}
