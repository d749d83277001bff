//! Host evidence of a cohort, loaded from the store.

use echo_analysis::evidence::{HostFact, HostTotal, Task, compare};
use echo_core::ids::{ClusterId, JobId, Rank, RoleId};
use echo_core::model::detector_output::Incident;
use echo_core::model::event::SeqRange;
use echo_core::text::is_hidden;
use echo_core::units::{Nanos, Window};
use echo_store::{EvidenceQuery, EvidenceSum, EvidenceTask};
use fleet_proto::attribute;

use crate::{ToolContext, ToolError};

/// Tolerated clock skew between nodes, nanoseconds. Operations are matched by sequence number; time
/// only narrows the search.
pub const CLOCK_TOLERANCE_NANOS: i64 = 60_000_000_000;

/// Maximum length of the name of a task, characters: names of Linux have 15.
const MAX_TASK_CHARS: usize = 32;

/// Operations of a job over which the hosts of its ranks are compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operations {
    /// Cluster.
    pub cluster: ClusterId,
    /// Job, when known.
    pub job: Option<JobId>,
    /// Role of the ranks.
    pub role: RoleId,
    /// Window of event time, widened for clock skew.
    pub window: Window,
    /// Sequence numbers of the operations.
    pub seqs: SeqRange,
}

impl Operations {
    /// Returns the operations on which an incident was judged; `None` when its inputs were not
    /// stored.
    pub fn from_incident(incident: &Incident) -> Option<Self> {
        Some(Self {
            cluster: incident.cluster.clone(),
            job: incident.job.clone(),
            role: role_of_cohort(&incident.cohort)?,
            window: widen_for_clock_skew(incident.first_seen, incident.last_seen)?,
            seqs: incident.inputs.as_deref()?.seqs,
        })
    }

    /// Compares the host evidence of a rank with that of its peers, largest difference first.
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
        task: sum.task.map(task),
        sum: sum.sum,
        iterations: sum.iterations,
    }
}

fn task(task: EvidenceTask) -> Task {
    let is_named = task.name != attribute::OTHER_TASKS;
    Task {
        // Any process of the host chooses its name.
        name: is_named.then(|| task.name.chars().take(MAX_TASK_CHARS).map(shown).collect()),
        cpu: task.cpu,
    }
}

fn shown(c: char) -> char {
    if is_hidden(c) { '?' } else { c }
}

/// Window from `from` to `to`, both inclusive, widened by the tolerated clock skew.
pub fn widen_for_clock_skew(from: Nanos, to: Nanos) -> Option<Window> {
    Window::new(
        from.offset(-CLOCK_TOLERANCE_NANOS),
        to.offset(CLOCK_TOLERANCE_NANOS),
    )
}

/// Parses the role at the end of a cohort name.
fn role_of_cohort(cohort: &str) -> Option<RoleId> {
    cohort.rsplit('/').next()?.parse().ok()
}
