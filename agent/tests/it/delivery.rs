//! Replays of several hosts, of which one cannot deliver.

use fleet_agent::replay::summary::Summary;
use fleet_agent::replay::{ReplayError, replay};
use fleet_agent_core::batch::{Batch, VerdictBatch};
use fleet_agent_export::{Ack, Export, ExportError};
use indicatif::ProgressBar;

use crate::collect::{args, recording};

/// Exporter of one host: accepts everything, is unreachable, or panics.
#[derive(Debug)]
enum Exporter {
    Accepting,
    Unreachable,
    Panicking,
}

impl Export for Exporter {
    async fn export(&self, _: &Batch) -> Result<Ack, ExportError> {
        match self {
            Self::Accepting => Ok(Ack::default()),
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
