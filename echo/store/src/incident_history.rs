//! Culprits of past incidents, for days and weeks back: few columns of many incidents.
//!
//! Incidents outlive the events that they were found in, so their history does not end with the
//! retention of events.

use std::sync::Arc;

use async_trait::async_trait;
use echo_core::ids::{ClusterId, IncidentId, JobId, NodeId};
use echo_core::units::{Nanos, Window};

use crate::StoreError;

/// History of incidents.
#[async_trait]
pub trait IncidentHistory: Send + Sync {
    /// Culprits of the incidents of the cluster (of all clusters if `None`) that were raised in the
    /// window, by their latest state, oldest first.
    async fn past_culprits(
        &self,
        _cluster: Option<&ClusterId>,
        _raised: Window,
    ) -> Result<Vec<PastCulprit>, StoreError> {
        Err(StoreError::Closed)
    }
}

/// Culprit of one incident.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastCulprit {
    /// Incident.
    pub incident: IncidentId,
    /// Cluster.
    pub cluster: ClusterId,
    /// Job, when known.
    pub job: Option<JobId>,
    /// Node of the culprit.
    pub node: NodeId,
    /// GPU of the culprit, when known.
    pub gpu_uuid: Option<Arc<str>>,
    /// Event time at which it was raised.
    pub raised_at: Nanos,
    /// Beginning of the first affected iteration, event time.
    pub first_seen: Nanos,
    /// Event time at which it was cleared or last seen.
    pub until: Nanos,
}
