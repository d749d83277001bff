//! Merges coverage and evidence sums of several origins into one row per rank.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use echo_core::ids::{ClusterId, JobId, MetricName, NodeId, Rank, RankInJob};
use echo_core::model::event::Origin;
use echo_core::units::Nanos;

use crate::{Activity, Coverage, EvidenceSum};

/// Key of a row: the attributes of an origin that always identify a rank.
type Reporter = (ClusterId, Option<JobId>, NodeId, Option<Rank>);

/// Coverage rows by reporter.
#[derive(Debug, Default)]
pub(super) struct CoverageRows(BTreeMap<Reporter, Coverage>);

/// Coverage of one origin.
#[derive(Debug, Clone)]
pub(super) struct OriginCoverage {
    /// Origin.
    pub(super) origin: Arc<Origin>,
    /// First event time.
    pub(super) first: Nanos,
    /// Last event time.
    pub(super) last: Nanos,
    /// True if it reported host evidence.
    pub(super) has_host_evidence: bool,
    /// What it did last.
    pub(super) activity: Activity,
}

impl CoverageRows {
    /// Adds an origin.
    pub(super) fn add(&mut self, count: OriginCoverage) {
        let origin = &count.origin;
        let reporter = (
            origin.cluster.clone(),
            origin.job.clone(),
            origin.node.clone(),
            origin.rank.map(RankInJob::rank),
        );
        let row = match self.0.entry(reporter) {
            Entry::Vacant(vacant) => vacant.insert(Coverage {
                origin: Arc::clone(origin),
                first: count.first,
                last: count.last,
                has_host_evidence: false,
                activity: Activity::default(),
            }),
            Entry::Occupied(occupied) => occupied.into_mut(),
        };
        // Ties are broken by origin, so that the result does not depend on the order of counting.
        if (count.last, origin) > (row.last, &row.origin) {
            row.origin = Arc::clone(origin);
        }
        row.first = row.first.min(count.first);
        row.last = row.last.max(count.last);
        row.has_host_evidence |= count.has_host_evidence;
        row.activity = row.activity.with(count.activity);
    }

    /// The rows, in order.
    pub(super) fn into_rows(self) -> Vec<Coverage> {
        self.0.into_values().collect()
    }
}

/// Sums by rank, kind and name of the task.
type SumsByTask = BTreeMap<(Rank, MetricName, Option<String>), EvidenceSum>;

/// Merges the sums of each of `n_queries` queries into one per rank, kind and task: a rank that reported
/// different origins, or a task that ran on different CPUs, has several.
pub(super) fn merged(
    n_queries: usize,
    sums: impl IntoIterator<Item = (u32, EvidenceSum)>,
) -> Vec<Vec<EvidenceSum>> {
    let mut by_query: BTreeMap<u32, SumsByTask> = BTreeMap::new();
    for (number, sum) in sums {
        let merged = by_query.entry(number).or_default();
        let task = sum.task.as_ref().map(|task| task.name.clone());
        match merged.entry((sum.rank, sum.metric.clone(), task)) {
            Entry::Vacant(vacant) => {
                vacant.insert(sum);
            }
            Entry::Occupied(mut occupied) => {
                let known = occupied.get_mut();
                if sum.sum > known.sum {
                    known.task = sum.task;
                }
                known.sum += sum.sum;
                known.iterations += sum.iterations;
            }
        }
    }
    let mut of_query = |number| by_query.remove(&number).unwrap_or_default();
    let queries = (0..).take(n_queries);
    queries
        .map(|number| of_query(number).into_values().collect())
        .collect()
}
