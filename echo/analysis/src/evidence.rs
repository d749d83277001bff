//! Host evidence: measurements of the hosts of a cohort in the same operations, rank by rank.
//!
//! Every kind of evidence is a rate per iteration and is compared by the same robust statistics as
//! lags: the distance from the median of the peers in units of [`robust_sigma`]. Evidence explains
//! a verdict but never causes one: a rank that is on time is not reported, however busy its host.

mod kind;
mod task;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;

use echo_core::ids::{MetricName, Rank};
use echo_core::stats::{median, robust_sigma};
use echo_core::text::decimal;
use fleet_proto::metric::{GPU_SHARED, GPU_SHARED_BY, PREEMPTED, PREEMPTED_BY};

pub use crate::evidence::kind::Unit;
pub use crate::evidence::task::Task;

/// Smallest z-score that is significant: the usual threshold of the modified z-score (Iglewicz and
/// Hoaglin 1993).
const Z_CUT: f64 = 3.5;

/// Smallest distance that is significant, as a share of the peers' median.
const LEAST_SHARE: f64 = 0.06;

/// Smallest ratio to a single peer that is significant, and smallest distance from it in units of the
/// floor: there is no scatter to measure by.
const LEAST_RATIO: f64 = 2.0;
const LEAST_OF_ONE: f64 = 5.0;

/// Smallest scale as a share of the peers' median, so that exact ties do not divide by zero.
const FLOOR_SHARE: f64 = 0.01;

/// Smallest difference of z-scores and effects that orders kinds of evidence.
const RESOLUTION: f64 = 1e-6;

/// Report of one rank about one kind of evidence over the compared operations.
#[derive(Debug, Clone, PartialEq)]
pub struct HostTotal {
    /// Rank within the job.
    pub rank: Rank,
    /// Kind of evidence.
    pub metric: MetricName,
    /// Task of [`PREEMPTED_BY`] or [`GPU_SHARED_BY`]; `None` for other kinds.
    pub task: Option<Task>,
    /// Sum of the values, in the unit of the kind.
    pub sum: f64,
    /// Iterations of the blocks that they belong to.
    pub iterations: f64,
}

/// One kind of evidence of one rank, compared with its peers.
#[derive(Debug, Clone, PartialEq)]
pub struct HostFact {
    /// Kind of evidence.
    pub metric: MetricName,
    /// Description of the measurement.
    pub meaning: Cow<'static, str>,
    /// Unit of the rates.
    pub unit: Unit,
    /// The rank's own rate, per iteration.
    pub own: f64,
    /// Median of the peers' rates, per iteration; `None` without peers.
    pub peers: Option<f64>,
    /// Distance from that median (modified z-score); `None` below three ranks.
    pub z: Option<f64>,
    /// Tasks that had the CPU, for [`PREEMPTED`], or the GPU, for [`GPU_SHARED`]: those that took
    /// more of the rank's than of its peers', longest first.
    pub tasks: Vec<Task>,
    phrase: kind::Phrase,
}

impl HostFact {
    /// Returns true if it is worth reporting with a verdict: significantly above its peers, and
    /// not negligible.
    pub fn stands_out(&self) -> bool {
        let Some(peers) = self.peers else {
            return false;
        };
        let more = self.own - peers;
        match self.z {
            Some(z) => z >= Z_CUT && more >= self.unit.floor() && more >= LEAST_SHARE * peers.abs(),
            None => self.own >= LEAST_RATIO * peers && more >= LEAST_OF_ONE * self.unit.floor(),
        }
    }

    /// "preempted 14.7 ms per step by cpu-hog on cpu 3, peers 5.0".
    pub fn sentence(&self) -> String {
        let own = self.unit.write(self.own);
        let text = match &self.phrase {
            kind::Phrase::Before(phrase) => format!("{phrase} {own} per step"),
            kind::Phrase::After(phrase) => format!("{own} {phrase} per step"),
        };
        let text = match self.tasks.as_slice() {
            [] => text,
            tasks => format!("{text} {}", task::list(tasks)),
        };
        match self.peers {
            Some(peers) if self.unit == Unit::Bytes => {
                format!("{text}, peers {}", self.unit.write(peers))
            }
            Some(peers) => format!("{text}, peers {}", decimal(peers, 1)),
            None => text,
        }
    }
}

/// Every kind of evidence that `rank` reported, compared with its peers, largest difference first.
///
/// A rank without a block of a kind had nothing to report in it; a rank without any block of a kind
/// does not measure it and is no peer.
pub fn compare(all: &[HostTotal], rank: Rank) -> Vec<HostFact> {
    let mut iterations: BTreeMap<Rank, f64> = BTreeMap::new();
    let mut kinds: BTreeMap<&MetricName, Vec<&HostTotal>> = BTreeMap::new();
    for total in all.iter().filter(|total| total.iterations > 0.0) {
        let most = iterations.entry(total.rank).or_default();
        *most = most.max(total.iterations);
        if total.task.is_none() {
            kinds.entry(&total.metric).or_default().push(total);
        }
    }
    let rate = |total: &HostTotal| {
        let iterations = iterations.get(&total.rank).copied();
        total.sum / iterations.unwrap_or(total.iterations)
    };
    let fact = |(metric, totals): (&MetricName, Vec<&HostTotal>)| {
        let own = totals.iter().find(|total| total.rank == rank)?;
        let others = totals.iter().filter(|total| total.rank != rank);
        let peers: Vec<f64> = others.map(|total| rate(total)).collect();
        let mut fact = fact(metric, rate(own), &peers);
        let by_task = match metric.as_str() {
            PREEMPTED => Some(PREEMPTED_BY),
            GPU_SHARED => Some(GPU_SHARED_BY),
            _ => None,
        };
        if let Some(by_task) = by_task {
            let of_tasks = all.iter().filter(|total| total.metric.as_str() == by_task);
            fact.tasks = task::standing_out(&of_tasks.collect::<Vec<_>>(), &iterations, rank);
        }
        Some(fact)
    };
    let mut facts: Vec<HostFact> = kinds.into_iter().filter_map(fact).collect();
    facts.sort_by(|a, b| {
        let by_z = || larger_first(a.z.map(f64::abs), b.z.map(f64::abs));
        let by_effect = || larger_first(effect(a), effect(b));
        by_z().then_with(by_effect).then(a.metric.cmp(&b.metric))
    });
    facts
}

fn fact(metric: &MetricName, own: f64, peers: &[f64]) -> HostFact {
    let (meaning, unit, phrase) = kind::kind(metric.as_str());
    let center = median(peers);
    let all_rates: Vec<f64> = peers.iter().copied().chain([own]).collect();
    let z = robust_sigma(&all_rates).zip(center).map(|(sigma, center)| {
        let floor = (FLOOR_SHARE * center.abs()).max(unit.floor() / Z_CUT);
        (own - center) / sigma.hypot(floor)
    });
    HostFact {
        metric: metric.clone(),
        meaning,
        unit,
        own,
        peers: center,
        z,
        tasks: Vec::new(),
        phrase,
    }
}

/// Distance from the peers as a share of the larger of both.
fn effect(fact: &HostFact) -> Option<f64> {
    let peers = fact.peers?;
    let larger = fact.own.abs().max(peers.abs());
    (larger > 0.0).then(|| (fact.own - peers).abs() / larger)
}

/// Orders by size. The last digits of a sum depend on the order in which the engine adds, so they
/// do not count.
fn larger_first(a: Option<f64>, b: Option<f64>) -> Ordering {
    let value = |value: Option<f64>| (value.unwrap_or(f64::NEG_INFINITY) / RESOLUTION).round();
    value(b).total_cmp(&value(a))
}

#[cfg(test)]
mod tests;
