//! What the past says: usual pace, waiting and leads, and how much lost time makes a verdict.

use std::collections::BTreeMap;

use echo_core::stats::{mad, median};

use crate::straggler::measure::{Flow, Pace};
use crate::straggler::spread::{MAD_TO_SIGMA, median_of};

/// Usual pace of a communicator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct UsualPace {
    /// Seconds per operation.
    pub(super) step: f64,
    /// Part of it in the operations themselves, without waiting, seconds.
    transfer: f64,
    /// Shortest operation of a block, seconds.
    shortest: f64,
    /// Weight among the communicators: the more regular, the larger.
    weight: f64,
}

/// Usual waiting and lead of one rank or node.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct UsualFlow {
    /// Median share of net waiting.
    pub(super) net: f64,
    /// Median share of waiting per peer.
    pub(super) peer: f64,
    /// Standard deviation of that share from entry to entry.
    pub(super) sigma: f64,
    /// Median lead, seconds; NaN if unknown.
    pub(super) lead: f64,
    /// Median of the latest smallest leads, with an offset, seconds; NaN if unknown.
    pub(super) low: f64,
    /// Standard deviation of the lead from entry to entry, seconds.
    pub(super) lead_sigma: f64,
    /// Median duration of its sends and receives, seconds; NaN without them.
    pub(super) transfer: f64,
}

/// Usual waiting by rank and by node, as of the last change of the past.
#[derive(Debug, Default)]
pub(super) struct UsualFlows {
    pub(super) ranks: Vec<UsualFlow>,
    pub(super) nodes: Vec<UsualFlow>,
}

/// What the past says.
#[derive(Debug, Clone, Default)]
pub(super) struct Usual {
    pub(super) paces: BTreeMap<usize, UsualPace>,
    /// Share of lost time that is no evidence.
    pub(super) allowance: f64,
    /// Lost time that makes a verdict, seconds.
    pub(super) enough_s: f64,
    /// The same where no rank agrees with the pace. More while the past is short: its median is not
    /// known well, and work that recurs rarely was not seen.
    pub(super) enough_alone_s: f64,
    /// Standard deviation of the loss over 10 s while the job is healthy.
    pub(super) sigma: f64,
    /// Time that one entry covers, seconds.
    pub(super) entry_s: f64,
}

/// Loss of one evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Loss {
    /// Length of the evaluation, seconds.
    pub(super) seconds: f64,
    /// Share of it that is lost: 1 - usual / current seconds per operation, not below 0.
    pub(super) share: f64,
    /// Share of it by which the operations themselves grew.
    pub(super) transfer: f64,
    /// Ratio of the shortest operations of a block to the usual.
    pub(super) growth: f64,
    /// Share of the communicators, by weight, that completed a block.
    pub(super) seen: f64,
}

impl Usual {
    /// Compares an evaluation with the past: the mean over communicators, the more regular ones
    /// count more. `None` if none of them has a past.
    pub(super) fn loss(&self, paces: &[(usize, Pace)]) -> Option<Loss> {
        let mut loss = Loss::default();
        let mut weights = 0.0;
        for (comm, pace) in paces {
            let Some(usual) = self.paces.get(comm).filter(|_| pace.operations > 0.0) else {
                continue;
            };
            weights += usual.weight;
            loss.seconds += usual.weight * pace.seconds;
            loss.share += usual.weight * (1.0 - usual.step / pace.step());
            let grown = usual.transfer.mul_add(-pace.operations, pace.transfer);
            loss.transfer += usual.weight * grown / pace.seconds;
            loss.growth += usual.weight * pace.shortest_operation() / usual.shortest;
        }
        let all: f64 = self.paces.values().map(|usual| usual.weight).sum();
        (weights > 0.0).then(|| Loss {
            seconds: loss.seconds / weights,
            share: (loss.share / weights).max(0.0),
            transfer: loss.transfer / weights,
            growth: loss.growth / weights,
            seen: weights / all,
        })
    }

    /// Shortest usual time between two operations of a communicator, seconds.
    pub(super) fn shortest_step(&self) -> f64 {
        let steps = self.paces.values().map(|usual| usual.step);
        steps.fold(f64::INFINITY, f64::min)
    }

    /// Longest usual time between two operations of a communicator, seconds.
    pub(super) fn longest_step(&self) -> f64 {
        let steps = self.paces.values().map(|usual| usual.step);
        steps.fold(0.0, f64::max)
    }

    /// Loss with its sign: faster than usual is negative.
    pub(super) fn signed_loss(&self, paces: &[(usize, Pace)]) -> Option<f64> {
        let (mut weights, mut sum) = (0.0, 0.0);
        for (comm, pace) in paces {
            if let Some(usual) = self.paces.get(comm).filter(|_| pace.operations > 0.0) {
                weights += usual.weight;
                sum += usual.weight * (1.0 - usual.step / pace.step());
            }
        }
        (weights > 0.0).then(|| sum / weights)
    }
}

/// Relative spread below which communicators count alike: that of short stretches of regular loops.
const REGULAR: f64 = 0.02;

impl UsualPace {
    /// Usual pace of these evaluations.
    pub(super) fn from_paces(paces: &[Pace]) -> Self {
        let steps: Vec<f64> = paces.iter().map(|pace| pace.step()).collect();
        let step = median(&steps).unwrap_or(0.0);
        let transfers = paces.iter().map(|pace| pace.transfer / pace.operations);
        let spread = MAD_TO_SIGMA * mad(&steps).unwrap_or(0.0) / step;
        Self {
            step,
            transfer: median_of(transfers),
            shortest: median_of(paces.iter().map(|pace| pace.shortest_operation())),
            weight: 1.0 / spread.max(REGULAR).powi(2),
        }
    }
}

/// Waiting beyond the usual one at today's pace: usual waiting belongs to operations, of which
/// there are fewer in a second.
pub(super) fn beyond(now: Flow, usual: &UsualFlow, loss: f64) -> Flow {
    let kept = 1.0 - loss;
    Flow {
        net: kept.mul_add(-usual.net, now.net),
        peer: kept.mul_add(-usual.peer, now.peer),
        ..now
    }
}
