//! What the cohorts of a job have to know of one another.

use std::collections::BTreeSet;

use echo_core::ids::Rank;

use crate::pace::shift::Shift;

/// What the other cohorts of the job have to know of one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CohortState {
    /// What its root candidate waits less than its role peers, milliseconds per iteration; 0 for none.
    pub root_own_ms: f64,
    /// Its ranks that are late only because they wait.
    pub victims: BTreeSet<Rank>,
    /// How late the latest rank is that waits as long as its peers, milliseconds per iteration; 0 for none.
    pub victim_lag_ms: f64,
    /// Time that its GPUs computed in the order of their ranks, milliseconds per iteration. Empty unless all tell.
    pub busy_ms: Vec<f64>,
    /// Whether an open incident of it shows why the whole job is slow: a late rank or a slow network.
    pub explains: bool,
    /// Whether anything is open in it: what the others see meanwhile is not healthy.
    pub is_disturbed: bool,
    /// How the waiting of its ranks has changed since the job became slow; empty while it is not.
    pub shifts: Vec<Shift>,
}

/// What a cohort has to know of the others of its job.
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
    /// How much longer the GPUs of this role compute than is typical, milliseconds per iteration; 0 for none.
    pub stage_excess_ms: f64,
    /// Whether another cohort shows why the job is slow, or speaks for the job where nothing does.
    pub is_explained: bool,
    /// Whether an incident is open in another cohort.
    pub is_disturbed: bool,
    /// How the waiting of the ranks of the others has changed since the job became slow.
    pub shifts: Vec<Shift>,
}
