//! How much later than its peers each rank is, over a window of blocks. Needs no common clock.
//!
//! * *Host gap*: from the return of a rank's blocking synchronisation to its next collective, compared with the
//!   median of the peers (the lower one of two, see [`lower_median`]). At that moment the GPU has nothing queued, so host lateness delays it one for one.
//! * *Wait*: in a blocking collective the last to arrive waits least, so `median(waits) - own wait` is a lag too.
//!   It stands in for a rank whose synchronisations no longer wait at all.
//! * *Arrival*: for jobs that do not synchronise every iteration, the entry times of the same operations, each on a
//!   clock that starts at the last completion common to all ranks.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::analysis::assembly::{CohortBlock, Member};
use crate::ids::Rank;
use crate::model::conclusion::Signal;
use crate::model::event::{Origin, Summary};
use crate::stats::{lower_median, mean, median, standard_error};

/// Lag of one rank over a window.
#[derive(Debug, Clone, PartialEq)]
pub struct Lag {
    /// Rank.
    pub rank: Rank,
    /// Who it is.
    pub origin: Arc<Origin>,
    /// The signal that it was taken from.
    pub signal: Signal,
    /// Mean lag behind the median of the peers: milliseconds per iteration, or milliseconds at one operation for
    /// arrivals.
    pub mean_ms: f64,
    /// The same without the rank's largest single sample, so that one stall does not look like a habit.
    pub steady_ms: f64,
    /// Standard error of the mean from block to block, milliseconds; nothing for a single block.
    pub error_ms: Option<f64>,
}

/// Lags of all ranks over a window, all judged by the same kind of signal.
#[derive(Debug, Clone, PartialEq)]
pub struct Lags {
    /// The kind of signal that suits the cohort.
    pub signal: Signal,
    /// One entry per rank that can be compared, in the order of their ranks.
    pub ranks: Vec<Lag>,
    /// Median of the members' own signal, milliseconds per iteration (or at one operation for arrivals).
    pub center_ms: f64,
}

/// The signal that suits a cohort: host gaps where it synchronises in at least half of its iterations, else arrivals.
pub fn suited_signal(blocks: &[&CohortBlock]) -> Signal {
    let iterations: f64 = blocks.iter().map(|block| block.iterations).sum();
    let gaps = Totals::of(blocks, |member| member.gap);
    if gaps.typical_count() >= iterations / 2.0 {
        Signal::HostGap
    } else {
        Signal::Arrival
    }
}

/// Lags over the blocks of a window, taken from the given signal (waits stand in for missing host gaps); nothing when
/// the blocks do not carry it.
pub fn lags(signal: Signal, blocks: &[&CohortBlock]) -> Option<Lags> {
    match signal {
        Signal::HostGap | Signal::Wait => gap_lags(blocks),
        Signal::Arrival => arrival_lags(blocks),
        Signal::DeviceWait => None,
    }
}

/// Sums of one histogram signal per rank over a window.
struct Totals(BTreeMap<Rank, Total>);

#[derive(Clone)]
struct Total {
    origin: Arc<Origin>,
    count: f64,
    sum: f64,
    largest: f64,
}

impl Totals {
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of one window stay far below 2^53"
    )]
    fn of(blocks: &[&CohortBlock], signal: fn(&Member) -> Option<Summary>) -> Self {
        let mut totals: BTreeMap<Rank, Total> = BTreeMap::new();
        for member in blocks.iter().flat_map(|block| &block.members) {
            let total = totals.entry(member.rank).or_insert_with(|| Total {
                origin: Arc::clone(&member.origin),
                count: 0.0,
                sum: 0.0,
                largest: 0.0,
            });
            if let Some(summary) = signal(member) {
                total.count += summary.count as f64;
                total.sum += summary.sum;
                total.largest = total.largest.max(summary.max.unwrap_or(0.0));
            }
        }
        Self(totals)
    }

    /// Median number of samples per rank.
    fn typical_count(&self) -> f64 {
        median(
            &self
                .0
                .values()
                .map(|total| total.count)
                .collect::<Vec<f64>>(),
        )
        .unwrap_or(0.0)
    }

    /// Per rank with at least half of the typical number of samples: mean, and mean without the largest.
    fn means(&self) -> BTreeMap<Rank, (f64, f64)> {
        let enough = (self.typical_count() / 2.0).max(1.0);
        let comparable = self.0.iter().filter(|(_, total)| total.count >= enough);
        comparable
            .map(|(rank, total)| (*rank, total.means()))
            .collect()
    }
}

impl Total {
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

/// Medians over ranks of a (mean, steady mean) pair: the lower ones, behind which a rank is late.
fn centers(means: &BTreeMap<Rank, (f64, f64)>) -> Option<(f64, f64)> {
    let of = |pick: fn(&(f64, f64)) -> f64| {
        lower_median(&means.values().map(pick).collect::<Vec<f64>>())
    };
    Some((of(|pair| pair.0)?, of(|pair| pair.1)?))
}

fn gap_lags(blocks: &[&CohortBlock]) -> Option<Lags> {
    let iterations: f64 = blocks.iter().map(|block| block.iterations).sum();
    let gaps = Totals::of(blocks, |member| member.gap);
    let waits = Totals::of(blocks, |member| member.blocked);
    let gap_means = gaps.means();
    let center = centers(&gap_means)?;
    let usual_wait = median(
        &waits
            .means()
            .values()
            .map(|pair| pair.0)
            .collect::<Vec<f64>>(),
    );
    let rate = gaps.typical_count() / iterations;
    let series = gap_series(blocks);
    let ranks = gaps.0.iter().filter_map(|(rank, total)| {
        let (signal, mean, steady) = if let Some(own) = gap_means.get(rank) {
            (Signal::HostGap, own.0 - center.0, own.1 - center.1)
        } else {
            // A rank that is blocked now and then, but hardly where its peers are, comes last and finds nothing left
            // to wait for. One that is never blocked works in another way and cannot be compared.
            let own = waits.0.get(rank).filter(|wait| wait.count > 0.0)?;
            let lag = usual_wait? - own.sum / waits.typical_count();
            (Signal::Wait, lag, lag)
        };
        let error = series.get(rank).and_then(|lags| standard_error(lags));
        Some(Lag {
            rank: *rank,
            origin: Arc::clone(&total.origin),
            signal,
            mean_ms: mean * rate,
            steady_ms: steady * rate,
            error_ms: error.map(|error| error * rate),
        })
    });
    Some(Lags {
        signal: Signal::HostGap,
        ranks: ranks.collect(),
        center_ms: center.0 * rate,
    })
}

/// Gap lags of every rank, block by block.
fn gap_series(blocks: &[&CohortBlock]) -> BTreeMap<Rank, Vec<f64>> {
    let mut series: BTreeMap<Rank, Vec<f64>> = BTreeMap::new();
    for block in blocks {
        let gap = |member: &Member| Some((member.rank, member.gap?.mean()?));
        let gaps: Vec<(Rank, f64)> = block.members.iter().filter_map(gap).collect();
        let center = lower_median(&gaps.iter().map(|(_, ms)| *ms).collect::<Vec<f64>>());
        for (rank, ms) in gaps {
            series
                .entry(rank)
                .or_default()
                .push(ms - center.unwrap_or(ms));
        }
    }
    series
}

fn arrival_lags(blocks: &[&CohortBlock]) -> Option<Lags> {
    let mut series: BTreeMap<Rank, (Arc<Origin>, Vec<f64>)> = BTreeMap::new();
    let mut center = Vec::new();
    for block in blocks {
        let Some((middle, arrivals)) = comparable_arrivals(block) else {
            continue;
        };
        center.push(middle);
        for (member, mean_ms) in arrivals {
            let entry = (Arc::clone(&member.origin), Vec::new());
            series
                .entry(member.rank)
                .or_insert(entry)
                .1
                .push(mean_ms - middle);
        }
    }
    // A comparison needs most of the window: the blocks before the first common completion have none.
    if center.len() * 2 < blocks.len() {
        return None;
    }
    let ranks = series.into_iter().filter_map(|(rank, (origin, lags))| {
        Some(Lag {
            rank,
            origin,
            signal: Signal::Arrival,
            mean_ms: mean(&lags)?,
            steady_ms: median(&lags)?,
            error_ms: standard_error(&lags),
        })
    });
    Some(Lags {
        signal: Signal::Arrival,
        ranks: ranks.collect(),
        center_ms: mean(&center)?,
    })
}

/// The members whose clocks start at the same completion, and the median of their arrivals.
fn comparable_arrivals(block: &CohortBlock) -> Option<(f64, Vec<(&Member, f64)>)> {
    let mut by_anchor: BTreeMap<u64, Vec<(&Member, f64)>> = BTreeMap::new();
    for member in &block.members {
        if let Some(arrival) = member.arrival {
            by_anchor
                .entry(arrival.anchor_seq)
                .or_default()
                .push((member, arrival.mean_ms));
        }
    }
    let arrivals = by_anchor.into_values().max_by_key(Vec::len)?;
    let enough = arrivals.len() >= 2 && arrivals.len() * 2 > block.members.len();
    let middle = lower_median(&arrivals.iter().map(|(_, ms)| *ms).collect::<Vec<f64>>())?;
    enough.then_some((middle, arrivals))
}

#[cfg(test)]
mod tests;
