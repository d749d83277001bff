//! Recurrence: how often a GPU and its node have held back jobs in the days before an incident.
//!
//! A GPU keeps its UUID when its node moves to another cluster, so its incidents count in all
//! clusters that the caller may see. Nodes of two clusters may have one name.
//!
//! The incidents of several cohorts of one job that overlap in time are one occurrence: a late rank
//! holds back each of its cohorts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use echo_access::Principal;
use echo_core::ids::{ClusterId, JobId, NodeId};
use echo_core::model::detector_output::{Culprit, Incident};
use echo_core::units::{Nanos, Window};
use echo_store::incident_history::PastCulprit;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{ToolContext, ToolError};

/// Days up to the incident that are searched.
const DAYS: u32 = 7;

/// The same, as a duration.
const SPAN: Duration = Duration::from_hours(24 * DAYS as u64);

/// Incidents of a GPU and of its node in the 7 days up to an incident, that one included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Recurrence {
    /// Incidents of its GPU, in all clusters that the caller may see; null when unknown.
    pub gpu_incidents: Option<usize>,
    /// Their jobs.
    pub gpu_jobs: Option<usize>,
    /// Incidents of its node.
    pub node_incidents: usize,
    /// Their jobs.
    pub node_jobs: usize,
    /// As a sentence; null for the first.
    pub sentence: Option<String>,
}

/// Past culprits, by GPU and by node.
#[derive(Debug, Default)]
pub struct History {
    gpus: BTreeMap<Arc<str>, Vec<PastCulprit>>,
    nodes: BTreeMap<(ClusterId, NodeId), Vec<PastCulprit>>,
}

/// Occurrences of incidents and their jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    incidents: usize,
    jobs: usize,
    clusters: usize,
}

impl History {
    /// Loads the history of incidents that were raised at these times.
    pub async fn load(context: &ToolContext, raised: &[Nanos]) -> Result<Self, ToolError> {
        let window = raised
            .iter()
            .min()
            .zip(raised.iter().max())
            .and_then(|(first, last)| Window::new(first.before(SPAN), last.offset(1)));
        let Some(window) = window else {
            return Ok(Self::default());
        };
        Ok(Self::new(context.store.past_culprits(None, window).await?))
    }

    fn new(culprits: Vec<PastCulprit>) -> Self {
        let mut history = Self::default();
        for past in culprits {
            let key = (past.cluster.clone(), past.node.clone());
            history.nodes.entry(key).or_default().push(past.clone());
            if let Some(uuid) = past.gpu_uuid.clone() {
                history.gpus.entry(uuid).or_default().push(past);
            }
        }
        history
    }

    /// Returns the recurrence of the culprit of an incident, as far as the caller may know it.
    pub fn recurrence(
        &self,
        incident: &Incident,
        culprit: &Culprit,
        caller: &Principal,
    ) -> Recurrence {
        let counted = |past: Option<&Vec<PastCulprit>>| {
            let past = past.into_iter().flatten();
            let visible = past.filter(|one| caller.may_see(&one.cluster));
            count(&visible.collect::<Vec<_>>(), incident.raised_at)
        };
        let node = (incident.cluster.clone(), culprit.node.clone());
        let node = counted(self.nodes.get(&node));
        let gpu = culprit.gpu_uuid.as_deref();
        let gpu = gpu.map(|uuid| counted(self.gpus.get(uuid)));
        Recurrence {
            gpu_incidents: gpu.map(|gpu| gpu.incidents),
            gpu_jobs: gpu.map(|gpu| gpu.jobs),
            node_incidents: node.incidents,
            node_jobs: node.jobs,
            sentence: sentence(gpu, node),
        }
    }
}

/// Counts the occurrences in the days up to `raised_at`, which includes the incident itself.
fn count(past: &[&PastCulprit], raised_at: Nanos) -> Count {
    let since = raised_at.before(SPAN);
    let past = past.iter().copied();
    let past = past.filter(|one| one.raised_at > since && one.raised_at <= raised_at);
    let mut by_job: BTreeMap<(&ClusterId, Option<&JobId>), Vec<&PastCulprit>> = BTreeMap::new();
    for one in past {
        let job = (&one.cluster, one.job.as_ref());
        by_job.entry(job).or_default().push(one);
    }
    let clusters: BTreeSet<&ClusterId> = by_job.keys().map(|(cluster, _)| *cluster).collect();
    Count {
        clusters: clusters.len(),
        jobs: by_job.len(),
        incidents: by_job.into_values().map(occurrences).sum(),
    }
}

/// Counts incidents of one job; those that overlap count once.
fn occurrences(mut of_job: Vec<&PastCulprit>) -> usize {
    of_job.sort_by_key(|one| one.first_seen);
    let mut until: Option<Nanos> = None;
    let mut n = 0;
    for one in of_job {
        if until.is_none_or(|until| one.first_seen > until) {
            n += 1;
        }
        until = until.max(Some(one.until));
    }
    n
}

fn sentence(gpu: Option<Count>, node: Count) -> Option<String> {
    let of = |count: Count, what: &str| {
        let jobs = match (count.jobs, count.clusters) {
            (1, _) => "in one job".to_owned(),
            (n, ..=1) => format!("in {n} jobs"),
            (n, clusters) => format!("in {n} jobs of {clusters} clusters"),
        };
        let nth = ordinal(count.incidents);
        format!("{nth} incident of this {what} in {DAYS} days, {jobs}")
    };
    let gpu = gpu.filter(|gpu| gpu.incidents > 1);
    let node = Some(node).filter(|node| {
        let of_gpu = gpu.map_or(1, |gpu| gpu.incidents);
        node.incidents > of_gpu
    });
    match (gpu, node) {
        (Some(gpu), Some(node)) => Some(format!("{}; {}", of(gpu, "GPU"), of(node, "node"))),
        (Some(gpu), None) => Some(of(gpu, "GPU")),
        (None, Some(node)) => Some(of(node, "node")),
        (None, None) => None,
    }
}

fn ordinal(n: usize) -> String {
    let words = [
        "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth",
    ];
    if let Some(word) = n.checked_sub(1).and_then(|index| words.get(index)) {
        return (*word).to_owned();
    }
    let suffix = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{n}{suffix}")
}

#[cfg(test)]
mod tests;
