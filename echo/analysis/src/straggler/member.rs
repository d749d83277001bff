//! Rank of a job.

use echo_core::units::Nanos;

use crate::straggler::block::{NodeKey, ProcessKey};
use crate::straggler::measure::LeadFloor;

/// Rank of the job.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) process: ProcessKey,
    pub(super) node: NodeKey,
    /// Largest communicator of the process: its size, and the rank in it.
    pub(super) largest: (usize, u32),
    /// Latest instant that it reported, on its own clock, seconds since the origin.
    pub(super) latest: f64,
    /// Latest instant at which something was received from it.
    pub(super) heard: Nanos,
    pub(super) lead_floor: LeadFloor,
}

impl Member {
    /// Notes that something with the time `at` (seconds) was received.
    pub(super) fn hear(&mut self, at: f64, received: Nanos) {
        self.latest = self.latest.max(at);
        self.heard = self.heard.max(received);
    }
}
