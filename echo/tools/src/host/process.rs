//! Identity of a process in answers.

use echo_core::ids::Rank;
use echo_store::process_reports::ProcessKey;
use schemars::JsonSchema;
use serde::Serialize;

/// Process on a node. Fields that were not reported are null.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProcessIdentity {
    /// Cluster.
    pub cluster: String,
    /// Node name.
    pub node_id: String,
    /// Job.
    pub job: Option<String>,
    /// Rank within its job; null for a process without a rank.
    pub rank: Option<u32>,
    /// Process id on its node.
    pub pid: Option<u32>,
    /// Name of the process.
    pub process: Option<String>,
}

impl From<ProcessKey> for ProcessIdentity {
    fn from(key: ProcessKey) -> Self {
        Self {
            cluster: key.cluster.to_string(),
            node_id: key.node.to_string(),
            job: key.job.map(|job| job.to_string()),
            rank: key.rank.map(Rank::value),
            pid: key.pid,
            process: key.name,
        }
    }
}

impl ProcessIdentity {
    /// Names the process in a sentence.
    pub(super) fn name(&self) -> String {
        let process = match (&self.process, self.pid) {
            (Some(name), Some(pid)) => format!("{name} ({pid})"),
            (Some(name), None) => name.clone(),
            (None, Some(pid)) => format!("process {pid}"),
            (None, None) => "a process".to_owned(),
        };
        match self.rank {
            Some(rank) => format!("rank {rank}, {process} on {}", self.node_id),
            None => format!("{process} on {}", self.node_id),
        }
    }
}
