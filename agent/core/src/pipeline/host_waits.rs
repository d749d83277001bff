//! Waits of the host, summed over blocks of operations.

use crate::correlate::{Observation, OpRef};
use crate::pipeline::Pipeline;

impl Pipeline {
    /// Adds an observation to the sums.
    pub(super) fn sum_waits(&mut self, observation: &Observation) {
        let comms = self.table.comms();
        let comm_of = |at: OpRef| comms.get(at.comm.position());
        match observation {
            Observation::Issued(issued) => {
                if let Some(comm) = comm_of(issued.at) {
                    self.host_waits.record_issued(issued, comm);
                }
            }
            Observation::WaitBegan { tid } => self.host_waits.begin_wait(*tid),
            Observation::Waited(waited) => {
                let comm = waited.covers.and_then(comm_of);
                self.host_waits.record_wait(waited, comm);
            }
            Observation::Completed(_)
            | Observation::TransferTime { .. }
            | Observation::Active(_) => {}
        }
    }
}
