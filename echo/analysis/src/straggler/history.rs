//! The job's own healthy past, in bounded memory.
//!
//! At most 64 entries are kept; when they are full, neighbours are merged and every entry covers
//! twice the time, up to 16 s, so that the past covers the last 17 minutes. Memory per entry: 12
//! bytes per rank, 8 per node, 24 per metered communicator; 8 MB for 10,240 ranks.

use std::collections::{BTreeMap, VecDeque};

use echo_core::stats::{mad, mean, median, robust_sigma};

use crate::straggler::measure::{Flow, Measured, Pace};
use crate::straggler::rule::Rule;

/// Largest number of entries.
const MAX_ENTRIES: usize = 64;

/// Largest time that one entry covers, seconds.
const MAX_ENTRY_S: f64 = 16.0;

/// Length of the means whose spread is the spread of the pace, seconds.
const MEAN_S: f64 = 10.0;

/// Smallest number of such means of which a deviation is taken.
const LEAST_MEANS: usize = 4;

/// Standard deviation of a normal variable as a multiple of its median absolute deviation.
const MAD_TO_SIGMA: f64 = 1.4826;

/// Means over a stretch of healthy time.
#[derive(Debug, Clone, Default)]
struct Entry {
    seconds: f64,
    paces: BTreeMap<usize, Pace>,
    /// By rank: net and peer shares, lead.
    ranks: Vec<[f32; 3]>,
    /// By node: net and peer shares.
    nodes: Vec<[f32; 2]>,
}

impl Entry {
    fn from_measured(measured: &Measured, seconds: f64) -> Self {
        let lead = |rank: usize| measured.leads.get(rank).copied().unwrap_or(f64::NAN);
        let ranks = measured.ranks.iter().enumerate();
        Self {
            seconds,
            paces: measured.paces.iter().copied().collect(),
            ranks: ranks
                .map(|(rank, flow)| [flow.net as f32, flow.peer as f32, lead(rank) as f32])
                .collect(),
            nodes: measured
                .nodes
                .iter()
                .map(|flow| [flow.net as f32, flow.peer as f32])
                .collect(),
        }
    }

    /// Mean of both, weighted by time.
    fn merge(&mut self, later: Self) {
        let weight = (later.seconds / (self.seconds + later.seconds)) as f32;
        merge_means(&mut self.ranks, &later.ranks, weight);
        merge_means(&mut self.nodes, &later.nodes, weight);
        for (comm, pace) in later.paces {
            self.paces.entry(comm).or_default().add(pace);
        }
        self.seconds += later.seconds;
    }
}

fn merge_means<const N: usize>(means: &mut Vec<[f32; N]>, later: &[[f32; N]], weight: f32) {
    for (own, later) in means.iter_mut().zip(later) {
        for (own, later) in own.iter_mut().zip(later) {
            *own = if own.is_nan() {
                *later
            } else if later.is_nan() {
                *own
            } else {
                weight.mul_add(*later - *own, *own)
            };
        }
    }
    means.extend(later.iter().skip(means.len()));
}

/// Usual pace of a communicator.
#[derive(Debug, Clone, Copy, PartialEq)]
struct UsualPace {
    /// Seconds per operation.
    step: f64,
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
}

/// What the past says.
#[derive(Debug, Clone, Default)]
pub(super) struct Usual {
    paces: BTreeMap<usize, UsualPace>,
    /// Share of lost time that is no evidence.
    pub(super) allowance: f64,
    /// Lost time that makes a verdict, seconds.
    pub(super) enough_s: f64,
    /// The same where no rank agrees with the pace. More while the past is short: its median is not
    /// known well, and work that recurs rarely was not seen.
    pub(super) enough_alone_s: f64,
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
}

/// Healthy past of a job.
#[derive(Debug, Default)]
pub(super) struct History {
    entries: VecDeque<Entry>,
    part: Option<Entry>,
    /// Time that an entry covers at least, seconds; 0 while every evaluation is an entry.
    entry_s: f64,
}

impl History {
    /// Appends a healthy evaluation of this length.
    pub(super) fn push(&mut self, measured: &Measured, seconds: f64) {
        let entry = Entry::from_measured(measured, seconds);
        let part = match self.part.take() {
            Some(mut part) => {
                part.merge(entry);
                part
            }
            None => entry,
        };
        if part.seconds < self.entry_s {
            self.part = Some(part);
            return;
        }
        self.entries.push_back(part);
        if self.entries.len() > MAX_ENTRIES {
            self.shrink();
        }
    }

    /// Merges neighbours, or forgets the oldest entry if they are as long as they may be.
    fn shrink(&mut self) {
        let longest = self.entries.iter().map(|entry| entry.seconds);
        let longest = longest.fold(0.0, f64::max);
        if longest >= MAX_ENTRY_S {
            self.entries.pop_front();
            return;
        }
        let mut merged: VecDeque<Entry> = VecDeque::new();
        let mut half: Option<Entry> = None;
        for entry in self.entries.drain(..) {
            match half.take() {
                Some(mut first) => {
                    first.merge(entry);
                    merged.push_back(first);
                }
                None => half = Some(entry),
            }
        }
        merged.extend(half);
        self.entry_s = median_of(merged.iter().map(|entry| entry.seconds));
        self.entries = merged;
    }

    /// Time that the past covers, seconds.
    pub(super) fn seconds(&self) -> f64 {
        self.entries.iter().map(|entry| entry.seconds).sum()
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What the past says about the pace; `None` while it is too short.
    pub(super) fn usual(&self, rule: &Rule) -> Option<Usual> {
        let seconds = self.seconds();
        if self.len() < 2 || seconds < rule.need_s {
            return None;
        }
        let mut paces: BTreeMap<usize, Vec<Pace>> = BTreeMap::new();
        for (comm, pace) in self.entries.iter().flat_map(|entry| &entry.paces) {
            if pace.operations > 0.0 {
                paces.entry(*comm).or_default().push(*pace);
            }
        }
        let known = paces.into_iter().filter(|(_, paces)| paces.len() >= 2);
        let mut usual = Usual {
            paces: known
                .map(|(comm, paces)| (comm, usual_pace(&paces)))
                .collect(),
            allowance: rule.allowance,
            enough_s: rule.enough_s,
            enough_alone_s: rule.enough_s,
            entry_s: median_of(self.entries.iter().map(|entry| entry.seconds)),
        };
        self.measure_spread(&mut usual, seconds, rule);
        Some(usual)
    }

    /// Adds what recurs in the past to the allowance, and replaces the constants by what follows
    /// from the spread of a past that is long enough.
    fn measure_spread(&self, usual: &mut Usual, seconds: f64, rule: &Rule) {
        let losses: Vec<(f64, f64)> = self
            .entries
            .iter()
            .filter_map(|entry| {
                let paces: Vec<(usize, Pace)> = entry.paces.iter().map(|(c, p)| (*c, *p)).collect();
                Some((entry.seconds, usual.signed_loss(&paces)?))
            })
            .collect();
        let sigma = if seconds >= rule.steady_s {
            robust_sigma(&means(&losses, MEAN_S))
        } else {
            None
        };
        if let Some(sigma) = sigma {
            usual.allowance = (rule.allowance_sigmas * sigma).max(rule.least_allowance);
            usual.enough_s = rule.enough_s.max(rule.enough_per_sigma_s * sigma);
        }
        usual.allowance = (usual.allowance + recurring(&losses)).min(rule.most_allowance);
        let peak = reached(&losses, usual.allowance);
        usual.enough_s = usual.enough_s.max(rule.enough_peaks * peak);
        let missing = (1.0 - seconds / rule.steady_s).max(0.0);
        usual.enough_alone_s = usual.enough_s * (1.0 + missing);
    }

    /// Usual waiting and leads by rank.
    pub(super) fn ranks(&self, n: usize) -> Vec<UsualFlow> {
        let value = |entry: &Entry, rank: usize| entry.ranks.get(rank).copied();
        let ranks = (0..n).map(|rank| self.usual_flow(|entry| value(entry, rank)));
        pooled(ranks.collect())
    }

    /// Usual waiting by node.
    pub(super) fn nodes(&self, n: usize) -> Vec<UsualFlow> {
        let value = |entry: &Entry, node: usize| {
            let [net, peer] = entry.nodes.get(node).copied()?;
            Some([net, peer, f32::NAN])
        };
        let nodes = (0..n).map(|node| self.usual_flow(|entry| value(entry, node)));
        pooled(nodes.collect())
    }

    fn usual_flow(&self, value: impl Fn(&Entry) -> Option<[f32; 3]>) -> UsualFlow {
        let mut series: [Vec<f64>; 3] = Default::default();
        let mut peers: Vec<(f64, f64)> = Vec::new();
        for entry in &self.entries {
            let Some(means) = value(entry) else {
                continue;
            };
            let [_, peer, _] = means;
            peers.push((entry.seconds, f64::from(peer)));
            for (series, mean) in series.iter_mut().zip(means) {
                if mean.is_finite() {
                    series.push(f64::from(mean));
                }
            }
        }
        let [net, peer, lead] = &series;
        UsualFlow {
            net: median(net).unwrap_or(0.0),
            peer: median(peer).unwrap_or(0.0),
            sigma: lasting_deviation(&peers),
            lead: median(lead).unwrap_or(f64::NAN),
        }
    }
}

impl Usual {
    /// Loss with its sign: faster than usual is negative.
    fn signed_loss(&self, paces: &[(usize, Pace)]) -> Option<f64> {
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

/// Means over stretches of at least `length` seconds, from pairs of length and value.
fn means(values: &[(f64, f64)], length: f64) -> Vec<f64> {
    let mut means = Vec::new();
    let (mut seconds, mut sum) = (0.0, 0.0);
    for (part, value) in values {
        seconds += part;
        sum += part * value;
        if seconds >= length {
            means.push(sum / seconds);
            (seconds, sum) = (0.0, 0.0);
        }
    }
    means
}

/// Share of the time that is usually lost to work that recurs, such as checkpoints: it is in the
/// mean of both halves of the past, but not in the median. A slow start is in one half only.
fn recurring(losses: &[(f64, f64)]) -> f64 {
    let (first, second) = losses.split_at(losses.len() / 2);
    let mean = |half: &[(f64, f64)]| {
        let seconds: f64 = half.iter().map(|(seconds, _)| seconds).sum();
        let lost: f64 = half.iter().map(|(seconds, loss)| seconds * loss).sum();
        if seconds > 0.0 { lost / seconds } else { 0.0 }
    };
    mean(first).min(mean(second)).max(0.0)
}

/// Evidence that the healthy past itself reaches, in both of its halves, seconds: the larger of two
/// checkpoints is no fault.
fn reached(losses: &[(f64, f64)], allowance: f64) -> f64 {
    let peak = |half: &[(f64, f64)]| {
        let (mut lost, mut peak) = (0.0_f64, 0.0_f64);
        for (seconds, loss) in half {
            lost = (lost + seconds * (loss - allowance)).max(0.0);
            peak = peak.max(lost);
        }
        peak
    };
    let (first, second) = losses.split_at(losses.len() / 2);
    peak(first).min(peak(second))
}

/// Relative spread below which communicators count alike: that of short stretches of regular loops.
const REGULAR: f64 = 0.02;

fn usual_pace(paces: &[Pace]) -> UsualPace {
    let steps: Vec<f64> = paces.iter().map(|pace| pace.step()).collect();
    let step = median(&steps).unwrap_or(0.0);
    let transfers = paces.iter().map(|pace| pace.transfer / pace.operations);
    let spread = MAD_TO_SIGMA * mad(&steps).unwrap_or(0.0) / step;
    UsualPace {
        step,
        transfer: median_of(transfers),
        shortest: median_of(paces.iter().map(|pace| pace.shortest_operation())),
        weight: 1.0 / spread.max(REGULAR).powi(2),
    }
}

/// Standard deviation of means over 10 s; while the past is too short for them, of the values
/// themselves.
fn lasting_deviation(values: &[(f64, f64)]) -> f64 {
    let means = means(values, MEAN_S);
    if means.len() >= LEAST_MEANS {
        deviation(&means)
    } else {
        deviation(&values.iter().map(|(_, value)| *value).collect::<Vec<f64>>())
    }
}

/// Standard deviation around the mean. Not a robust one: that of a rank which is last in a third of
/// the time is 0.
fn deviation(values: &[f64]) -> f64 {
    let center = mean(values).unwrap_or(0.0);
    let squares: Vec<f64> = values.iter().map(|value| (value - center).powi(2)).collect();
    mean(&squares).unwrap_or(0.0).sqrt()
}

/// The same with one deviation for all: any rank can do what another one did.
fn pooled(mut flows: Vec<UsualFlow>) -> Vec<UsualFlow> {
    let squares: Vec<f64> = flows.iter().map(|flow| flow.sigma.powi(2)).collect();
    let sigma = mean(&squares).unwrap_or(0.0).sqrt();
    for flow in &mut flows {
        flow.sigma = sigma;
    }
    flows
}

fn median_of(values: impl Iterator<Item = f64>) -> f64 {
    median(&values.collect::<Vec<f64>>()).unwrap_or(0.0)
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
