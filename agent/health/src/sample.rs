//! Examples for tests: a node, its culprits, and what Echo reports about it.

use fleet_agent_export::statement::Statement;
use fleet_proto::policy::{Culprit, HostCulprits};
use tokio::sync::watch;

use crate::standing::Standings;

/// Node of the examples.
pub(crate) const NODE: &str = "node-3";

/// A culprit on this GPU.
pub(crate) fn culprit(gpu_uuid: &str) -> Culprit {
    Culprit {
        incident_id: "00000000000000ab".to_owned(),
        node_id: NODE.to_owned(),
        job: "job-1".to_owned(),
        rank: 17,
        gpu_uuid: gpu_uuid.to_owned(),
        class: "host".to_owned(),
        severity: "critical".to_owned(),
        lag_ms: 26.84,
    }
}

/// A statement that the node has these culprits.
pub(crate) fn statement(culprits: &[Culprit]) -> Statement {
    let culprits = culprits.to_vec();
    Statement::new(Some(HostCulprits { culprits }))
}

/// Standings of the node, and the sender of further statements.
pub(crate) fn standings(first: Option<Statement>) -> (watch::Sender<Option<Statement>>, Standings) {
    let (sender, receiver) = watch::channel(first);
    (sender, Standings::new(receiver, NODE))
}
