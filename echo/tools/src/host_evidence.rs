//! Asks the store what the hosts of a cohort went through.

use echo_analysis::evidence::{HostFact, HostTotal, compare};
use echo_core::ids::{ClusterId, JobId, Rank, RoleId};
use echo_core::model::detector_output::Incident;
use echo_core::model::event::SeqRange;
use echo_core::units::{Nanos, Window};
use echo_store::{EvidenceQuery, EvidenceSum};

use crate::{ToolContext, ToolError};

/// How far clocks of nodes may be apart, nanoseconds: operations are told apart by their numbers, time only narrows down
/// where they are looked for.
pub const CLOCK_TOLERANCE_NANOS: i64 = 60_000_000_000;

/// Operations of a job in which the hosts of its ranks are compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operations {
    /// Cluster.
    pub cluster: ClusterId,
    /// Job, when known.
    pub job: Option<JobId>,
    /// Role of the ranks.
    pub role: RoleId,
    /// Event time, widen_for_clock_skew for clocks that differ.
    pub window: Window,
    /// Operations.
    pub seqs: SeqRange,
}

impl Operations {
    /// What an incident was judged by; nothing when its inputs were not kept.
    pub fn from_incident(incident: &Incident) -> Option<Self> {
        Some(Self {
            cluster: incident.cluster.clone(),
            job: incident.job.clone(),
            role: role_of_cohort(&incident.cohort)?,
            window: widen_for_clock_skew(incident.first_seen, incident.last_seen)?,
            seqs: incident.inputs.as_deref()?.seqs,
        })
    }

    /// Every kind of evidence of the rank beside its peers', what differs most first.
    pub async fn host_facts(
        self,
        context: &ToolContext,
        rank: Rank,
    ) -> Result<Vec<HostFact>, ToolError> {
        let query = EvidenceQuery {
            cluster: self.cluster,
            job: self.job,
            role: self.role,
            window: self.window,
            seqs: self.seqs,
        };
        let sums = context.store.host_evidence(query).await?;
        let totals: Vec<HostTotal> = sums.into_iter().map(total).collect();
        Ok(compare(&totals, rank))
    }
}

fn total(sum: EvidenceSum) -> HostTotal {
    HostTotal {
        rank: sum.rank,
        metric: sum.metric,
        sum: sum.sum,
        iterations: sum.iterations,
    }
}

/// The span from `from` to `to`, both inclusive, and what clocks may differ by.
pub fn widen_for_clock_skew(from: Nanos, to: Nanos) -> Option<Window> {
    Window::new(
        from.offset(-CLOCK_TOLERANCE_NANOS),
        to.offset(CLOCK_TOLERANCE_NANOS),
    )
}

/// The role that ends the name of a cohort.
fn role_of_cohort(cohort: &str) -> Option<RoleId> {
    cohort.rsplit('/').next()?.parse().ok()
}
