//! Reports of the ranks of one job.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use echo_core::ids::{Rank, RankInJob, RoleId};
use echo_core::model::event::{Block, Event, Source, StoredEvent};
use echo_core::units::Nanos;
use fleet_proto::metric;

use super::CohortBlock;
use super::open_blocks::OpenBlocks;
use super::progress::Progress;
use super::rank_owners::RankOwners;
use super::transfers::{Host, Transfers};

/// Maximum number of roles of a job at a time. A job with more roles does not repeat them.
pub(super) const MAX_ROLES: usize = 256;

/// Maximum number of closed blocks of a job that are held back to keep the order.
pub(super) const MAX_HELD: usize = 1_024;

/// Tolerance when iterations of different roles are compared: they are counted from different
/// operations, so they are not exactly equal.
const HALF_ITERATION: f64 = 0.5;

#[derive(Debug, Default)]
pub(super) struct Job {
    pub(super) world_size: usize,
    /// Arrival of the first report about a block.
    first_enrolled: Option<Nanos>,
    pub(super) last_received: Nanos,
    /// Role of each rank that has reported a block.
    pub(super) roles: BTreeMap<Rank, RoleId>,
    /// The ranks of each role; no role without ranks.
    pub(super) members: BTreeMap<RoleId, BTreeSet<Rank>>,
    /// True if a rank has changed its role since the last check.
    pub(super) roles_changed: bool,
    /// Ranks whose operations have no sequence numbers, because their agent was started after the
    /// communicator. They count for coverage and are not awaited.
    pub(super) unnumbered: BTreeSet<Rank>,
    pub(super) cohorts: BTreeMap<RoleId, OpenBlocks>,
    pub(super) ready: BTreeMap<RoleId, VecDeque<CohortBlock>>,
    pub(super) reached: BTreeMap<RoleId, f64>,
    pub(super) transfers: Transfers,
    pub(super) progress: Progress,
    pub(super) owners: RankOwners,
}

/// A point that the detector uses.
pub(super) struct BlockEvent<'e> {
    block: &'e Block,
    rank: Rank,
    role: Option<RoleId>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Measurement of the whole rank, in blocks of its busiest communicator.
    Whole,
    /// Time inside collectives, by a GPU.
    Transfer,
    /// Progress of the rank.
    Progress,
}

impl<'e> BlockEvent<'e> {
    pub(super) fn from_event(event: &'e Event) -> Option<Self> {
        let block = event.block.as_ref()?;
        let kind = match event.metric.as_str() {
            metric::HOST_GAP
            | metric::BLOCKED
            | metric::PERIOD
            | metric::ELAPSED
            | metric::ARRIVAL => Kind::Whole,
            metric::WAIT if block.source == Source::Device => Kind::Transfer,
            metric::ISSUED => Kind::Progress,
            _ => return None,
        };
        Some(Self {
            block,
            rank: event.origin.rank?.rank(),
            role: block.role,
            kind,
        })
    }
}

impl Job {
    /// Adds a point; returns false if its block has already been closed. Points of a node that does
    /// not own the rank are ignored.
    pub(super) fn add(&mut self, stored: &StoredEvent, block_event: &BlockEvent<'_>) -> bool {
        let (event, block, rank) = (&stored.event, block_event.block, block_event.rank);
        if !self.owners.admit(rank, event, stored.received) {
            return true;
        }
        self.last_received = self.last_received.max(stored.received);
        self.progress
            .record_report(rank, &event.origin, stored.received);
        if block_event.kind == Kind::Progress {
            self.progress.add(block, rank, event, stored.received);
            return true;
        }
        let Some(role) = block_event.role else {
            return true;
        };
        let is_new = !self.cohorts.contains_key(&role);
        if is_new && self.cohorts.len() >= MAX_ROLES {
            self.remove_idle_roles();
            if self.cohorts.len() >= MAX_ROLES {
                return false;
            }
        }
        if block_event.kind == Kind::Transfer {
            let n_ranks = self.roles.len();
            return self.transfers.add(event, block, rank, n_ranks);
        }
        self.enrol(stored, rank, role);
        if block.seqs.is_none() {
            self.unnumbered.insert(rank);
            return true;
        }
        self.unnumbered.remove(&rank);
        self.cohorts
            .entry(role)
            .or_default()
            .add(event, block, rank)
    }

    /// Closes the blocks that all awaited ranks of a role have passed.
    pub(super) fn close(&mut self, silence_ms: f64) {
        let n_roles = self.members.len();
        let no_members = BTreeSet::new();
        let mut cohorts = std::mem::take(&mut self.cohorts);
        for (role, cohort) in &mut cohorts {
            let members = self.members.get(role).unwrap_or(&no_members);
            let n_expected = if n_roles == 1 {
                self.world_size.max(members.len())
            } else {
                members.len()
            };
            let is_awaited = |rank: Rank| self.is_awaited(rank, silence_ms);
            let mut closed = Vec::new();
            while let Some(block) = cohort.close_next((members, &is_awaited), n_expected) {
                closed.push(block);
            }
            for (mut block, begins) in closed {
                let host = Host {
                    seqs: block.seqs,
                    ranks: &begins,
                };
                let peers = begins.keys().copied().collect();
                block.transfers = self.transfers.take(host, &peers);
                self.reached.insert(*role, block.end_iteration());
                self.ready.entry(*role).or_default().push_back(block);
            }
        }
        self.cohorts = cohorts;
    }

    /// Records that a rank has reported a block. A heartbeat is not enough: the members of a cohort
    /// must not depend on the order of heartbeats.
    fn enrol(&mut self, stored: &StoredEvent, rank: Rank, role: RoleId) {
        self.first_enrolled.get_or_insert(stored.received);
        let before = self.roles.insert(rank, role);
        if before != Some(role) {
            self.members.entry(role).or_default().insert(rank);
        }
        if let Some(left) = before.filter(|before| *before != role) {
            self.roles_changed = true;
            if let Some(members) = self.members.get_mut(&left) {
                members.remove(&rank);
            }
            self.members.retain(|_, members| !members.is_empty());
        }
        let size = stored.event.origin.rank.and_then(RankInJob::world_size);
        self.world_size = self
            .world_size
            .max(size.and_then(|n| usize::try_from(n).ok()).unwrap_or(0));
    }

    /// Removes and returns the block that ends first, once every reporting role has reached its
    /// end.
    pub(super) fn release(&mut self, silence_ms: f64) -> Option<(RoleId, CohortBlock)> {
        let ends = self.ready.iter().filter_map(|(role, blocks)| {
            let end = blocks.front()?.end_iteration();
            Some((*role, end))
        });
        let (role, end) = ends.min_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)))?;
        let lags_behind = |other: &RoleId| {
            let reached = self.reached.get(other);
            reached.is_some_and(|reached| *reached + HALF_ITERATION < end)
        };
        let behind = self.members.iter().filter(|(other, _)| lags_behind(other));
        let mut behind = behind.flat_map(|(_, members)| members);
        let is_waited_for = behind.any(|rank| self.is_awaited(*rank, silence_ms));
        let n_held: usize = self.ready.values().map(VecDeque::len).sum();
        if is_waited_for && n_held <= MAX_HELD {
            return None;
        }
        let block = self.ready.get_mut(&role)?.pop_front()?;
        Some((role, block))
    }

    /// Removes roles that no rank has any more.
    fn remove_idle_roles(&mut self) {
        let used = &self.members;
        self.cohorts.retain(|role, _| used.contains_key(role));
        self.ready.retain(|role, _| used.contains_key(role));
        self.reached.retain(|role, _| used.contains_key(role));
    }

    /// Returns true if every rank of the world has reported a block, or the time for it is over. No
    /// block is closed before: the members of a cohort must not depend on the order of reports.
    pub(super) fn is_assembled(&self, silence_ms: f64) -> bool {
        let had_time = || {
            let first = self.first_enrolled;
            first.is_some_and(|first| self.is_past(first, silence_ms))
        };
        self.roles.len() >= self.world_size || had_time()
    }

    /// Returns true if blocks wait for the rank: it is alive, and its operations are numbered.
    fn is_awaited(&self, rank: Rank, silence_ms: f64) -> bool {
        let last_report = self.progress.alive(rank);
        last_report.is_some_and(|last_report| !self.is_past(last_report, silence_ms))
            && !self.unnumbered.contains(&rank)
    }

    fn is_past(&self, instant: Nanos, silence_ms: f64) -> bool {
        self.last_received.millis_since(instant) > silence_ms
    }
}
