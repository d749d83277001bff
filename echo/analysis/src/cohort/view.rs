//! State shared between the cohorts of a job.

use std::collections::BTreeSet;

use echo_core::ids::Rank;

use crate::pace::shift::Shift;

/// State of one cohort that the other cohorts of the job need.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CohortState {
    /// Reduction of its root candidate's wait compared with role peers, milliseconds per iteration;
    /// 0 for none.
    pub root_own_ms: f64,
    /// Its ranks that are late only because they wait.
    pub victims: BTreeSet<Rank>,
    /// Lag of the latest rank that waits as long as its peers, milliseconds per iteration; 0 for
    /// none.
    pub victim_lag_ms: f64,
    /// Compute time of its GPUs in the order of their ranks, milliseconds per iteration. Empty
    /// unless all report it.
    pub busy_ms: Vec<f64>,
    /// True if an open incident of it shows why the whole job is slow: a late rank or a slow
    /// network.
    pub explains: bool,
    /// True if an incident is open in it: the blocks of the others do not count as healthy then.
    pub is_disturbed: bool,
    /// Changes in its ranks' waits since the job became slow; empty while the job is not slow.
    pub shifts: Vec<Shift>,
}

/// State of the job's other cohorts that a cohort needs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobView {
    /// Ranks of the whole job.
    pub n_ranks: usize,
    /// The largest [`CohortState::root_own_ms`] among the others.
    pub rival_own_ms: f64,
    /// Victims in the others.
    pub victims: BTreeSet<Rank>,
    /// The largest [`CohortState::victim_lag_ms`] among the others.
    pub victim_lag_ms: f64,
    /// Excess compute time of this role's GPUs over the typical one, milliseconds per iteration; 0
    /// for none.
    pub stage_excess_ms: f64,
    /// True if another cohort explains why the job is slow, or already reports the slowdown without
    /// a cause.
    pub is_explained: bool,
    /// True if an incident is open in another cohort.
    pub is_disturbed: bool,
    /// Changes in the other cohorts' waits since the job became slow.
    pub shifts: Vec<Shift>,
}
