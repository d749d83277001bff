//! Point-to-point transfers, such as those between pipeline stages.
//!
//! A transfer has no number that all ranks of the communicator know, but its two ends count the
//! transfers of one direction alike. So each direction between two ranks is tracked as a
//! communicator of its own, with two ranks.

use std::collections::{HashMap, VecDeque};

use crate::correlate::{OpRef, PeerSide, Scope};
use crate::discover::{CommIndex, CommTable};
use crate::event::{GpuOperation, Op, Operation};

/// Maximum number of transfers per communicator without times.
const MAX_OUTSTANDING: usize = 4096;

/// Time after which a transfer without times counts as lost, nanoseconds.
const LOST_AFTER_NS: u64 = 60_000_000_000;

/// Maximum lead of a GPU record's host time over the call that it belongs to, nanoseconds.
const TOLERANCE_NS: u64 = 1_000_000;

/// Transfers of one process.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    outstanding: HashMap<(CommIndex, Op), VecDeque<(OpRef, u64)>>,
    is_disabled: bool,
}

impl Transfers {
    /// Returns the channel of a transfer on `parent` and the side of its peer; `None` if unknown.
    pub(super) fn channel(
        &self,
        table: &mut CommTable,
        parent: CommIndex,
        operation: Operation,
    ) -> Option<(CommIndex, Scope)> {
        let peer = operation.peer.filter(|_| !self.is_disabled)?;
        let own = table.comms().get(parent.position())?.rank;
        let (from, to) = match operation.op {
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
        Some((table.channel(parent, from, to)?, scope))
    }

    /// Records an issued transfer.
    pub(super) fn record_issued(&mut self, parent: CommIndex, at: OpRef, entry_ns: u64) {
        let outstanding = self.outstanding.entry((parent, at.op)).or_default();
        outstanding.push_back((at, entry_ns));
        if outstanding.len() > MAX_OUTSTANDING {
            outstanding.pop_front();
        }
    }

    /// Returns the transfer that has completed: transfers of one communicator and kind run in the
    /// order in which they were issued.
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

    /// Stops counting: a transfer may have been lost, and the two ends would no longer count alike.
    pub(super) fn disable(&mut self) {
        self.is_disabled = true;
        self.outstanding.clear();
    }
}
