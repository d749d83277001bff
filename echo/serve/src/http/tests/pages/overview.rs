//! Overview: what runs in each cluster, search and order.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use echo_core::model::event::BatchKey;
use echo_tools::fixture;

use super::incidents::{assert_order, text};
use super::{BROWSER, Page, TENANT, get_json, guarded, of_many_clusters, send, service};

/// The usual cluster, and `alpha`, where another job runs on other GPUs.
async fn two_kinds() -> Router {
    let context = fixture::context().await;
    let mut events = fixture::batch(0..4, 595..=595);
    events.key = BatchKey::Content(4_000);
    for event in &mut events.events {
        let mut origin = (*event.origin).clone();
        origin.cluster = "alpha".parse().unwrap();
        origin.job = Some("bert-large".parse().unwrap());
        origin.gpu_model = Some("NVIDIA B200".into());
        event.origin = Arc::new(origin);
    }
    context.store.append(events).await.unwrap();
    service(context)
}

#[tokio::test]
async fn a_card_names_the_gpu_models_and_the_jobs_of_its_cluster() {
    let page = text(&two_kinds().await, "/").await;
    for part in [
        "<dt>GPU</dt><dd>NVIDIA B200</dd>",
        "<dt>Job</dt><dd>bert-large</dd>",
        "<dt>GPU</dt><dd>NVIDIA H200</dd>",
        "<dt>Job</dt><dd>llama</dd>",
    ] {
        assert_eq!(page.matches(part).count(), 1, "{part}: {page}");
    }
}

#[tokio::test]
async fn a_search_finds_clusters_by_their_name_a_job_or_a_gpu_model() {
    let echo = two_kinds().await;
    for (text_of_search, found, hidden) in [
        ("ALP", "alpha", "prod"),
        ("Bert", "alpha", "prod"),
        ("h200", "prod", "alpha"),
    ] {
        let page = text(&echo, &format!("/?q={text_of_search}")).await;
        assert!(
            page.contains(&format!("href=\"/clusters/{found}\"")),
            "{page}"
        );
        assert!(!page.contains(&format!("/clusters/{hidden}")), "{page}");
        assert!(
            page.contains("<a href=\"/\">Show all clusters</a>"),
            "{page}"
        );
    }
    let page = text(&echo, "/?q=nothing").await;
    assert!(page.contains("No cluster matches."), "{page}");
}

#[tokio::test]
async fn a_search_finds_clusters_beyond_those_with_a_card() {
    let mut context = of_many_clusters(60).await;
    context.limits.deadline = Duration::from_mins(5);
    let page = text(&service(context), "/?q=other-059").await;
    assert_eq!(page.matches("<article class=\"card").count(), 1, "{page}");
    assert!(page.contains(">other-059</a>"), "{page}");
}

#[tokio::test]
async fn clusters_are_ordered_by_urgency_cost_or_name_and_the_search_is_kept() {
    let echo = two_kinds().await;
    for (path, order) in [
        ("/", ["/clusters/prod", "/clusters/alpha"]),
        ("/?sort=cost", ["/clusters/prod", "/clusters/alpha"]),
        ("/?sort=name", ["/clusters/alpha", "/clusters/prod"]),
    ] {
        assert_order(&text(&echo, path).await, &order);
    }
    let page = text(&echo, "/?q=a&sort=name&open=search").await;
    for part in [
        "<b>name</b>",
        "<a href=\"/?q=a&amp;sort=cost\">cost</a>",
        "<a href=\"/?q=a\">urgency</a>",
        "<input type=\"hidden\" name=\"sort\" value=\"name\">",
        "<input id=\"q\" type=\"search\" name=\"q\" value=\"a\" autofocus>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[tokio::test]
async fn a_search_finds_nothing_of_a_cluster_that_the_visitor_may_not_see() {
    let (echo, site) = guarded(&[TENANT]).await;
    let headers = format!("{BROWSER}\nauthorization: Bearer {}", site.tokens[0]);
    for wanted in ["hidden", "secret"] {
        let path = format!("/?q={wanted}");
        let Page(status, _, page) = send(&echo, ("GET", &path), &headers, "").await;
        assert_eq!(status, 200, "{page}");
        assert!(page.contains("No cluster matches."), "{page}");
        assert!(!page.contains("-fleet") && !page.contains("-job"), "{page}");
    }
    assert_eq!(get_json(&echo, "/").await.0, 303);
}
