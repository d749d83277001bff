//! Lag of each rank behind its peers over a window of blocks. Needs no common clock.
//!
//! * *Host gap*: from the return of a rank's blocking synchronisation to its next collective,
//!   compared with the median of the peers (the lower one of two, see
//!   [`echo_core::stats::lower_median`]). The GPU has nothing queued at that moment, so a late host
//!   delays it by the whole lag.
//! * *Wait*: in a blocking collective the last rank to arrive waits least, so `median(waits) - own
//!   wait` is a lag as well. It is used for a rank whose synchronisations no longer wait at all.
//! * *Arrival*: for jobs that do not synchronise every iteration, the entry times of the same
//!   operations, each on a clock that starts at the last completion common to all ranks.
//! * *Device wait*: the same as *wait*, by the GPU's own timestamps. All members leave a blocking
//!   collective together, so differences in the time spent inside are differences in arrival.

use echo_core::ids::Rank;
use echo_core::model::detector_output::Signal;
use echo_core::model::event::Summary;
use echo_core::stats::median;

use crate::assembly::{CohortBlock, Member, Transfer};

mod arrival;
mod by_rank;
mod device;
mod gap;

use by_rank::ByRank;

/// Lag of one rank over a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lag {
    /// Rank.
    pub rank: Rank,
    /// Mean lag behind the median of the peers: milliseconds per iteration, or milliseconds at one
    /// operation for arrivals.
    pub mean_ms: f64,
}

/// Lags of all ranks over a window, all measured by the same signal.
#[derive(Debug, Clone, PartialEq)]
pub struct Lags {
    /// Signal by which the cohort is compared.
    pub signal: Signal,
    /// One entry per rank that can be compared, in the order of their ranks.
    pub ranks: Vec<Lag>,
    /// Median of the members' own signal, milliseconds per iteration (or at one operation for
    /// arrivals).
    pub center_ms: f64,
}

/// Selects the signal for a cohort: GPU measurements if most of the ranks report them, else host
/// gaps if it synchronises in at least half of its iterations, else arrivals.
pub fn suited_signal(blocks: &[&CohortBlock]) -> Signal {
    if device::is_measured(blocks) {
        return Signal::DeviceWait;
    }
    let iterations: f64 = blocks.iter().map(|block| block.iterations).sum();
    let gaps = Totals::from_blocks(blocks, |member| member.gap);
    if gaps.typical_count() >= iterations / 2.0 {
        Signal::HostGap
    } else {
        Signal::Arrival
    }
}

/// Lags over the blocks of a window, taken from the given signal (waits stand in for missing host
/// gaps); `None` when the blocks do not carry it.
pub fn lags(signal: Signal, blocks: &[&CohortBlock]) -> Option<Lags> {
    match signal {
        Signal::HostGap | Signal::Wait => gap::lags(blocks),
        Signal::Arrival => arrival::lags(blocks),
        Signal::DeviceWait => device::lags(blocks),
    }
}

/// Lags of the ranks in one block of one kind of collective by the GPUs, milliseconds per
/// iteration; `None` when fewer than two can be compared.
pub fn transfer_lags(transfer: &Transfer) -> Option<Vec<(Rank, f64)>> {
    let lags = device::compared(transfer)?.lags;
    let per_iteration = |(rank, lag_ms)| (rank, lag_ms / transfer.iterations);
    Some(lags.into_iter().map(per_iteration).collect())
}

/// Sums of one histogram signal per rank over a window.
struct Totals(ByRank<Total>);

#[derive(Default)]
struct Total {
    count: f64,
    sum: f64,
    /// Blocks in which the rank reported anything at all.
    n_blocks: f64,
}

impl Totals {
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of one window stay far below 2^53"
    )]
    fn from_blocks(blocks: &[&CohortBlock], signal: impl Fn(&Member) -> Option<Summary>) -> Self {
        let mut totals = ByRank::default();
        for block in blocks {
            let mut pass = totals.pass();
            for member in &block.members {
                let total = pass.entry(member.rank, Total::default);
                total.n_blocks += 1.0;
                if let Some(summary) = signal(member) {
                    total.count += summary.count as f64;
                    total.sum += summary.sum;
                }
            }
        }
        Self(totals)
    }

    /// Median number of samples per rank.
    fn typical_count(&self) -> f64 {
        let counts: Vec<f64> = self.0.values().map(|total| total.count).collect();
        median(&counts).unwrap_or(0.0)
    }

    /// Returns the mean for each rank with at least half of the typical number of samples.
    fn means(&self) -> ByRank<f64> {
        let enough = (self.typical_count() / 2.0).max(1.0);
        let comparable = self.0.iter().filter(|(_, total)| total.count >= enough);
        comparable
            .map(|(rank, total)| (rank, total.sum / total.count))
            .collect()
    }
}

#[cfg(test)]
mod tests;
