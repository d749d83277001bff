//! Page of a rank: what its process loses time to.

use echo_tools::fixture;

use super::{BROWSER, Page, send, service};

#[tokio::test]
async fn the_page_of_a_rank_has_the_chains_and_the_top_stack_of_its_process() {
    let context = fixture::context().await;
    let reports = fixture::process_reports();
    context.store.append(reports).await.unwrap();
    let echo = service(context);
    let path = |rank: u32| format!("/clusters/prod/ranks/{rank}?window=15m");
    let Page(_, _, page) = send(&echo, ("GET", &path(2)), BROWSER, "").await;
    for part in [
        "What its process loses time to",
        "<h3>Cpu contention</h3>",
        "It loses 29.5 % of its time, its peers 0.0 %.",
        "<code>taskset -pc 13-15 4002</code>",
        "75.0 % of the samples of its program: 60",
        "[Python] train.py:210 in main()",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let Page(status, _, calm) = send(&echo, ("GET", &path(3)), BROWSER, "").await;
    assert_eq!(status, 200);
    assert!(!calm.contains("loses time to"), "{calm}");
}
