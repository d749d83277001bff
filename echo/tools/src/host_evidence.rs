//! Host evidence of a cohort, loaded from the store.

use echo_analysis::evidence::{HostFact, HostTotal, Task, compare};
use echo_core::ids::{ClusterId, JobId, Rank};
use echo_core::model::detector_output::Incident;
use echo_core::text::is_hidden;
use echo_core::units::{Nanos, Window};
use echo_store::{EvidenceQuery, EvidenceSum, EvidenceTask};
use fleet_proto::attribute;

use crate::{ToolContext, ToolError};

/// Tolerated clock skew between nodes, nanoseconds. Operations are matched by sequence number; time
/// only narrows the search.
pub const CLOCK_TOLERANCE_NANOS: i64 = 60_000_000_000;

/// Maximum length of the name of a task, characters: names of Linux have 15, and agents send up to 32
/// of a program with its process id.
const MAX_TASK_CHARS: usize = 48;

/// Time in which the hosts of the ranks of a job are compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compared {
    /// Cluster.
    pub cluster: ClusterId,
    /// Job, when known.
    pub job: Option<JobId>,
    /// First and last event time of the operations, on the clock of the rank that is compared.
    pub from: Nanos,
    /// The last one, inclusive.
    pub to: Nanos,
}

impl Compared {
    /// The time of an incident.
    pub fn from_incident(incident: &Incident) -> Self {
        Self {
            cluster: incident.cluster.clone(),
            job: incident.job.clone(),
            from: incident.first_seen,
            to: incident.last_seen,
        }
    }

    /// Compares the host evidence of a rank with that of its peers about the same operations, largest
    /// difference first.
    pub async fn host_facts(
        &self,
        context: &ToolContext,
        rank: Rank,
    ) -> Result<Vec<HostFact>, ToolError> {
        let span = Window::new(self.from, self.to.offset(1));
        let widened = widen_for_clock_skew(self.from, self.to);
        let Some((span, window)) = span.zip(widened) else {
            return Ok(Vec::new());
        };
        let query = EvidenceQuery {
            cluster: self.cluster.clone(),
            job: self.job.clone(),
            rank,
            span,
            window,
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
