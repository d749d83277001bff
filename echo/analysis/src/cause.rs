//! Class of a cause: the host, the device, the network, or several at once.
//!
//! Transfer and skew are distinguished by durations alone (CCL-D, a paper of 2026): `P = (Tmax -
//! Tmin) / (Tmax - Tbase)` is near 1 when one rank is late and near 0 when all are slow together.
//! The usual difference between ranks is subtracted first, or healthy noise would count as skew.
//! The host gap of a late rank shows whether its host or its device is at fault: a device that is
//! late although its host was not causes the lag itself. Its queue shows the same: work that a late
//! host submits waits less than that of its peers, whose GPUs wait for it. Work of a late device
//! waits at least as long as that of its peers.

use std::collections::BTreeMap;

use echo_core::ids::Rank;
use echo_core::model::detector_output::{CauseClass, Signal};
use echo_core::stats::median;

use crate::assembly::CohortBlock;
use crate::baseline::History;
use crate::lag::{Lag, Lags};

/// `P` above which late ranks alone explain slow collectives, and below which slow transfers do.
const ALL_SKEW: f64 = 0.8;
const ALL_TRANSFER: f64 = 0.2;

/// Ratio to the usual duration above which a transfer is slow.
const SLOW_TRANSFER: f64 = 1.1;

/// Ratio above which transfers alone explain a slow job.
const SLOW_NETWORK: f64 = 1.25;

/// Smallest share of a rank's lag caused by its host for the host to be the cause.
const HOST_SHARE: f64 = 0.5;

/// Smallest reduction of the queue time compared with the peers, as a share of the lag, for the
/// host to be the cause. The first operation of an iteration waits for no other rank, so the mean
/// over all operations shows only a part of the lag.
const QUEUE_SHARE: f64 = 0.25;

/// Smallest number of gaps per iteration for which they cover all host work between iterations.
const ALL_GAPS: f64 = 0.9;

/// Share of the lag below which the queue time is too short for work to have waited for a late
/// device.
const DRY_SHARE: f64 = 0.25;

/// Slowness of the collectives of a window, split into its two components.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slowness {
    /// Share of the slowness caused by late ranks, 0 to 1.
    pub skew: f64,
    /// Ratio of the pure transfer time to the usual one.
    pub transfer_ratio: f64,
}

/// Times inside the collectives of one block whose usual duration is known, milliseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    /// Smallest time of a rank, and its usual value.
    least: f64,
    base: f64,
    /// Difference between the ranks beyond the usual one.
    skew: f64,
}

impl Spent {
    /// Each kind of collective is weighted by its time: a tiny absolute difference can be a large
    /// ratio for a very short kind.
    #[expect(
        clippy::cast_precision_loss,
        reason = "operations of one block stay far below 2^53"
    )]
    fn from_block(block: &CohortBlock, history: &History) -> Self {
        let mut spent = Self::default();
        for transfer in &block.transfers {
            let usual = history.transfer_ms(transfer.comm, transfer.op.as_ref());
            let counts = transfer.ranks.values().map(|(summary, _)| summary.count);
            let measured = usual.zip(transfer.extremes_ms()).zip(counts.max());
            if let Some((((base, usual_skew), (least, most)), count)) = measured {
                let n = count as f64;
                spent.least += n * least;
                spent.base += n * base;
                spent.skew += n * (most - least - usual_skew).max(0.0);
            }
        }
        spent
    }

    /// Share of the slowness caused by late ranks, and ratio of the transfer time to the usual one.
    fn share_and_ratio(self) -> Option<(f64, f64)> {
        let slow = (self.least - self.base).max(0.0);
        let is_slow = self.base > 0.0 && self.skew + slow > 0.0;
        is_slow.then(|| (self.skew / (self.skew + slow), self.least / self.base))
    }
}

impl Slowness {
    /// Median over the window's blocks with collectives whose usual duration is known.
    pub fn from_blocks(blocks: &[&CohortBlock], history: &History) -> Option<Self> {
        let spent = blocks.iter().map(|block| Spent::from_block(block, history));
        let (skews, ratios): (Vec<f64>, Vec<f64>) =
            spent.filter_map(Spent::share_and_ratio).unzip();
        Some(Self {
            skew: median(&skews)?,
            transfer_ratio: median(&ratios)?,
        })
    }

    /// Returns true if transfers are slow and no late rank explains it.
    pub fn is_network(self) -> bool {
        self.skew <= ALL_TRANSFER && self.transfer_ratio > SLOW_NETWORK
    }

    fn is_mixed(self) -> bool {
        self.skew > ALL_TRANSFER && self.skew < ALL_SKEW && self.transfer_ratio > SLOW_TRANSFER
    }
}

/// Evidence that distinguishes a late host from a late device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CauseEvidence<'a> {
    /// Host gaps of the window, when the agents report them.
    pub gaps: Option<&'a Lags>,
    /// Number of gaps per iteration, by rank. Only a synchronisation that blocked is followed by a
    /// gap.
    pub gap_rates: &'a BTreeMap<Rank, f64>,
    /// Time that work waited in the GPU queues, by rank, milliseconds per operation.
    pub queues: &'a BTreeMap<Rank, f64>,
    /// Slowness of the collectives, when their usual duration is known.
    pub slowness: Option<Slowness>,
    /// Excess duration of an iteration over a healthy one, milliseconds, when known.
    pub damage_ms: Option<f64>,
}

impl CauseEvidence<'_> {
    /// Returns true if the gaps of the rank show its host work: it was blocked in every iteration.
    fn has_all_gaps(&self, rank: Rank) -> bool {
        self.gap_rates
            .get(&rank)
            .is_some_and(|rate| *rate >= ALL_GAPS)
    }
}

/// Returns true if the GPU of a rank is late while its host is measured and not late.
pub fn is_hidden_from_host(late: &Lag, evidence: &CauseEvidence<'_>) -> bool {
    let is_late = |gap: f64| gap >= explained_ms(late, evidence);
    late.signal == Signal::DeviceWait
        && host_gap_ms(late, evidence).is_some_and(|gap| !is_late(gap))
}

/// Delay of a rank's own host in submitting work, relative to its peers, milliseconds per
/// iteration.
fn host_gap_ms(late: &Lag, evidence: &CauseEvidence<'_>) -> Option<f64> {
    let gap = evidence
        .gaps?
        .ranks
        .iter()
        .find(|lag| lag.rank == late.rank)?;
    (gap.signal == Signal::HostGap).then_some(gap.mean_ms)
}

/// Host delay needed for the host to be the cause, milliseconds per iteration.
fn explained_ms(late: &Lag, evidence: &CauseEvidence<'_>) -> f64 {
    // For a rank that waits as long as its peers, the whole lag must be explained.
    let own = late.own_ms.filter(|own| *own > 0.0);
    let lateness = own.unwrap_or(late.mean_ms);
    let lost = |damage: f64| lateness.min(damage);
    let certain = || own.map_or(lateness, |_| late.certain_ms());
    HOST_SHARE * evidence.damage_ms.map_or_else(certain, lost)
}

/// Class of the cause that makes a rank late.
pub fn class_of(late: &Lag, evidence: &CauseEvidence<'_>) -> CauseClass {
    if late.signal != Signal::DeviceWait {
        return CauseClass::Host;
    }
    if evidence.slowness.is_some_and(Slowness::is_mixed) {
        return CauseClass::Mixed;
    }
    let explained = explained_ms(late, evidence);
    let queue = Queue::for_rank(late.rank, evidence.queues, explained / HOST_SHARE);
    match (host_gap_ms(late, evidence), queue) {
        (Some(gap), _) if gap >= explained => CauseClass::Host,
        (Some(_), Some(Queue::Empty)) if !evidence.has_all_gaps(late.rank) => CauseClass::Host,
        (Some(_), _) | (None, Some(Queue::Full)) => CauseClass::Device,
        (None, Some(Queue::Empty | Queue::Shorter)) => CauseClass::Host,
        (None, None) => CauseClass::Inconclusive,
    }
}

/// State of the queue of a late rank's GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queue {
    /// Queue time too short to be the effect of a late device: the GPU waited for its host.
    Empty,
    /// Queue time shorter than that of its peers by a large part of the lag.
    Shorter,
    /// Queue time as long as that of its peers.
    Full,
}

impl Queue {
    /// Returns the state of the queue of a rank with this lag.
    fn for_rank(rank: Rank, queues: &BTreeMap<Rank, f64>, late_ms: f64) -> Option<Self> {
        let usual = median(&queues.values().copied().collect::<Vec<f64>>())?;
        let own = queues.get(&rank)?;
        Some(if *own < DRY_SHARE * late_ms {
            Self::Empty
        } else if usual - own >= QUEUE_SHARE * late_ms {
            Self::Shorter
        } else {
            Self::Full
        })
    }
}

#[cfg(test)]
mod tests;
