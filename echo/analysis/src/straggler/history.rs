//! The job's own healthy past, in bounded memory.
//!
//! At most 64 entries are kept; when they are full, neighbours are merged and every entry covers
//! twice the time, up to 16 s, so that the past covers the last 17 minutes. Memory per entry: 20
//! bytes per rank, 8 per node, 24 per metered communicator; 13 MB for 10,240 ranks. Evaluations that
//! are held back, up to 20 s of them, need as much each, and so does the time of a rank that is late without a
//! past, or of a job that became faster.

mod entry;

use std::collections::{BTreeMap, VecDeque};

use echo_core::stats::{mad, mean, median};

use crate::straggler::limits::set_limits;
use crate::straggler::measure::{Measured, Pace};
use crate::straggler::rule::Rule;
use crate::straggler::spread::{MAD_TO_SIGMA, lasting_deviation, median_of};
use crate::straggler::usual::{Usual, UsualFlow, UsualFlows, UsualPace};

use entry::Entry;

/// Largest number of entries.
const MAX_ENTRIES: usize = 64;

/// Largest time that one entry covers, seconds.
const MAX_ENTRY_S: f64 = 16.0;

/// Time of which the usual smallest lead is taken, seconds.
const LATEST_S: f64 = 60.0;

/// Longest time that is held back, seconds; older evaluations are added to the past. A job whose pace
/// varies would otherwise keep the past of its first seconds.
const MAX_HELD_S: f64 = 20.0;

/// Time that was slow at least, seconds, and time that was not, as a share of it, if the past as a whole was.
const LEAST_SLOW_S: f64 = 20.0;
const MOST_OTHER: f64 = 0.1;

/// Healthy past of a job.
#[derive(Debug, Default)]
pub(super) struct History {
    entries: VecDeque<Entry>,
    part: Option<Entry>,
    /// Evaluations with evidence of a fault, at most `MAX_HELD_S`, until the evidence ends or an incident
    /// opens.
    held: VecDeque<Entry>,
    /// Time that an entry covers at least, seconds; 0 while every evaluation is an entry.
    entry_s: f64,
}

impl History {
    /// Appends a healthy evaluation of this length, and those that were held back before it.
    pub(super) fn push(&mut self, measured: &Measured, seconds: f64) {
        for held in std::mem::take(&mut self.held) {
            self.append(held);
        }
        self.append(Entry::from_measured(measured, seconds));
    }

    /// Holds back an evaluation with evidence against a rank. If it belongs to a fault, it would raise
    /// the allowance, and the rest of the fault would be no evidence.
    /// Returns true if an older one was added to the past.
    pub(super) fn hold(&mut self, measured: &Measured, seconds: f64) -> bool {
        self.held.push_back(Entry::from_measured(measured, seconds));
        let held_s: f64 = self.held.iter().map(|entry| entry.seconds).sum();
        let oldest = self.held.pop_front_if(|_| held_s > MAX_HELD_S);
        let is_added = oldest.is_some();
        if let Some(oldest) = oldest {
            self.append(oldest);
        }
        is_added
    }

    /// Drops the evaluations that were held back, because they belong to a fault.
    pub(super) fn forget_held(&mut self) {
        self.held.clear();
    }

    fn append(&mut self, entry: Entry) {
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

    /// Adds the past of another time.
    pub(super) fn join(&mut self, other: Self) {
        let own = std::mem::take(self);
        self.entry_s = own.entry_s.max(other.entry_s);
        let all = [own, other].into_iter();
        let all = all.flat_map(|past| past.entries.into_iter().chain(past.part));
        let mut all: Vec<Entry> = all.collect();
        all.sort_by(|a, b| a.until.total_cmp(&b.until));
        for entry in all {
            self.append(entry);
        }
    }

    /// All entries, oldest first.
    fn all(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.iter().chain(&self.part)
    }

    /// Returns true if more than this share was lost in nearly all of the time before an instant, and that is
    /// long enough: while a job starts, one rank often has more to do.
    pub(super) fn is_slower_than(&self, usual: &Usual, share: f64, until: f64) -> bool {
        let (mut slow_s, mut other_s) = (0.0, 0.0);
        for entry in self.all().take_while(|one| one.until <= until) {
            let paces: Vec<(usize, Pace)> = entry.paces.iter().map(|(c, p)| (*c, *p)).collect();
            let is_slow = usual.loss(&paces).is_some_and(|loss| loss.share > share);
            *(if is_slow { &mut slow_s } else { &mut other_s }) += entry.seconds;
        }
        slow_s >= LEAST_SLOW_S && other_s <= MOST_OTHER * slow_s
    }

    /// The evaluations that ended before an instant, job time, latest first; neighbours may be merged.
    pub(super) fn before(&self, until: f64) -> impl Iterator<Item = Measured> {
        let entries = self.all().rev();
        entries
            .skip_while(move |entry| entry.until > until)
            .map(Entry::measured)
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
        if self.len() < 2 || self.seconds() < rule.need_s {
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
                .map(|(comm, paces)| (comm, UsualPace::from_paces(&paces)))
                .collect(),
            allowance: rule.allowance,
            enough_s: rule.enough_s,
            enough_alone_s: rule.enough_s,
            sigma: 0.0,
            entry_s: median_of(self.entries.iter().map(|entry| entry.seconds)),
        };
        let losses = self.losses(&usual);
        // A pause does not count: it says nothing about how the pace varies.
        let seconds = losses
            .iter()
            .map(|(seconds, loss)| seconds * (1.0 - loss.max(0.0)));
        let seconds: f64 = seconds.sum();
        (seconds >= rule.need_s).then(|| {
            set_limits(&mut usual, (seconds, &losses), rule);
            usual
        })
    }

    /// Length of each entry, seconds, and share of it that was lost.
    fn losses(&self, usual: &Usual) -> Vec<(f64, f64)> {
        let losses = self.entries.iter().filter_map(|entry| {
            let paces: Vec<(usize, Pace)> = entry.paces.iter().map(|(c, p)| (*c, *p)).collect();
            Some((entry.seconds, usual.signed_loss(&paces)?))
        });
        losses.collect()
    }

    /// Usual waiting and leads of the ranks and nodes of an evaluation.
    pub(super) fn flows(&self, measured: &Measured) -> UsualFlows {
        UsualFlows {
            ranks: self.ranks(measured.ranks.len()),
            nodes: self.nodes(measured.nodes.len()),
        }
    }

    /// Usual waiting and leads by rank.
    pub(super) fn ranks(&self, n: usize) -> Vec<UsualFlow> {
        let value = |entry: &Entry, rank: usize| entry.ranks.get(rank).copied();
        let ranks = (0..n).map(|rank| self.usual_flow(|entry| value(entry, rank)));
        pooled(ranks.collect())
    }

    /// The latest entries, of so little time that clocks hardly drift apart in it.
    fn latest(&self) -> impl Iterator<Item = &Entry> {
        let mut seconds = 0.0;
        self.entries.iter().rev().take_while(move |entry| {
            let is_latest = seconds < LATEST_S;
            seconds += entry.seconds;
            is_latest
        })
    }

    /// Usual waiting by node.
    fn nodes(&self, n: usize) -> Vec<UsualFlow> {
        let value = |entry: &Entry, node: usize| {
            let [net, peer] = entry.nodes.get(node).copied()?;
            Some([net, peer, f32::NAN, f32::NAN, f32::NAN])
        };
        let nodes = (0..n).map(|node| self.usual_flow(|entry| value(entry, node)));
        pooled(nodes.collect())
    }

    fn usual_flow(&self, value: impl Fn(&Entry) -> Option<[f32; 5]> + Copy) -> UsualFlow {
        let mut series: [Vec<f64>; 4] = Default::default();
        let mut peers: Vec<(f64, f64)> = Vec::new();
        for entry in &self.entries {
            let Some(means) = value(entry) else {
                continue;
            };
            let [_, peer, ..] = means;
            peers.push((entry.seconds, f64::from(peer)));
            for (series, mean) in series.iter_mut().zip(means) {
                if mean.is_finite() {
                    series.push(f64::from(mean));
                }
            }
        }
        let [net, peer, lead, transfer] = &series;
        let lows = self.latest().filter_map(value);
        let lows = lows
            .map(|[.., low]| f64::from(low))
            .filter(|low| low.is_finite());
        let lows: Vec<f64> = lows.collect();
        UsualFlow {
            net: median(net).unwrap_or(0.0),
            peer: median(peer).unwrap_or(0.0),
            sigma: lasting_deviation(&peers),
            lead: median(lead).unwrap_or(f64::NAN),
            low: median(&lows).unwrap_or(f64::NAN),
            lead_sigma: MAD_TO_SIGMA * mad(lead).unwrap_or(0.0),
            transfer: median(transfer).unwrap_or(f64::NAN),
        }
    }
}

/// The same with one deviation for all: any rank can do what another one did.
fn pooled(mut flows: Vec<UsualFlow>) -> Vec<UsualFlow> {
    let pool = |own: fn(&UsualFlow) -> f64| {
        let squares: Vec<f64> = flows.iter().map(|flow| own(flow).powi(2)).collect();
        mean(&squares).unwrap_or(0.0).sqrt()
    };
    let (sigma, lead_sigma) = (pool(|flow| flow.sigma), pool(|flow| flow.lead_sigma));
    for flow in &mut flows {
        (flow.sigma, flow.lead_sigma) = (sigma, lead_sigma);
    }
    flows
}

#[cfg(test)]
mod tests {
    use super::{History, Measured, Pace, Rule, Usual};

    /// What a past of evaluations says, each of so many seconds and operations.
    fn usual(evaluations: impl IntoIterator<Item = (f64, f64)>) -> Option<Usual> {
        let mut history = History::default();
        for (seconds, operations) in evaluations {
            let pace = Pace {
                seconds,
                operations,
                blocks: 1.0,
                ..Pace::default()
            };
            let measured = Measured {
                paces: vec![(0, pace)],
                ..Measured::default()
            };
            history.push(&measured, seconds);
        }
        history.usual(&Rule::default())
    }

    #[test]
    fn a_job_that_compiles_for_half_a_minute_is_known_no_better_than_without_it() {
        // The pace varies by a fifth, for 10 s each.
        let healthy = || (0..25).map(|n| (2.0, if n % 10 < 5 { 1_000.0 } else { 800.0 }));
        let limits = |usual: Usual| (usual.allowance, usual.enough_s);
        let after = |first| usual([first].into_iter().chain(healthy())).map(limits);
        let (known, after_pause) = (after((2.0, 1_000.0)), after((24.0, 11.0)));
        assert_eq!(after_pause, known);
        assert!(usual([(24.0, 11.0), (2.0, 1_000.0), (2.0, 1_000.0)]).is_none());
    }
}
