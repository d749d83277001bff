//! Evidence for and against each subject, in seconds of lost time.

use std::collections::BTreeMap;

use crate::straggler::bill::{Bill, Entry, RIPPLE};
use crate::straggler::culprits::{Explanation, Rise, is_whole, several, single};
use crate::straggler::fading::FadingMeans;
use crate::straggler::measure::{Flow, Measured};
use crate::straggler::rule::Rule;
use crate::straggler::stages::{self, Source};
use crate::straggler::usual::{Loss, Usual, UsualFlow, beyond};

/// Time constant, seconds, with which the memory of a loss decays while nothing is lost.
pub(super) const REST_S: f64 = 4.0;

/// Largest evidence of one evaluation, as a share of what makes a verdict: it takes two.
pub(super) const MOST_AT_ONCE: f64 = 0.6;

/// Evidence that a second without a loss takes away, at least, seconds.
const QUIET: f64 = 0.06;

/// Shortest time of a loss that no rank explains, at its largest share, seconds: a checkpoint is no
/// fault, though it takes all of the time.
const LEAST_LASTING_S: f64 = 5.0;

/// Subject of an incident; ranks and nodes by their index in the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    /// One rank.
    Rank(usize),
    /// All ranks of one node.
    Node(usize),
    /// A loss that no rank explains.
    Unexplained,
}

/// Evidence about one subject.
#[derive(Debug, Clone, Default)]
pub(super) struct Score {
    /// Lost time that speaks for it, seconds.
    pub(super) lost: f64,
    /// Losses since the evidence began.
    pub(super) bill: Bill,
}

/// Evidence about all subjects. A cumulative sum per subject: losses that a subject explains add
/// up, time without them takes the allowance away, and unexplained losses speak against
/// all.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    scores: BTreeMap<Subject, Score>,
}

impl Evidence {
    /// Counts one evaluation. `found` is empty where there is no loss.
    pub(super) fn count(&mut self, found: &[(Subject, Entry)], seconds: f64, usual: &Usual) {
        let is_unexplained = found
            .iter()
            .any(|(subject, _)| *subject == Subject::Unexplained);
        for (subject, entry) in found {
            self.scores.entry(*subject).or_default().bill.push(*entry);
        }
        let loss = found.first().map_or(0.0, |(_, entry)| entry.loss);
        for (subject, score) in &mut self.scores {
            let own = found.iter().find(|(found, _)| found == subject);
            let share = match (own, subject) {
                (Some((_, entry)), _) => entry.loss * entry.weight,
                (None, Subject::Unexplained) => 0.0,
                (None, _) if is_unexplained => -loss,
                (None, _) => 0.0,
            };
            // One pause is no fault, however long.
            let more = seconds * evidence(share, usual.allowance);
            let enough_s = enough_s(*subject, usual);
            let more = more.min(MOST_AT_ONCE * enough_s);
            score.lost = (score.lost + more).clamp(0.0, 2.0 * enough_s);
        }
    }

    /// Subjects with enough evidence.
    pub(super) fn sufficient(&self, usual: &Usual) -> Vec<Subject> {
        let scores = self.scores.iter();
        scores
            .filter(|(subject, score)| score.lost >= enough_s(**subject, usual))
            .filter(|(subject, score)| {
                **subject != Subject::Unexplained || score.bill.lasting_s() >= LEAST_LASTING_S
            })
            .map(|(subject, _)| *subject)
            .collect()
    }

    /// Returns true if there is evidence about a subject.
    pub(super) fn has(&self, subject: Subject) -> bool {
        self.scores.contains_key(&subject)
    }

    /// Largest evidence about a rank or node, and evidence of a loss that no rank explains, seconds.
    pub(super) fn largest(&self) -> (f64, f64) {
        let mut largest = (0.0, 0.0);
        for (subject, score) in &self.scores {
            match subject {
                Subject::Unexplained => largest.1 = score.lost,
                Subject::Rank(_) | Subject::Node(_) => largest.0 = score.lost.max(largest.0),
            }
        }
        largest
    }

    /// Takes the losses of a subject since its evidence began.
    pub(super) fn take_bill(&mut self, subject: Subject) -> Bill {
        let score = self.scores.get_mut(&subject);
        score.map_or_else(Bill::default, |score| std::mem::take(&mut score.bill))
    }

    /// Forgets the subjects without evidence.
    pub(super) fn forget_spent(&mut self) {
        self.scores.retain(|_, score| score.lost > 0.0);
    }

    /// Forgets one subject.
    pub(super) fn forget(&mut self, subject: Subject) {
        self.scores.remove(&subject);
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.scores.clear();
    }
}

/// Evidence per second where the share `lost` of the time is lost. Time without a loss takes more away
/// than the allowance: a pause of a second once in a minute is no fault.
pub(super) fn evidence(lost: f64, allowance: f64) -> f64 {
    if lost > allowance {
        lost - allowance
    } else {
        -allowance.max(QUIET)
    }
}

/// Lost time that makes a verdict about a subject, seconds.
fn enough_s(subject: Subject, usual: &Usual) -> f64 {
    match subject {
        Subject::Unexplained => usual.enough_alone_s,
        Subject::Rank(_) | Subject::Node(_) => usual.enough_s,
    }
}

/// Waiting over the most recent lossy time. It fades with lost time, not with time, so that small
/// losses are judged over longer stretches.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// Loss, seconds.
    pub(super) loss: f64,
    /// Loss since the beginning of the episode, seconds.
    total: f64,
    /// Time, seconds.
    seconds: f64,
    /// By rank.
    pub(super) ranks: Vec<Rise>,
    /// By node.
    pub(super) nodes: Vec<Rise>,
    /// Leads, smallest leads, and durations of transfers.
    leads: FadingMeans,
    lows: FadingMeans,
    transfers: FadingMeans,
}

impl Recent {
    /// Adds a lossy evaluation.
    pub(super) fn add(
        &mut self,
        measured: &Measured,
        loss: Loss,
        usual: (&[UsualFlow], &[UsualFlow]),
        rule: &Rule,
    ) {
        let kept = (-loss.seconds * loss.share / rule.memory_s).exp();
        self.loss = kept.mul_add(self.loss, loss.seconds * loss.share);
        self.total += loss.seconds * loss.share;
        self.seconds = kept.mul_add(self.seconds, loss.seconds);
        fade(&mut self.ranks, kept, &measured.ranks, usual.0, loss);
        fade(&mut self.nodes, kept, &measured.nodes, usual.1, loss);
        self.leads.add(kept, &measured.leads, loss.seconds);
        self.lows.add(kept, &measured.lows, loss.seconds);
        self.transfers.add(kept, &measured.transfers, loss.seconds);
    }

    /// Decays where nothing is lost, or less than a ripple of the loss before, because the next loss may
    /// have another cause.
    pub(super) fn rest(&mut self, loss: Loss, allowance: f64) {
        if loss.share > allowance.max(RIPPLE * self.loss / self.seconds) {
            return;
        }
        let kept = (-loss.seconds / REST_S).exp();
        for sum in [&mut self.loss, &mut self.total, &mut self.seconds] {
            *sum *= kept;
        }
        for rise in self.ranks.iter_mut().chain(&mut self.nodes) {
            rise.fade(kept);
        }
        for means in [&mut self.leads, &mut self.lows, &mut self.transfers] {
            means.fade(kept);
        }
    }

    /// Standard deviations of the rises by the past alone: of a mean over `seconds` of entries
    /// whose neighbours are alike for `entry_s`, at least 10 s (turns of healthy ranks last 8 to 12
    /// s).
    pub(super) fn set_sigmas(&mut self, usual: (&[UsualFlow], &[UsualFlow]), entry_s: f64) {
        let pieces = (self.seconds / entry_s.max(10.0)).max(1.0);
        let scale = self.seconds / pieces.sqrt();
        let sides = [(&mut self.ranks, usual.0), (&mut self.nodes, usual.1)];
        for (rises, usual) in sides {
            for (rise, usual) in rises.iter_mut().zip(usual) {
                rise.sigma = usual.sigma * scale;
            }
        }
    }

    /// Share of the latest loss that peers waited for these subjects, 0 to 1, where covering
    /// `explain` of it is all. Evidence about a subject is the time that was lost to it, not the
    /// time that is lost while it is remembered.
    pub(super) fn weight(&self, subjects: &[(Subject, f64)], loss: f64, rule: &Rule) -> f64 {
        let latest = |subject: &Subject| match subject {
            Subject::Rank(rank) => self.ranks.get(*rank).map(|rise| rise.latest),
            Subject::Node(node) => self.nodes.get(*node).map(|rise| rise.latest),
            Subject::Unexplained => None,
        };
        let covered = subjects.iter().map(|(subject, _)| latest(subject));
        let covered: Option<f64> = covered.sum();
        covered.map_or(1.0, |covered| (covered / (rule.explain * loss)).min(1.0))
    }

    /// Mean share of the time that is lost.
    pub(super) fn share(&self) -> f64 {
        self.loss / self.seconds
    }

    /// Mean leads by rank, seconds; NaN if unknown.
    pub(super) fn leads(&self) -> Vec<f64> {
        self.leads.means()
    }

    /// Means of the smallest leads by rank, seconds; NaN if unknown.
    pub(super) fn lows(&self) -> Vec<f64> {
        self.lows.means()
    }

    /// Mean durations of transfers by rank, seconds; NaN if unknown.
    pub(super) fn transfers(&self) -> Vec<f64> {
        self.transfers.means()
    }

    /// Of the ranks that are late together, the one that is late by itself.
    pub(super) fn source(&self, usual: &[UsualFlow], rule: &Rule) -> Source {
        stages::source(self.loss, &self.ranks, (&self.transfers(), usual), rule)
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

fn fade(rises: &mut Vec<Rise>, kept: f64, flows: &[Flow], usual: &[UsualFlow], loss: Loss) {
    rises.resize(flows.len(), Rise::default());
    for ((rise, flow), usual) in rises.iter_mut().zip(flows).zip(usual) {
        let more = beyond(*flow, usual, loss.share);
        rise.net = kept.mul_add(rise.net, loss.seconds * more.net);
        rise.whole = kept.mul_add(rise.whole, loss.seconds * more.peer);
        let peer = more.peer.clamp(0.0, loss.share);
        rise.peer = kept.mul_add(rise.peer, loss.seconds * peer);
        rise.total += loss.seconds * peer;
        rise.latest = peer;
    }
}

/// Finds what explains the recent loss: one rank, else one node, else a few ranks. Several ranks
/// are not told where there are transfers, whose durations may lack the waiting; of those that are late
/// together, the transfers tell the source.
pub(super) fn explain(
    recent: &Recent,
    (node_of, usual): (&[u32], &[UsualFlow]),
    has_transfers: bool,
    rule: &Rule,
) -> Explanation {
    let lasts = |rises: &[Rise], named: &[usize]| {
        let totals = named.iter().filter_map(|at| rises.get(*at));
        totals.map(|rise| rise.total).sum::<f64>() >= rule.explain_all * recent.total
    };
    let source = recent.source(usual, rule);
    let is_all = |rise: &Rise| rise.total >= rule.explain_all * recent.total;
    let is_new = |rise: &Rise| rise.whole >= rule.rise_sigmas * rise.sigma;
    let named = match source {
        Source::Certain(rank) => Some(rank)
            .filter(|rank| recent.ranks.get(*rank).is_some_and(is_new))
            .filter(|_| recent.ranks.iter().any(is_all)),
        Source::Likely(_) | Source::Unknown => single(recent.loss, &recent.ranks, rule)
            .filter(|rank| source.allows(*rank))
            .filter(|rank| lasts(&recent.ranks, &[*rank])),
    };
    if let Some(rank) = named {
        return Explanation::Ranks(vec![(rank, 1.0)]);
    }
    if let Some(node) = single(recent.loss, &recent.nodes, rule)
        && is_whole(&recent.ranks, node_of, node)
        && lasts(&recent.nodes, &[node])
    {
        return Explanation::Node(node);
    }
    let several = several(recent.loss, &recent.ranks, rule).filter(|ranks| {
        let named: Vec<usize> = ranks.iter().map(|(rank, _)| *rank).collect();
        !has_transfers && lasts(&recent.ranks, &named)
    });
    several.map_or(Explanation::Unexplained, Explanation::Ranks)
}

/// Subjects of an explanation, each with its share.
pub(super) fn subjects(explanation: &Explanation) -> Vec<(Subject, f64)> {
    match explanation {
        Explanation::Unexplained => vec![(Subject::Unexplained, 1.0)],
        Explanation::Node(node) => vec![(Subject::Node(*node), 1.0)],
        Explanation::Dry(rank) => vec![(Subject::Rank(*rank), 1.0)],
        Explanation::Ranks(ranks) => ranks
            .iter()
            .map(|(rank, share)| (Subject::Rank(*rank), *share))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, Evidence, Subject, Usual, evidence};

    /// Returns true if losses that no rank explains, each of an evaluation of 2 s of a steady job, make a
    /// verdict.
    fn is_verdict(losses: impl IntoIterator<Item = f64>) -> bool {
        let usual = Usual {
            allowance: 0.02,
            enough_s: 1.0,
            enough_alone_s: 1.2,
            ..Usual::default()
        };
        let mut evidence = Evidence::default();
        losses.into_iter().any(|loss| {
            let entry = Entry {
                from: 0.0,
                to: 2.0,
                loss,
                weight: 1.0,
                gpu_s: 0.0,
                waited: 0.0,
                late: 0.0,
            };
            let found = [(Subject::Unexplained, entry)];
            evidence.count(if loss > 0.0 { &found } else { &[] }, 2.0, &usual);
            !evidence.sufficient(&usual).is_empty()
        })
    }

    #[test]
    fn a_pause_of_all_ranks_is_no_slowdown_and_a_small_loss_of_20_s_is_one() {
        assert!(!is_verdict([0.0, 0.9, 0.9, 0.0, 0.0]));
        assert!(!is_verdict([0.22, 0.9, 0.22, 0.0]));
        assert!(is_verdict([0.0, 0.9, 0.9, 0.9]));
        assert!(is_verdict([0.09; 10]));
        assert!(!is_verdict([0.05; 10]));
    }

    #[test]
    fn a_pause_once_in_a_minute_is_forgotten_and_a_loss_in_a_quarter_of_the_time_adds_up() {
        let lossy = |for_s: f64| for_s * evidence(0.5, 0.02);
        let quiet = |for_s: f64| for_s * evidence(0.0, 0.02);
        let (pause, pulses) = ([lossy(2.0), quiet(58.0)], [lossy(3.0), quiet(9.0)]);
        assert!(pause.iter().sum::<f64>() < 0.0);
        assert!(pulses.iter().sum::<f64>() > 0.5);
    }

    #[test]
    fn a_small_loss_counts_as_far_as_it_exceeds_the_allowance() {
        assert!((evidence(0.08, 0.03) - 0.05).abs() < 1e-12);
    }
}
