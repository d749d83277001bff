//! Names and figures of a job that its incidents need.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use echo_core::ids::{Rank, RankInJob};
use echo_core::model::detector_output::CauseClass;
use echo_core::model::event::{Origin, Source};
use echo_core::model::inputs::{Inputs, RankWaiting};
use echo_core::units::Window;

use super::host_time::{HostTime, is_late_host};
use crate::assembly::CohortKey;
use crate::iteration_clock::IterationClock;
use crate::straggler::block::ProcessKey;
use crate::straggler::class::Class;
use crate::straggler::incident::{Finding, Incident, RankOfJob};
use crate::straggler::peers::PeerComparison;

/// What is known of a job besides its durations.
#[derive(Debug)]
pub(super) struct JobContext<'a> {
    pub(super) key: CohortKey,
    pub(super) origins: &'a BTreeMap<ProcessKey, Arc<Origin>>,
    pub(super) host_times: &'a HashMap<ProcessKey, HostTime>,
    pub(super) members: Vec<Arc<Origin>>,
    /// What measures its ranks.
    pub(super) source: Source,
    pub(super) iterations: Option<&'a IterationClock>,
    /// Times in which the job hung.
    pub(super) hung: Vec<Window>,
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

    /// Class of a named rank. Where the queues of the GPUs tell nothing, because they are not timed or
    /// because hosts do not run ahead, a host can be shown to be late, and nothing else.
    pub(super) fn class(&self, found: &Incident, rank: &RankOfJob) -> CauseClass {
        match found.class {
            Class::Host => CauseClass::Host,
            Class::Device => CauseClass::Device,
            Class::Network => CauseClass::Network,
            Class::Unknown if self.has_late_host(found, rank) => CauseClass::Host,
            Class::Unknown => CauseClass::Inconclusive,
        }
    }

    /// Ranks as they were compared; `None` without peers.
    pub(super) fn compared(&self) -> Option<Inputs> {
        let peers = self.peers.as_ref()?;
        let mut ranks: Vec<RankWaiting> = peers
            .ranks
            .iter()
            .filter_map(|peer| {
                let origin = self.origins.get(&peer.rank.process)?;
                Some(RankWaiting {
                    rank: origin.rank?.rank(),
                    caused: peer.caused,
                    usual: peer.usual,
                    z: peer.z,
                })
            })
            .collect();
        let n_ranks = u32::try_from(ranks.len()).ok()?;
        ranks.sort_by(|a, b| b.caused.total_cmp(&a.caused));
        ranks.truncate(Inputs::MAX_RANKS);
        Some(Inputs {
            center: peers.center,
            sigma: peers.sigma,
            limit: peers.limit,
            n_ranks,
            ranks,
        })
    }

    fn has_late_host(&self, found: &Incident, rank: &RankOfJob) -> bool {
        let is_peer = |process: ProcessKey| {
            let origin = self.origins.get(&process);
            process != rank.process && origin.is_some_and(|origin| origin.job == self.key.job)
        };
        let peers = self
            .host_times
            .iter()
            .filter(|(process, _)| is_peer(**process));
        let peers: Vec<&HostTime> = peers.map(|(_, time)| time).collect();
        let span = (found.since, found.until);
        let own = self.host_times.get(&rank.process);
        own.is_some_and(|own| is_late_host(own, &peers, span, found.waited_ms_per_s / 1e3))
    }
}
