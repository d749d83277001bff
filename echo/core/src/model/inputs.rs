//! Inputs of a verdict on a rank, stored with it.

use crate::ids::Rank;

/// Ranks of a job as they were compared when a rank was named, so that the verdict can be checked
/// afterwards. All values are milliseconds per second and peer.
#[derive(Debug, Clone, PartialEq)]
pub struct Inputs {
    /// Median of the waiting that the ranks cause.
    pub center: f64,
    /// Robust standard deviation of the same (MAD); `None` below three ranks.
    pub sigma: Option<f64>,
    /// A rank above it is an outlier.
    pub limit: f64,
    /// Number of ranks compared.
    pub n_ranks: u32,
    /// The ranks that cause most waiting, most first; at most [`Self::MAX_RANKS`].
    pub ranks: Vec<RankWaiting>,
}

impl Inputs {
    /// Maximum number of ranks in the list.
    pub const MAX_RANKS: usize = 16;
}

/// Waiting that one rank causes, milliseconds per second and peer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankWaiting {
    /// Rank within the job.
    pub rank: Rank,
    /// Time for which each peer waited for it.
    pub caused: f64,
    /// Median of the same in its own healthy past; `None` without a past.
    pub usual: Option<f64>,
    /// Distance from the center in units of sigma.
    pub z: Option<f64>,
}
