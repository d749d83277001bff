//! Transfers between two ranks, such as those of a pipeline's stages.
//!
//! A transfer has no number that all ranks of the communicator know, but its two ends count alike what goes from one to the other.
//! So each direction between two ranks is followed as a communicator of its own, with two ranks.

use std::collections::{HashMap, VecDeque};

use crate::correlate::{OpRef, PeerSide, Scope};
use crate::discover::{CommIndex, CommTable};
use crate::event::{GpuOperation, Op, Operation};

/// Transfers of one communicator whose times may be outstanding.
const MAX_OUTSTANDING: usize = 4096;

/// A transfer whose times have not come this long after it was issued was lost, nanoseconds.
const LOST_AFTER_NS: u64 = 60_000_000_000;

/// A record of the GPU names a time up to this much before the call that it belongs to, nanoseconds.
const TOLERANCE_NS: u64 = 1_000_000;

/// Follows the transfers of one process.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    outstanding: HashMap<(CommIndex, Op), VecDeque<(OpRef, u64)>>,
    is_disabled: bool,
}

impl Transfers {
    /// The channel that a transfer on `parent` takes, and where its other end lies; nothing where that is not known.
    pub(super) fn channel(
        &self,
        table: &mut CommTable,
        parent: CommIndex,
        operation: Operation,
    ) -> Option<(CommIndex, Scope)> {
        let peer = operation.peer.filter(|_| !self.is_disabled)?;
        let own = table.comms().get(parent.position())?.rank;
        let ends = match operation.op {
            Op::Send => (own, peer),
            _ => (peer, own),
        };
        let peer_side = if peer > own {
            PeerSide::Higher
        } else {
            PeerSide::Lower
        };
        let scope = Scope {
            nranks: 2,
            peer_side: Some(peer_side),
        };
        Some((table.channel(parent, ends)?, scope))
    }

    /// Takes a transfer that was issued.
    pub(super) fn record_issued(&mut self, parent: CommIndex, at: OpRef, entry_ns: u64) {
        let outstanding = self.outstanding.entry((parent, at.op)).or_default();
        outstanding.push_back((at, entry_ns));
        if outstanding.len() > MAX_OUTSTANDING {
            outstanding.pop_front();
        }
    }

    /// The transfer that has run: those of one communicator and kind run in the order in which they were issued.
    pub(super) fn match_completed(
        &mut self,
        parent: CommIndex,
        operation: &GpuOperation,
    ) -> Option<OpRef> {
        let outstanding = self.outstanding.get_mut(&(parent, operation.op))?;
        let is_lost = |(_, entry_ns): &mut (OpRef, u64)| {
            operation.host_ns.saturating_sub(*entry_ns) > LOST_AFTER_NS
        };
        while outstanding.pop_front_if(is_lost).is_some() {}
        let is_own =
            |(_, entry_ns): &mut (OpRef, u64)| *entry_ns <= operation.host_ns + TOLERANCE_NS;
        outstanding.pop_front_if(is_own).map(|(at, _)| at)
    }

    /// Gives up counting: a transfer may have been lost, and the two ends would no longer count alike.
    pub(super) fn disable(&mut self) {
        self.is_disabled = true;
        self.outstanding.clear();
    }
}
