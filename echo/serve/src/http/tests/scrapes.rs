//! Verdict metrics: the figures of the tools, only for permitted callers, and only if known.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use echo_core::clock::ManualClock;
use echo_core::ids::{IncidentId, Rank};
use echo_core::model::detector_output::{
    DetectorOutput, Finding, Incident, IncidentState, LostTime,
};
use echo_tools::ToolContext;
use echo_tools::fixture::broken::Broken;
use echo_tools::fixture::{at, batch, context_over, culprit, detector_output, empty, lost};
use echo_tools::get_cost::GetCost;
use echo_tools::get_cost::answer::Cost;
use echo_tools::registry::Registry;
use echo_tools::tool::Tool;
use tower::ServiceExt;

use super::tenants::two_clusters;
use super::{feeds, router};
use crate::auth::tests::Site;
use crate::http::metrics::Metrics;

const OWNER: &str =
    "id: owner, query: { clusters: [\"*\"] }, rate: { per_second: 1000, burst: 1000 }";

const PER_HOUR: &str =
    r#"echo_straggler_cost_per_hour{cluster="prod",rate_class="on_demand",currency="USD"}"#;
const MONEY: &str =
    r#"echo_straggler_cost_total{cluster="prod",rate_class="on_demand",currency="USD"}"#;
const LOST: &str = r#"echo_straggler_lost_gpu_seconds_total{cluster="prod"}"#;
const OPEN: &str = r#"echo_outlier_ranks{cluster="prod",class="host",state="open"}"#;

/// A router over the usual cluster, with a store and a clock that the test advances.
struct Lab {
    clock: ManualClock,
    context: ToolContext,
    site: Site,
    echo: Router,
}

impl Lab {
    async fn new() -> Self {
        let lab = Self::empty();
        lab.context
            .store
            .append(batch(0..4, 0..=600))
            .await
            .unwrap();
        lab.context
            .store
            .store_verdicts(detector_output())
            .await
            .unwrap();
        lab
    }

    fn empty() -> Self {
        let clock = ManualClock::at(at(600));
        let context = ToolContext {
            clock: Arc::new(clock.clone()),
            ..empty()
        };
        let site = Site::with_tokens(&[OWNER]);
        Self {
            echo: echo(&context, &site),
            clock,
            context,
            site,
        }
    }

    async fn scrape(&self) -> BTreeMap<String, f64> {
        samples(&scraped(&self.echo, &self.site.tokens[0]).await)
    }

    async fn cost(&self, from: i64, to: i64) -> Cost {
        let query = GetCost {
            cluster: Some("prod".to_owned()),
            from: Some(at(from).to_string().parse().unwrap()),
            to: Some(at(to).to_string().parse().unwrap()),
            ..GetCost::default()
        };
        query.run(&self.context).await.unwrap()
    }

    /// Continues for half a minute with rank 2 late as before.
    async fn continue_late(&self, from: i64) {
        let until = from + 30;
        self.context
            .store
            .append(batch(0..4, from + 5..=until))
            .await
            .unwrap();
        let times = (from..until).step_by(5);
        let late = times.map(|second| lost(&culprit(), "node-0", Some("NVIDIA H200"), second));
        self.lose(late.collect()).await;
        self.clock.set(at(until));
    }

    async fn lose(&self, lost: Vec<LostTime>) {
        let concluded = DetectorOutput {
            lost,
            ..DetectorOutput::default()
        };
        self.context.store.store_verdicts(concluded).await.unwrap();
    }

    async fn find(&self, incidents: Vec<Incident>) {
        let concluded = DetectorOutput {
            incidents,
            ..DetectorOutput::default()
        };
        self.context.store.store_verdicts(concluded).await.unwrap();
    }
}

fn echo(context: &ToolContext, site: &Site) -> Router {
    let feeds = (feeds(), Metrics::default());
    router(
        Registry::standard(),
        context.clone(),
        feeds,
        &site.middleware,
    )
}

async fn scraped(echo: &Router, token: &str) -> String {
    let request = Request::get("/metrics")
        .header("host", "127.0.0.1:8081")
        .header("authorization", format!("Bearer {token}"))
        .body(Body::empty());
    let response = echo.clone().oneshot(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap();
        let is_plain = value.is_finite() && !line.ends_with(" -0.0");
        assert!(is_plain, "{line}");
        (name.to_owned(), value)
    };
    let all: Vec<_> = lines.map(sample).collect();
    let known: BTreeMap<_, _> = all.iter().cloned().collect();
    assert_eq!(known.len(), all.len(), "a sample is there twice:\n{text}");
    known
}

#[track_caller]
fn assert_near(found: f64, expected: f64) {
    let allowed = 1e-9 * expected.abs().max(1.0);
    let distance = (found - expected).abs();
    assert!(distance <= allowed, "{found} is not {expected}");
}

#[tokio::test]
async fn metrics_match_the_answers_of_the_tools() {
    let lab = Lab::new().await;
    let (now, cost) = (lab.scrape().await, lab.cost(-3_000, 600).await);
    assert_near(now[PER_HOUR], cost.run_rate_per_hour.unwrap());
    let most = r#"echo_straggler_max_rank_cost_per_hour{cluster="prod",currency="USD"}"#;
    assert_near(now[most], cost.contributors[0].run_rate_per_hour.unwrap());
    let of = |name: &str| now[&format!("echo_{name}{{cluster=\"prod\"}}")];
    assert_near(
        of("straggler_lost_gpu_hours_per_hour"),
        cost.lost_gpu_hours_per_hour.unwrap(),
    );
    assert_near(of("straggler_unpriced_gpu_hours_per_hour"), 0.0);
    assert_near(
        of("cluster_coverage_ratio"),
        cost.data_quality.coverage.unwrap(),
    );
    assert_near(of("cluster_ranks_reporting"), 4.0);
    assert_near(
        of("cluster_last_event_age_seconds"),
        cost.data_quality.last_event_age_s.unwrap(),
    );
    assert_near(now[OPEN], 1.0);
    let lag = r#"echo_rank_lag_seconds{cluster="prod",job_id="llama",node="node-1",rank="2"}"#;
    assert_near(now[lag], 0.011);
    let slow = r#"echo_open_conditions{cluster="prod",kind="uniform_slowdown"}"#;
    assert_near(now[slow], 0.0);
    assert_near(now["echo_rates_in_force"], 1.0);
}

#[tokio::test]
async fn counters_start_at_zero_and_sum_up_to_get_cost() {
    let lab = Lab::new().await;
    assert_near(lab.scrape().await[MONEY], 0.0);
    // Longer than an interval stays open, so that intervals are closed on the way.
    for from in (600..2_400).step_by(30) {
        lab.continue_late(from).await;
        lab.scrape().await;
    }
    let (now, cost) = (lab.scrape().await, lab.cost(600, 2_400).await);
    assert!(cost.window_total.unwrap() > 0.3, "{cost:?}");
    // Each interval is rounded to a millionth.
    assert!(
        (now[MONEY] - cost.window_total.unwrap()).abs() < 1e-5,
        "{}",
        now[MONEY]
    );
    assert_near(now[LOST], cost.lost_gpu_hours * 3_600.0);
}

#[tokio::test]
async fn counters_include_late_losses_and_never_decrease() {
    let lab = Lab::new().await;
    lab.scrape().await;
    lab.continue_late(600).await;
    let before = lab.scrape().await[LOST];
    let late = |ms| LostTime {
        lost_gpu_ms: ms,
        ..lost(&culprit(), "node-1", Some("NVIDIA H200"), 580)
    };
    lab.lose(vec![late(41_000.0)]).await;
    lab.clock.set(at(640));
    let with_it = lab.scrape().await[LOST];
    assert_near(with_it, before + 40.0);
    lab.lose(vec![late(1_000.0)]).await;
    lab.clock.set(at(650));
    assert_near(lab.scrape().await[LOST], with_it);
}

#[tokio::test]
async fn a_second_scrape_within_seconds_reuses_the_result() {
    let lab = Lab::new().await;
    assert_near(lab.scrape().await[OPEN], 1.0);
    let cleared = Incident {
        state: IncidentState::Cleared,
        cleared_at: Some(at(600)),
        ..culprit()
    };
    lab.find(vec![cleared]).await;
    lab.clock.set(at(604));
    assert_near(lab.scrape().await[OPEN], 1.0);
    lab.clock.set(at(606));
    let now = lab.scrape().await;
    assert_near(now[OPEN], 0.0);
    assert_near(now[&OPEN.replace("open", "cleared")], 1.0);
    assert!(
        !now.keys()
            .any(|name| name.starts_with("echo_rank_lag_seconds")),
        "{now:?}"
    );
}

#[tokio::test]
async fn unknown_values_are_omitted() {
    let lab = Lab::empty();
    assert!(
        !lab.scrape()
            .await
            .keys()
            .any(|name| name.contains("cluster="))
    );
    // One of four ranks is too few for a run rate.
    lab.context
        .store
        .append(batch(0..1, 0..=600))
        .await
        .unwrap();
    lab.clock.set(at(606));
    let now = lab.scrape().await;
    assert!(!now.contains_key(PER_HOUR), "{now:?}");
    assert_near(now[r#"echo_cluster_coverage_ratio{cluster="prod"}"#], 0.25);
    // Half an hour after the last event, only its age is reported.
    lab.clock.set(at(2_400));
    let now = lab.scrape().await;
    assert!(!now.keys().any(|name| name.contains("ratio")), "{now:?}");
    assert_near(
        now[r#"echo_cluster_last_event_age_seconds{cluster="prod"}"#],
        1_800.0,
    );
}

#[tokio::test]
async fn a_healthy_cluster_reports_zero_cost_by_rate_class() {
    let lab = Lab::empty();
    lab.context
        .store
        .append(batch(0..4, 0..=600))
        .await
        .unwrap();
    let now = lab.scrape().await;
    assert_near(now[PER_HOUR], 0.0);
    assert_near(now[OPEN], 0.0);
}

#[tokio::test]
async fn lags_are_limited_to_fifty_ranks_and_counts_are_not() {
    let lab = Lab::new().await;
    let late = |rank: u32| {
        let mut incident = Incident {
            id: IncidentId::new(1_000 + u64::from(rank)),
            effect_ratio: f64::from(rank),
            ..culprit()
        };
        if let Finding::Culprit(culprit) = &mut incident.finding {
            culprit.rank = Rank::new(rank);
        }
        incident
    };
    lab.find((100..200).map(late).collect()).await;
    let now = lab.scrape().await;
    assert_near(now[OPEN], 101.0);
    let lags: Vec<_> = now
        .keys()
        .filter(|name| name.starts_with("echo_rank_lag_seconds"))
        .collect();
    assert_eq!(lags.len(), 50);
    assert!(
        lags.iter().any(|name| name.contains("rank=\"199\"")),
        "{lags:?}"
    );
    assert!(
        !lags.iter().any(|name| name.contains("rank=\"149\"")),
        "{lags:?}"
    );
}

#[tokio::test]
async fn a_rank_in_several_cohorts_has_one_sample() {
    let lab = Lab::new().await;
    let other = Incident {
        id: IncidentId::new(7),
        cohort: Arc::from("llama/other"),
        ..culprit()
    };
    lab.find(vec![other]).await;
    let now = lab.scrape().await;
    assert_eq!(
        now.keys()
            .filter(|name| name.starts_with("echo_rank_lag_seconds"))
            .count(),
        1
    );
}

#[tokio::test]
async fn names_in_labels_are_escaped() {
    let lab = Lab::empty();
    let mut events = batch(0..4, 0..=600);
    for event in &mut events.events {
        let mut origin = (*event.origin).clone();
        origin.cluster = "a\"} 1 b\\".parse().unwrap();
        event.origin = Arc::new(origin);
    }
    lab.context.store.append(events).await.unwrap();
    let now = lab.scrape().await;
    assert_near(
        now[r#"echo_cluster_coverage_ratio{cluster="a\"} 1 b\\"}"#],
        1.0,
    );
}

#[tokio::test]
async fn metrics_are_limited_to_permitted_clusters_and_tools() {
    let site = Site::with_tokens(&[
        "id: owner, query: { clusters: [\"*\"] }",
        "id: tenant, query: { clusters: [prod] }",
        "id: on-call, query: { clusters: [prod], tools: [\"fleet.cluster.find_*\"] }",
    ]);
    let echo = echo(&two_clusters().await, &site);
    let [owner, tenant, on_call] = [0, 1, 2].map(|one| scraped(&echo, &site.tokens[one]));
    let (owner, tenant, on_call) = (owner.await, tenant.await, on_call.await);
    assert!(
        owner.contains("hidden-fleet") && owner.contains("echo_rates_in_force"),
        "{owner}"
    );
    assert!(
        !tenant.contains("hidden-fleet") && !tenant.contains("echo_rates_in_force"),
        "{tenant}"
    );
    assert!(samples(&tenant).contains_key(PER_HOUR), "{tenant}");
    assert!(
        !on_call.contains("straggler_cost") && samples(&on_call).contains_key(OPEN),
        "{on_call}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_scrape_does_not_wait_for_a_blocked_store() {
    let context = context_over(Arc::new(Broken::Silent));
    let site = Site::with_tokens(&[OWNER]);
    let now = samples(&scraped(&echo(&context, &site), &site.tokens[0]).await);
    assert_near(now["echo_verdicts_failed_total"], 1.0);
}
