//! Names and figures of a job that its incidents need.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use echo_core::ids::{Rank, RankInJob};
use echo_core::model::event::{Origin, Source};

use crate::assembly::CohortKey;
use crate::iteration_clock::IterationClock;
use crate::straggler::block::ProcessKey;
use crate::straggler::incident::{Finding, RankOfJob};
use crate::straggler::peers::PeerComparison;

/// What is known of a job besides its durations.
#[derive(Debug)]
pub(super) struct JobContext<'a> {
    pub(super) key: CohortKey,
    pub(super) origins: &'a BTreeMap<ProcessKey, Arc<Origin>>,
    pub(super) members: Vec<Arc<Origin>>,
    /// What measures its ranks.
    pub(super) source: Source,
    pub(super) iterations: Option<&'a IterationClock>,
    pub(super) peers: Option<PeerComparison>,
}

impl JobContext<'_> {
    /// Ranks that a finding names.
    pub(super) fn named(&self, finding: &Finding) -> BTreeSet<Rank> {
        let ranks: &[RankOfJob] = match finding {
            Finding::Rank(rank) | Finding::LateWithoutPast(rank) => std::slice::from_ref(rank),
            Finding::Node(_, ranks) => ranks,
            Finding::UniformSlowdown | Finding::Stall(_) => &[],
        };
        let origins = ranks
            .iter()
            .filter_map(|rank| self.origins.get(&rank.process));
        origins
            .filter_map(|origin| origin.rank.map(RankInJob::rank))
            .collect()
    }
}
