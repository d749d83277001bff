//! Causal chains of the peers of a process: the other ranks of its job.

use std::collections::{BTreeMap, BTreeSet};

use echo_core::ids::{ClusterId, JobId, Rank};
use echo_core::stats::median;
use echo_core::units::Window;
use echo_store::process_reports::{ChainState, ProcessKey, ProcessQuery, ProcessSeen};
use schemars::JsonSchema;
use serde::Serialize;

use super::filter::MAX_PROCESSES;
use crate::ToolError;
use crate::scope::Scope;

/// The same cause on the other ranks of the job.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PeerShares {
    /// Other ranks of the job that reported on their processes.
    pub ranks: usize,
    /// Those with the same cause.
    pub with_cause: usize,
    /// Median of the shares of time that they lost to it, 0 for a rank without it; null without
    /// peers.
    pub median_share: Option<f64>,
}

type JobKey = (ClusterId, Option<JobId>);

/// Shares of time that the ranks of jobs lost to causes.
#[derive(Debug, Default)]
pub(super) struct Peers {
    ranks: BTreeMap<JobKey, BTreeSet<Rank>>,
    shares: BTreeMap<(JobKey, String), BTreeMap<Rank, f64>>,
}

impl Peers {
    /// Loads the chains of the peers of the processes; without ranks there is nothing to load.
    pub(super) async fn load(
        scope: &Scope<'_>,
        window: Window,
        chains: &[ChainState],
    ) -> Result<Self, ToolError> {
        if chains.iter().all(|chain| chain.process.rank.is_none()) {
            return Ok(Self::default());
        }
        let jobs: BTreeSet<&JobId> = chains
            .iter()
            .filter_map(|chain| chain.process.job.as_ref())
            .collect();
        let mut jobs = jobs.into_iter();
        let query = ProcessQuery {
            cluster: scope.cluster.clone(),
            job: match (jobs.next(), jobs.next()) {
                (Some(only), None) => Some(only.clone()),
                _ => None,
            },
            ..ProcessQuery::new(window, MAX_PROCESSES)
        };
        let store = &scope.context.store;
        let seen = store.processes(query.clone()).await?;
        Ok(Self::new(&seen, store.chains(query).await?))
    }

    fn new(seen: &[ProcessSeen], chains: Vec<ChainState>) -> Self {
        let mut peers = Self::default();
        for process in seen.iter().map(|seen| &seen.process) {
            if let Some(rank) = process.rank {
                peers.ranks.entry(job_of(process)).or_default().insert(rank);
            }
        }
        for chain in chains {
            if let Some((rank, share)) = chain.process.rank.zip(chain.share) {
                let key = (job_of(&chain.process), chain.cause);
                let known = peers.shares.entry(key).or_default().entry(rank);
                let known = known.or_default();
                *known = known.max(share);
            }
        }
        peers
    }

    /// Compares a chain with the same cause on the other ranks; `None` for a process without a rank.
    pub(super) fn of(&self, chain: &ChainState) -> Option<PeerShares> {
        let own = chain.process.rank?;
        let job = job_of(&chain.process);
        let ranks = self.ranks.get(&job);
        let others = ranks.into_iter().flatten().filter(|rank| **rank != own);
        let with_cause = self.shares.get(&(job, chain.cause.clone()));
        let share = |rank: &Rank| with_cause.and_then(|shares| shares.get(rank)).copied();
        let shares: Vec<Option<f64>> = others.map(share).collect();
        let known: Vec<f64> = shares.iter().map(|share| share.unwrap_or(0.0)).collect();
        Some(PeerShares {
            ranks: shares.len(),
            with_cause: shares.iter().flatten().count(),
            median_share: median(&known),
        })
    }
}

fn job_of(process: &ProcessKey) -> JobKey {
    (process.cluster.clone(), process.job.clone())
}
