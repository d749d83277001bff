//! Delivery to a collector on a real connection, which can refuse requests for a while.

use fleet_agent::replay::summary::Summary;
use fleet_agent::replay::{ReplayError, replay};
use fleet_agent_core::batch::{Batch, VerdictBatch};
use fleet_agent_export::otlp::Otlp;
use fleet_agent_export::{Ack, Export, ExportError};
use fleet_proto::policy::PolicySet;
use indicatif::ProgressBar;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use tokio::net::TcpListener;

use crate::collect::{args, recording, run};
use crate::collector::{Collector, deliver};

fn n_points(request: &ExportMetricsServiceRequest) -> usize {
    let scopes = request
        .resource_metrics
        .iter()
        .flat_map(|resource| &resource.scope_metrics);
    let metrics = scopes.flat_map(|scope| &scope.metrics);
    let points = metrics.map(|metric| match metric.data.as_ref().unwrap() {
        Data::Gauge(gauge) => gauge.data_points.len(),
        Data::Histogram(histogram) => histogram.data_points.len(),
        Data::Sum(sum) => sum.data_points.len(),
        other => panic!("{other:?}"),
    });
    points.sum()
}

#[test]
fn a_collector_that_refuses_at_first_stores_everything_once() {
    let extra = ["--node-per-rank", "--block-target", "200ms"];
    let refusing = Collector {
        refuses: true,
        ..Collector::default()
    };
    let (collector, summary, result) = deliver(refusing, "healthy", &extra);
    assert!(result.is_ok(), "{result:?}");
    let stored: Vec<usize> = collector
        .stored
        .lock()
        .unwrap()
        .values()
        .map(n_points)
        .collect();
    let attempts = collector.attempts.lock().unwrap().clone();
    let n_sent = run(&recording("healthy"), &extra).sent.len();
    assert_eq!(stored.iter().sum::<usize>(), n_sent);
    assert_eq!(summary.delivery.points_sent, n_sent as u64);
    assert_eq!(summary.delivery.batches_acked, stored.len() as u64);
    assert_eq!(
        summary.delivery.retries,
        (attempts.len() - stored.len()) as u64
    );
    assert!(summary.delivery.retries > 0);
    // One batch in flight per agent: numbers never decrease, and every number was stored.
    for instance in 1..=4 {
        let instance = format!("{instance:016x}");
        let own = attempts.iter().filter(|(of, _)| *of == instance);
        let numbers: Vec<u64> = own.map(|(_, number)| number.parse().unwrap()).collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
        let mut numbers = numbers;
        numbers.dedup();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    }
}

#[test]
fn rejections_and_the_policy_are_in_the_summary() {
    let policy = PolicySet {
        version: 7,
        ..PolicySet::default()
    };
    let collector = Collector {
        policy: Some(policy),
        rejects: true,
        ..Collector::default()
    };
    let (_, summary, _) = deliver(collector, "healthy", &[]);
    let delivery = &summary.delivery;
    assert_eq!(delivery.policy_version, Some(7));
    assert_eq!(delivery.points_rejected, delivery.batches_acked);
    assert_eq!(
        delivery.reasons["point without a node"],
        delivery.points_rejected
    );
}

#[test]
fn an_unreachable_endpoint_ends_the_replay() {
    let args = args(
        &recording("healthy"),
        &["--speed", "max", "--give-up-after", "0s"],
    );
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (summary, result) = runtime.block_on(async {
        // A port that was free a moment ago, without a listener.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        drop(listener);
        replay(
            &args,
            |_: &str| Otlp::new(&endpoint, 1).unwrap(),
            &ProgressBar::hidden(),
        )
        .await
    });
    assert!(
        matches!(result, Err(ReplayError::Unreachable { .. })),
        "{result:?}"
    );
    assert_eq!(summary.delivery.points_sent, 0);
    assert!(summary.delivery.points_dropped > 0);
}

/// Exporter of one host: accepts everything or nothing, is unreachable, or panics.
#[derive(Debug)]
enum Exporter {
    Accepting,
    Refusing,
    Unreachable,
    Panicking,
}

impl Export for Exporter {
    async fn export(&self, _: &Batch) -> Result<Ack, ExportError> {
        match self {
            Self::Accepting => Ok(Ack::default()),
            Self::Refusing => Err(ExportError::Refused {
                reason: "too large".to_owned(),
            }),
            Self::Unreachable => Err(ExportError::Later {
                after: None,
                reason: "away".to_owned(),
            }),
            Self::Panicking => panic!("a defect"),
        }
    }

    async fn export_verdicts(&self, _: &VerdictBatch) -> Result<Ack, ExportError> {
        Ok(Ack::default())
    }
}

/// Replays four hosts, of which `node-2` has another exporter than the others.
fn replay_with(exporter_of_node_2: fn() -> Exporter) -> (Summary, Result<(), ReplayError>) {
    let extra = ["--node-per-rank", "--speed", "max", "--give-up-after", "0s"];
    let args = args(&recording("healthy"), &extra);
    let end = |node: &str| match node {
        "node-2" => exporter_of_node_2(),
        _ => Exporter::Accepting,
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(replay(&args, end, &ProgressBar::hidden()))
}

#[test]
fn a_host_that_cannot_deliver_does_not_stop_the_others() {
    let (whole, result) = replay_with(|| Exporter::Accepting);
    assert!(result.is_ok(), "{result:?}");
    let (partial, result) = replay_with(|| Exporter::Unreachable);
    let message = result.unwrap_err().to_string();
    assert!(message.contains("gave up: node-2)"), "{message}");
    let (sent, dropped) = (
        partial.delivery.points_sent,
        partial.delivery.points_dropped,
    );
    assert_eq!(sent + dropped, whole.delivery.points_sent);
    assert!(message.contains(&format!("{dropped} points")), "{message}");
    assert_eq!(partial.events, whole.events);
    assert!(dropped > 0 && sent > 2 * dropped, "{sent} {dropped}");
}

#[test]
fn a_delivery_that_panics_is_an_error() {
    let (summary, result) = replay_with(|| Exporter::Panicking);
    assert!(
        matches!(result, Err(ReplayError::TaskFailed(_))),
        "{result:?}"
    );
    assert!(summary.delivery.points_sent > 0);
}

#[test]
fn refused_points_are_an_error_with_their_number_and_reason() {
    let (summary, result) = replay_with(|| Exporter::Refusing);
    let dropped = summary.delivery.points_dropped;
    assert!(dropped > 0 && summary.delivery.points_sent > 0);
    let message = result.unwrap_err().to_string();
    let expected = format!("none: {dropped} points were not delivered (refused: too large)");
    assert!(message.starts_with(&expected), "{message}");
}
