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

use std::sync::Arc;

use echo_core::ids::Rank;
use echo_core::model::detector_output::Signal;
use echo_core::model::event::{Origin, Source, Summary};
use echo_core::stats::{lower_median, median, upper_median};

use crate::assembly::{CohortBlock, Member, Transfer};

mod arrival;
mod by_rank;
mod device;
mod gap;
pub mod rank_order;

use by_rank::ByRank;
use rank_order::RankPlace;

/// Maximum number of operations of an iteration that are assumed to show the same lateness again.
/// If there are more, they do not all overlap, and with a larger number a rank that is late from
/// the first iteration on would never be named.
const MOST_REPEATS: f64 = 4.0;

/// Lag of one rank over a window.
#[derive(Debug, Clone, PartialEq)]
pub struct Lag {
    /// Rank.
    pub rank: Rank,
    /// Identity of the rank.
    pub origin: Arc<Origin>,
    /// Signal from which the lag was measured.
    pub signal: Signal,
    /// Mean lag behind the median of the peers: milliseconds per iteration, or milliseconds at one
    /// operation for arrivals.
    pub mean_ms: f64,
    /// The same without the rank's largest single sample, so that one stall does not look like a
    /// steady lag.
    pub steady_ms: f64,
    /// Number of operations per iteration over which the lag is summed; 1 for the lag at one
    /// moment.
    pub operations: f64,
    /// Typical lag at the operation of a block where it is largest, milliseconds; only known from
    /// GPUs.
    pub largest_at_one_ms: Option<f64>,
    /// Standard error of the mean from block to block, milliseconds; `None` for a single block.
    pub error_ms: Option<f64>,
    /// Reduction of its blocked time compared with the median of its role peers, milliseconds per
    /// iteration: large for the rank for which the others wait, small for a rank that is late only
    /// because it waits itself.
    pub own_ms: Option<f64>,
    /// Lead over the latest rank in the one of its communicators where it is largest, milliseconds
    /// per iteration: its wait for other ranks. Only known from GPUs.
    pub waits_for_ms: Option<f64>,
    /// Rank order; only if there are too few ranks for a scale.
    pub place: Option<RankPlace>,
    /// Its lag in each block, milliseconds per iteration (at one operation for arrivals), latest
    /// block first.
    pub series: Vec<f64>,
}

impl Lag {
    /// The lag that at least half of the blocks reach, milliseconds. Pauses in a few blocks do not
    /// change it.
    pub fn typical_ms(&self) -> f64 {
        lower_median(&self.series).unwrap_or(self.mean_ms)
    }

    /// Lag that it causes itself, milliseconds per iteration: a GPU that is late at a collective
    /// may have waited elsewhere before, so the reduction of its wait compared with its peers
    /// counts for a GPU.
    pub fn own_lag_ms(&self) -> f64 {
        match self.signal {
            Signal::DeviceWait => self.own_ms.unwrap_or(self.mean_ms),
            Signal::HostGap | Signal::Wait | Signal::Arrival => self.mean_ms,
        }
    }

    /// The minimum loss of an iteration within [`Self::own_lag_ms`], milliseconds per iteration, for
    /// an unknown healthy period. Operations that overlap with computation may show the same
    /// lateness repeatedly, a single operation does not.
    pub fn certain_ms(&self) -> f64 {
        let own_lag_ms = self.own_lag_ms();
        let repeated_ms = own_lag_ms / self.operations.clamp(1.0, MOST_REPEATS);
        let at_one_ms = self.largest_at_one_ms.unwrap_or(0.0).min(own_lag_ms);
        repeated_ms.max(at_one_ms)
    }
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
    let mut lags = match signal {
        Signal::HostGap | Signal::Wait => gap::lags(blocks),
        Signal::Arrival => arrival::lags(blocks),
        Signal::DeviceWait => device::lags(blocks),
    }?;
    let owns = own_times(blocks);
    for lag in &mut lags.ranks {
        lag.own_ms = owns.get(lag.rank).copied();
    }
    rank_order::assign(signal, blocks, &mut lags.ranks);
    Some(lags)
}

/// Lags of the ranks in one block of one kind of collective by the GPUs, milliseconds per
/// iteration; `None` when fewer than two can be compared.
pub fn transfer_lags(transfer: &Transfer) -> Option<Vec<(Rank, f64)>> {
    let lags = device::compared(transfer)?.lags;
    let per_iteration = |(rank, lag_ms)| (rank, lag_ms / transfer.iterations);
    Some(lags.into_iter().map(per_iteration).collect())
}

/// Reduction of each rank's blocked time compared with the median of its peers, milliseconds per
/// iteration. Late ranks are blocked least, so the upper median is that of a healthy rank; with two
/// ranks it is that of the other one.
fn own_times(blocks: &[&CohortBlock]) -> ByRank<f64> {
    let iterations: f64 = blocks.iter().map(|block| block.iterations).sum();
    let measured_by = |source| {
        move |member: &Member| {
            member
                .blocked
                .filter(|_| member.blocked_source == Some(source))
        }
    };
    let device = Totals::from_blocks(blocks, measured_by(Source::Device));
    let totals = if device.typical_count() > 0.0 {
        device
    } else {
        Totals::from_blocks(blocks, measured_by(Source::Host))
    };
    let measured = totals.0.iter().filter(|(_, total)| total.count > 0.0);
    let blocked: Vec<(Rank, f64)> = measured
        .map(|(rank, total)| (rank, total.sum / iterations))
        .collect();
    let times: Vec<f64> = blocked.iter().map(|(_, blocked)| *blocked).collect();
    let usual = upper_median(&times);
    let own = |(rank, blocked)| Some((rank, usual? - blocked));
    blocked.into_iter().filter_map(own).collect()
}

/// Sums of one histogram signal per rank over a window.
struct Totals<'b>(ByRank<Total<'b>>);

struct Total<'b> {
    origin: &'b Arc<Origin>,
    count: f64,
    sum: f64,
    largest: f64,
    /// Blocks in which the rank reported anything at all.
    n_blocks: f64,
}

impl<'b> Totals<'b> {
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of one window stay far below 2^53"
    )]
    fn from_blocks(
        blocks: &[&'b CohortBlock],
        signal: impl Fn(&Member) -> Option<Summary>,
    ) -> Self {
        let mut totals = ByRank::default();
        for block in blocks {
            let mut pass = totals.pass();
            for member in &block.members {
                let total = pass.entry(member.rank, || Total::new(&member.origin));
                total.n_blocks += 1.0;
                if let Some(summary) = signal(member) {
                    total.count += summary.count as f64;
                    total.sum += summary.sum;
                    total.largest = total.largest.max(summary.max.unwrap_or(0.0));
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

    /// Returns the mean, and the mean without the largest sample, for each rank with at least half
    /// of the typical number of samples.
    fn means(&self) -> ByRank<(f64, f64)> {
        let enough = (self.typical_count() / 2.0).max(1.0);
        let comparable = self.0.iter().filter(|(_, total)| total.count >= enough);
        comparable
            .map(|(rank, total)| (rank, total.means()))
            .collect()
    }
}

impl<'b> Total<'b> {
    const fn new(origin: &'b Arc<Origin>) -> Self {
        Self {
            origin,
            count: 0.0,
            sum: 0.0,
            largest: 0.0,
            n_blocks: 0.0,
        }
    }

    fn means(&self) -> (f64, f64) {
        let mean = self.sum / self.count;
        let steady = if self.count > 1.0 {
            (self.sum - self.largest) / (self.count - 1.0)
        } else {
            mean
        };
        (mean, steady)
    }
}

#[cfg(test)]
mod tests;
