//! Assignment of GPU operations to communicators, including processes that created their
//! communicators before the agent started.

use crate::discover::{AdoptedComm, CommIndex};
use crate::event::{CommState, GpuOperation};
use crate::pipeline::Pipeline;
use crate::signal::CommId;

/// Position of a communicator among those of equal rank and size, if it is unknown.
const UNKNOWN_NTH: u32 = u32::MAX;

/// Time for which the oldest communicator is waited for, nanoseconds: most jobs use it within a step. A job
/// that does not use it in this time is named after a younger one.
pub(super) const JOB_SEARCH_NS: u64 = 10_000_000_000;

impl Pipeline {
    /// Returns the first communicator that spans the whole job, which identifies the job.
    pub fn job(&self) -> Option<CommId> {
        self.job
    }

    /// Returns whether the job will keep its name. An agent that is younger than the job may know a
    /// younger communicator first, and would give the job two names.
    pub fn is_job_settled(&mut self, now_ns: u64) -> bool {
        let is_settled = match self.adopted_job {
            Some((nth, _)) => nth == 0,
            None => self.table.is_complete(),
        };
        if is_settled {
            return true;
        }
        let since_ns = *self.job_unsettled_ns.get_or_insert(now_ns);
        let is_searched = now_ns.saturating_sub(since_ns) >= JOB_SEARCH_NS;
        if is_searched && self.job.is_none() {
            self.job = self.transfer_job.map(|(_, id)| CommId::new(id));
        }
        is_searched
    }

    /// Returns the communicator of a completed operation; `None` while it is unknown, and for
    /// operations issued before it was known.
    pub(super) fn comm_of(&mut self, operation: &GpuOperation) -> Option<CommIndex> {
        if let Some(known) = self.gpu.find(operation, self.table.comms()) {
            if self.table.is_adopted(known)
                && let Some(adopted) = self.table.adopt(operation)
            {
                self.register_adopted(adopted, operation.nth);
            }
            return self.gpu.is_counted(known, operation.seq).then_some(known);
        }
        if let Some(nth) = self.known_comm_of(operation) {
            return Some(nth);
        }
        let adopted = match self.table.adopt(operation) {
            Some(adopted) => adopted,
            // No call issues what a graph replays: only its rows identify the communicator.
            None if self.gpu.is_replayed(operation) => self.table.adopt_replayed(operation)?,
            None => return None,
        };
        self.gpu.remember(operation, adopted.index);
        self.register_adopted(adopted, operation.nth);
        self.gpu
            .is_counted(adopted.index, operation.seq)
            .then_some(adopted.index)
    }

    /// Returns the communicator of a completed operation, if it is already known.
    pub(super) fn known_comm_of(&mut self, operation: &GpuOperation) -> Option<CommIndex> {
        let known = self.gpu.find(operation, self.table.comms());
        let is_complete = self.table.is_complete();
        known.or_else(|| {
            let nth = || self.gpu.find_nth(operation, self.table.comms());
            is_complete.then(nth).flatten()
        })
    }

    /// Processes the state of a communicator older than the agent.
    pub fn on_comm_state(&mut self, state: &CommState) {
        if let Some(adopted) = self.table.adopt_state(state) {
            self.register_adopted(adopted, UNKNOWN_NTH);
        }
    }

    /// Processes a transfer of a communicator that is not known. NCCL does not number transfers alike on all ranks,
    /// so their calls are not followed, and the job is judged by their records. They name a job that has no other
    /// name once it was searched for.
    pub(super) fn on_unnumbered(&mut self, transfer: &GpuOperation) {
        if self.table.is_complete() || transfer.timer.is_none() {
            return;
        }
        self.table.note_recorded_transfers();
        let nranks = transfer.nranks;
        if nranks > 1 && nranks == self.process.world_size {
            let age = (transfer.nth, transfer.comm_id);
            let known = self.transfer_job.get_or_insert(age);
            *known = age.min(*known);
        }
    }

    /// Registers an adopted communicator, the n-th of its rank and size.
    fn register_adopted(&mut self, adopted: AdoptedComm, nth: u32) {
        let Some(next) = adopted.next else { return };
        self.gpu.count_from(adopted.index, next);
        let comm = self.table.comms().get(adopted.index.position());
        let Some(comm) = comm.filter(|comm| comm.nranks == self.process.world_size) else {
            return;
        };
        // All ranks have to name the job alike, whichever of its communicators they use first: the
        // oldest names it, and among those of unknown age the one with the smallest identity.
        let age = (nth, comm.id.to_bits());
        let is_older = match self.adopted_job {
            Some(known) => age < known,
            None => nth == 0 || self.job.is_none(),
        };
        if is_older {
            (self.adopted_job, self.job) = (Some(age), Some(comm.id));
        }
    }
}
