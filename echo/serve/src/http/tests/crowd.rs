//! More queries than the limit on concurrent ones.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use echo_tools::fixture;
use echo_tools::fixture::broken::Broken;
use echo_tools::query_limit::QueryLimit;
use tower::ServiceExt;

use super::service;

type Answer = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

fn start_query(service: &Router) -> Answer {
    let request = Request::post("/api/v1/tools/fleet.cluster.event_history");
    let request = request.body(Body::empty()).unwrap();
    let answer = service.clone().oneshot(request);
    Box::pin(async move { answer.await.unwrap() })
}

/// Polls the response once. Returns whether it is pending.
async fn is_pending(answer: &mut Answer) -> bool {
    poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx).is_pending())).await
}

#[tokio::test]
async fn a_query_over_the_limit_is_rejected_with_retry_after() {
    let mut context = fixture::context_over(Arc::new(Broken::Silent));
    context.limits.deadline = Duration::from_hours(1);
    context.query_limit = QueryLimit::with_max_wait(2, Duration::ZERO);
    let query_limit = context.query_limit.clone();
    let service = service(context);
    let (mut first, mut second) = (start_query(&service), start_query(&service));
    assert!(is_pending(&mut first).await && is_pending(&mut second).await);
    assert_eq!(query_limit.in_flight(), 2);

    let refused = start_query(&service).await;
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(query_limit.rejected(), 1);

    // A cancelled request frees its slot.
    drop(first);
    let mut third = start_query(&service);
    assert!(is_pending(&mut third).await);
    assert_eq!((query_limit.in_flight(), query_limit.rejected()), (2, 1));
}

#[tokio::test]
async fn a_query_waits_briefly_for_a_slot() {
    let mut context = fixture::context_over(Arc::new(Broken::Silent));
    context.limits.deadline = Duration::from_hours(1);
    context.query_limit = QueryLimit::with_max_wait(1, Duration::from_hours(1));
    let query_limit = context.query_limit.clone();
    let service = service(context);
    let (mut first, mut second) = (start_query(&service), start_query(&service));
    assert!(is_pending(&mut first).await && is_pending(&mut second).await);
    drop(first);
    assert_eq!(query_limit.in_flight(), 1, "it is the turn of the second");
    assert!(is_pending(&mut second).await);
    assert_eq!(query_limit.rejected(), 0);
}

#[tokio::test]
async fn queries_of_a_page_wait_for_each_other_and_none_is_refused() {
    let mut context = fixture::context().await;
    context.query_limit = QueryLimit::with_max_wait(1, Duration::ZERO);
    let query_limit = context.query_limit.clone();
    let page = Request::get("/clusters/prod?window=all").header("accept", "text/html");
    let page = page.body(Body::empty()).unwrap();
    let answer = service(context).oneshot(page).await.unwrap();
    assert_eq!((answer.status().as_u16(), query_limit.rejected()), (200, 0));
}
