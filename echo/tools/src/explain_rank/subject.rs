//! The rank that a request is about.

use std::sync::Arc;

use echo_core::ids::{JobId, NodeId, Rank, RankInJob, RoleId};
use echo_core::model::event::Origin;
use schemars::JsonSchema;
use serde::Serialize;

use crate::quality::{Presence, job_name};
use crate::{ToolError, names};

/// A rank that reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subject {
    /// Rank within its job.
    pub(super) rank: Rank,
    origin: Arc<Origin>,
}

/// Identity of a rank. Fields that were not reported are null.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RankIdentity {
    /// Rank within its job.
    pub rank: u32,
    /// World size of the job.
    pub nranks: Option<u32>,
    /// Node name.
    pub node_id: String,
    /// UUID of its GPU.
    pub gpu_uuid: Option<String>,
    /// Model of its GPU.
    pub gpu_model: Option<String>,
    /// Its job.
    pub job: Option<String>,
    /// Role, 16 hexadecimal digits: ranks with the same role do the same work in every iteration
    /// and are compared with one another; null when the rank reported no block of collectives in
    /// the window.
    pub role: Option<String>,
    /// Kubernetes namespace.
    pub namespace: Option<String>,
    /// Kubernetes pod.
    pub pod: Option<String>,
}

impl Subject {
    /// Finds the rank; an error when several jobs have it and the request names none.
    pub(super) fn find(
        presence: &Presence,
        rank: Rank,
        job: Option<&str>,
    ) -> Result<Self, ToolError> {
        let job: Option<JobId> = names::optional("job", job)?;
        let matches: Vec<&Arc<Origin>> = presence
            .ranks()
            .filter(|origin| origin.rank.map(RankInJob::rank) == Some(rank))
            .filter(|origin| job.is_none() || origin.job == job)
            .collect();
        match matches.as_slice() {
            [] => Err(ToolError::UnknownRank {
                rank: rank.value(),
                known: presence.describe_ranks(),
            }),
            [origin] => Ok(Self {
                rank,
                origin: Arc::clone(origin),
            }),
            several => {
                let names = several.iter().map(|origin| job_name(origin.job.as_ref()));
                let names = names.collect::<Vec<_>>().join(", ");
                let message =
                    format!("rank {rank} reported in several jobs; set job to one of: {names}");
                Err(ToolError::invalid("job", message))
            }
        }
    }

    /// Its job.
    pub(super) fn job(&self) -> Option<&JobId> {
        self.origin.job.as_ref()
    }

    /// Its node.
    pub(super) fn node(&self) -> &NodeId {
        &self.origin.node
    }

    /// World size of its job, when known.
    pub(super) fn world_size(&self) -> Option<u32> {
        self.origin.rank.and_then(RankInJob::world_size)
    }

    /// Identity of the rank.
    pub(super) fn identity(&self, role: Option<RoleId>) -> RankIdentity {
        let owned = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
        RankIdentity {
            rank: self.rank.value(),
            nranks: self.world_size(),
            node_id: self.origin.node.to_string(),
            gpu_uuid: owned(&self.origin.gpu_uuid),
            gpu_model: owned(&self.origin.gpu_model),
            job: self.job().map(ToString::to_string),
            role: role.map(|role| role.to_string()),
            namespace: owned(&self.origin.namespace),
            pod: owned(&self.origin.pod),
        }
    }
}
