//! Costs by job and Kubernetes namespace, for chargeback.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use echo_analysis::cost::Loss;
use echo_core::ids::{ClusterId, IncidentId, JobId, NodeId};
use echo_core::model::detector_output::Incident;

use super::answer::JobCost;
use super::bill::{Bill, amount, largest_first};
use crate::quality::Presence;

/// Job to which lost time is charged, with the namespace of its ranks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChargedJob {
    cluster: ClusterId,
    job: Option<JobId>,
    namespace: Option<Arc<str>>,
}

/// Jobs and namespaces to which lost time can be charged.
pub(super) struct Chargeback<'a> {
    incidents: &'a BTreeMap<IncidentId, Incident>,
    namespaces: Namespaces,
}

impl<'a> Chargeback<'a> {
    /// Builds it from the incidents of the losses and the ranks that reported in the window.
    pub(super) fn new(incidents: &'a BTreeMap<IncidentId, Incident>, presence: &Presence) -> Self {
        Self {
            incidents,
            namespaces: Namespaces::new(presence),
        }
    }

    /// Returns the costs of each job and namespace, largest first.
    pub(super) fn by_job(&self, bill: &Bill<'_>) -> Vec<JobCost> {
        largest_first(bill.sum_by(|item| self.charged(&item.loss)))
            .map(|((charged, currency), sum)| JobCost {
                cluster: charged.cluster.to_string(),
                job: charged.job.map(|job| job.to_string()),
                namespace: charged.namespace.as_deref().map(str::to_owned),
                amount: amount(currency, sum),
            })
            .collect()
    }

    /// Returns the job of the incident that caused the loss. The job of an incident that is no
    /// longer stored is unknown, and so is its namespace.
    fn charged(&self, loss: &Loss) -> ChargedJob {
        let incident = self.incidents.get(&loss.incident);
        let job = incident.and_then(|incident| incident.job.clone());
        let namespace = incident.and_then(|_| self.namespaces.find(loss, job.as_ref()));
        ChargedJob {
            cluster: loss.cluster.clone(),
            job,
            namespace,
        }
    }
}

/// Namespaces of ranks, by job and node.
#[derive(Debug, Default)]
struct Namespaces {
    on_node: BTreeMap<(ClusterId, Option<JobId>, NodeId), BTreeSet<Arc<str>>>,
    of_job: BTreeMap<(ClusterId, JobId), BTreeSet<Arc<str>>>,
}

impl Namespaces {
    fn new(presence: &Presence) -> Self {
        let mut namespaces = Self::default();
        for origin in presence.reporting_ranks() {
            let Some(namespace) = &origin.namespace else {
                continue;
            };
            let (cluster, node) = (origin.cluster.clone(), origin.node.clone());
            if let Some(job) = origin.job.clone() {
                let of_job = namespaces.of_job.entry((cluster.clone(), job)).or_default();
                of_job.insert(Arc::clone(namespace));
            }
            let key = (cluster, origin.job.clone(), node);
            let on_node = namespaces.on_node.entry(key).or_default();
            on_node.insert(Arc::clone(namespace));
        }
        namespaces
    }

    /// Returns the namespace of the job's ranks on the node of the loss. Where none of them
    /// reported one, the job may have it on other nodes; jobs without an id are not the same job
    /// on all nodes. `None` if it is unknown or not unique.
    fn find(&self, loss: &Loss, job: Option<&JobId>) -> Option<Arc<str>> {
        let cluster = loss.cluster.clone();
        let key = (cluster.clone(), job.cloned(), loss.node.clone());
        match self.on_node.get(&key) {
            Some(on_node) => only(on_node),
            None => only(self.of_job.get(&(cluster, job?.clone()))?),
        }
    }
}

/// Returns the only element; `None` if there are several.
fn only(namespaces: &BTreeSet<Arc<str>>) -> Option<Arc<str>> {
    let first = namespaces.first()?;
    (namespaces.len() == 1).then(|| Arc::clone(first))
}

#[cfg(test)]
mod tests;
