//! Progress of the ranks of a job, from one answer.

use std::collections::{BTreeMap, BTreeSet};

use crate::ras::agreement::Agreement;
use crate::ras::homes::Homes;
use crate::ras::{CommStatus, Status};
use crate::signal::CommId;

/// Progress of the ranks of a communicator. Ranks are those of the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommProgress {
    /// The communicator.
    pub comm: CommId,
    /// Number of operations that each rank has launched in agreement with its peers.
    pub launched: BTreeMap<u32, u64>,
    /// Ranks whose process did not answer.
    pub silent: BTreeSet<u32>,
}

/// Returns the progress in each communicator that has run operations.
pub fn progress(status: &Status) -> Vec<CommProgress> {
    let homes = Homes::new(status);
    let progress = |comm: &CommStatus| {
        let agreement = Agreement::new(comm)?;
        let rank = |member| homes.home(comm, member).rank;
        let launched = comm.active();
        let launched = launched.map(|own| (rank(&own.member), agreement.progress(own)));
        Some(CommProgress {
            comm: homes.comm_id(comm),
            launched: launched.collect(),
            silent: comm.missing.iter().map(rank).collect(),
        })
    };
    status.comms.iter().filter_map(progress).collect()
}
