//! A GPU that held back another job before: what its incident says on the page and in the metrics.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use echo_core::ids::IncidentId;
use echo_core::model::detector_output::{DetectorOutput, Finding, Incident, IncidentState};
use echo_tools::fixture::{at, context, culprit};
use echo_tools::registry::Registry;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::tenants::{OWNER, TENANT, send};
use super::{feeds, router, service};
use crate::auth::tests::Site;
use crate::http::metrics::Metrics;

/// Incident of the GPU of rank 2 that began at this second.
fn incident_of_gpu(id: u64, job: &str, second: i64) -> Incident {
    let mut incident = Incident {
        id: IncidentId::new(id),
        job: Some(job.parse().unwrap()),
        first_seen: at(second),
        raised_at: at(second + 10),
        last_seen: at(second + 300),
        ..culprit()
    };
    if let Finding::Culprit(culprit) = &mut incident.finding {
        culprit.gpu_uuid = Some("GPU-2".into());
    }
    incident
}

/// The fixture, whose culprit has a GPU that held back another job two days before.
async fn after_another_job() -> Router {
    let context = context().await;
    let mut before = incident_of_gpu(1, "bert", 290 - 48 * 3_600);
    before.state = IncidentState::Cleared;
    before.cleared_at = Some(before.last_seen);
    let output = DetectorOutput {
        incidents: vec![before, incident_of_gpu(0x17, "llama", 290)],
        ..DetectorOutput::default()
    };
    context.store.store_verdicts(output).await.unwrap();
    service(context)
}

async fn get(echo: &Router, path: &str) -> String {
    let request = Request::get(path)
        .header("host", "127.0.0.1:8081")
        .header("accept", "text/html,*/*")
        .body(Body::empty());
    let response = echo.clone().oneshot(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), 200, "{path}");
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

#[tokio::test]
async fn the_card_of_an_incident_says_what_to_do_and_how_often_it_recurred() {
    let page = get(&after_another_job().await, "/clusters/prod").await;
    for part in [
        "<p>Second incident of this GPU in 7 days, in 2 jobs.</p>",
        "<p>Do:</p><ul class=\"advice\"><li>Find what its processes lose time to: fleet-agent explain, on node-1</li>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[tokio::test]
async fn a_scrape_counts_the_incidents_of_the_gpu_of_a_culprit() {
    let text = get(&after_another_job().await, "/metrics").await;
    let sample = r#"echo_gpu_incidents{cluster="prod",job_id="llama",node="node-1",rank="2"} 2.0"#;
    assert!(text.contains(sample), "{text}");
}

#[tokio::test]
async fn a_caller_counts_only_incidents_in_clusters_that_it_may_see() {
    let context = context().await;
    let mut elsewhere = incident_of_gpu(1, "bert", 290 - 48 * 3_600);
    elsewhere.cluster = "hidden-fleet".parse().unwrap();
    let output = DetectorOutput {
        incidents: vec![elsewhere, incident_of_gpu(0x17, "llama", 290)],
        ..DetectorOutput::default()
    };
    context.store.store_verdicts(output).await.unwrap();
    let site = Site::with_tokens(&[TENANT, OWNER]);
    let feeds = (feeds(), Metrics::default());
    let echo = router(Registry::standard(), context, feeds, &site.middleware);
    let input = json!({ "cluster": "prod", "window": "all" });
    let tool = "/api/v1/tools/fleet.cluster.find_outlier_nodes";
    for (token, n) in site.tokens.iter().zip([1, 2]) {
        let (_, metrics) = send(&echo, token, ("GET", "/metrics", Value::Null)).await;
        let sample = format!(
            "echo_gpu_incidents{{cluster=\"prod\",job_id=\"llama\",node=\"node-1\",rank=\"2\"}} {n}.0"
        );
        assert!(metrics.contains(&sample), "{sample}: {metrics}");
        let (_, answer) = send(&echo, token, ("POST", tool, input.clone())).await;
        let count = format!("\"gpu_incidents\":{n},");
        assert!(answer.contains(&count), "{count}: {answer}");
    }
}
