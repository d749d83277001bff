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
/// of a program with its process id, which has up to 7 digits.
const MAX_TASK_CHARS: usize = 64;

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
        let found = host_facts(context, &[(rank, self)]).await?;
        Ok(found.into_iter().flatten().collect())
    }

    fn query(&self, rank: Rank) -> Option<EvidenceQuery> {
        Some(EvidenceQuery {
            cluster: self.cluster.clone(),
            job: self.job.clone(),
            rank,
            span: Window::new(self.from, self.to.offset(1))?,
            window: widen_for_clock_skew(self.from, self.to)?,
        })
    }
}

/// Compares the host evidence of each of these ranks with that of its peers, with one query for all.
/// Returns a list for each, in their order.
pub async fn host_facts(
    context: &ToolContext,
    ranks: &[(Rank, &Compared)],
) -> Result<Vec<Vec<HostFact>>, ToolError> {
    let queries = ranks.iter().map(|(rank, time)| time.query(*rank));
    let queries: Vec<Option<EvidenceQuery>> = queries.collect();
    let asked: Vec<EvidenceQuery> = queries.iter().flatten().cloned().collect();
    let mut found = context.store.host_evidence(asked).await?.into_iter();
    let facts = ranks.iter().zip(&queries).map(|((rank, _), query)| {
        let sums = query.as_ref().and_then(|_| found.next());
        let totals = sums.unwrap_or_default().into_iter().map(total);
        compare(&totals.collect::<Vec<_>>(), *rank)
    });
    Ok(facts.collect())
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
