//! Lateness: evidence about one rank from the waiting for it, for jobs whose pace varies.
//!
//! Where the work per operation varies, as in inference, a loss of 20 % is within the spread of the
//! pace, but the waiting for a late rank is far beyond the spread of the waiting. So the waiting
//! says who and when, and the mean pace over the same time confirms that it costs something. Both are
//! cumulative sums, which begin anew when one of them is used up: waiting that costs nothing, as in
//! the first iterations, is no part of what follows. The cost is the waiting times the ratio of both, which varies less than the pace does (the ratio
//! estimator; Cochran, Sampling Techniques, 1977, chapter 6).

use std::collections::BTreeMap;

use crate::straggler::bill::{Bill, Entry};
use crate::straggler::evidence::{MOST_AT_ONCE, evidence};
use crate::straggler::measure::Measured;
use crate::straggler::rule::Rule;
use crate::straggler::spread::MEAN_S;
use crate::straggler::usual::{UsualFlow, beyond};

/// The mean loss has to be so many standard deviations above 0.
const CONFIRMED_SIGMAS: f64 = 2.5;

/// An evaluation may lose so many standard deviations more than the waiting explains.
const CHANCE_SIGMAS: f64 = 1.0;

/// Share of the loss that the waiting must cover in pipelines. It shows in few operations there: the
/// durations of a grouped send and receive do not contain it.
const LEAST_OF_TRANSFERS: f64 = 0.2;

/// Evidence about all ranks for which others wait more than usual.
#[derive(Debug, Default)]
pub(super) struct Lateness {
    ranks: BTreeMap<usize, Late>,
    /// Rank that was named.
    named: Option<usize>,
    has_transfers: bool,
}

/// Evidence about one rank: a cumulative sum.
#[derive(Debug, Default)]
struct Late {
    /// Waiting beyond the usual and the allowance, as a multiple of what makes a verdict.
    evidence: f64,
    /// Waiting beyond the usual, per peer, and time lost by the pace that it explains, since it began,
    /// seconds. The latter is negative while the job is faster than usual.
    waited_s: f64,
    lost_s: f64,
    /// Time lost in evaluations that lost no more than it explains, seconds.
    confirmed_s: f64,
    /// Time since it began, seconds.
    seconds: f64,
    /// Waiting, evaluation by evaluation.
    bill: Bill,
}

impl Late {
    /// Lost time per waiting, which covers at least the share `least_explained` of the loss.
    fn ratio(&self, least_explained: f64) -> f64 {
        (self.lost_s / self.waited_s).clamp(0.0, 1.0 / least_explained)
    }
}

impl Lateness {
    /// Sets whether the job has sends and receives.
    pub(super) fn set_transfers(&mut self, has_transfers: bool) {
        self.has_transfers = has_transfers;
    }

    /// Counts one evaluation, in which the share `loss` of the time was lost; it is negative where
    /// the job was faster than usual. `sigma` is the standard deviation of the usual pace over 10 s.
    pub(super) fn count(
        &mut self,
        measured: &Measured,
        usual: &[UsualFlow],
        (loss, sigma): (f64, f64),
        rule: &Rule,
    ) {
        let seconds = measured.seconds;
        // By chance an evaluation loses so much more than the mean.
        let chance = CHANCE_SIGMAS * sigma * (MEAN_S / seconds).sqrt();
        let least_explained = self.least_explained(rule);
        let flows = measured.ranks.iter().zip(usual).enumerate();
        for (rank, (flow, usual)) in flows {
            let (allowance, enough_s) = rule.limits(usual.sigma);
            let rise = beyond(*flow, usual, loss);
            let waited = rise.net.min(rise.peer).min(1.0);
            if waited <= allowance && !self.ranks.contains_key(&rank) {
                continue;
            }
            let more = (seconds * evidence(waited, allowance) / enough_s).min(MOST_AT_ONCE);
            let late = self.ranks.entry(rank).or_default();
            late.evidence = (late.evidence + more).clamp(0.0, 2.0);
            late.waited_s += seconds * waited;
            // What the waiting does not explain is lost by something else, such as a checkpoint, and then
            // nothing shows that it is lost by the rank as well.
            let most = waited / least_explained + chance;
            late.lost_s += seconds * loss.min(most);
            if loss <= most {
                late.confirmed_s += seconds * loss;
            }
            late.seconds += seconds;
            if waited > allowance {
                late.bill.push(entry(measured, waited, 1.0));
            }
        }
        let named = self.named;
        self.ranks.retain(|rank, late| {
            let may_cost = late.confirmed_s > rule.least_late * late.seconds;
            late.evidence > 0.0 && may_cost || Some(*rank) == named
        });
    }

    /// Largest evidence about any rank, as a multiple of what makes a verdict.
    pub(super) fn largest(&self) -> f64 {
        let evidence = self.ranks.values().map(|late| late.evidence);
        evidence.fold(0.0, f64::max)
    }

    /// The one rank with enough evidence that the pace confirms, with its losses so far. `sigma` is
    /// the standard deviation of the usual pace over 10 s.
    pub(super) fn sufficient(&self, sigma: f64, rule: &Rule) -> Option<(usize, Bill)> {
        let longest = |but: Option<usize>| {
            let others = self.ranks.iter().filter(|(rank, _)| Some(**rank) != but);
            others.max_by(|a, b| a.1.waited_s.total_cmp(&b.1.waited_s))
        };
        let (rank, late) = longest(None)?;
        let next = longest(Some(*rank)).map_or(0.0, |(_, next)| next.waited_s);
        let is_root = late.waited_s >= rule.root * next;
        let by_chance = CONFIRMED_SIGMAS * sigma * (MEAN_S * late.seconds).sqrt();
        let least_s = (rule.least_late * late.seconds).max(rule.late_enough_s);
        let is_confirmed = late.confirmed_s >= by_chance.max(least_s);
        let is_sufficient = late.evidence >= 1.0 && is_root && is_confirmed;
        is_sufficient.then(|| {
            (
                *rank,
                late.bill.scaled(late.ratio(self.least_explained(rule))),
            )
        })
    }

    /// Share of the loss that the waiting must cover.
    const fn least_explained(&self, rule: &Rule) -> f64 {
        if self.has_transfers {
            LEAST_OF_TRANSFERS
        } else {
            rule.explain
        }
    }

    /// Remembers that a rank was named.
    pub(super) fn name(&mut self, rank: usize) {
        self.named = Some(rank);
    }

    /// Rank that was named.
    pub(super) const fn named(&self) -> Option<usize> {
        self.named
    }

    /// Loss of the latest evaluation by the named rank; `None` if it was not late in it.
    pub(super) fn latest(&self, measured: &Measured, rule: &Rule) -> Option<(usize, Entry)> {
        let rank = self.named?;
        let late = self.ranks.get(&rank)?;
        let last = late.bill.last().filter(|last| last.to >= measured.until)?;
        let ratio = late.ratio(self.least_explained(rule));
        Some((rank, entry(measured, last.waited, ratio)))
    }

    /// Forgets one rank.
    pub(super) fn forget(&mut self, rank: usize) {
        self.ranks.remove(&rank);
        self.named = self.named.filter(|named| *named != rank);
    }

    /// Forgets all ranks but the one that was named.
    pub(super) fn forget_unnamed(&mut self) {
        let named = self.named;
        self.ranks.retain(|rank, _| Some(*rank) == named);
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Loss of an evaluation in which each peer waited a share `waited` of the time.
fn entry(measured: &Measured, waited: f64, ratio: f64) -> Entry {
    let loss = ratio * waited;
    Entry {
        from: measured.until - measured.seconds,
        to: measured.until,
        loss,
        weight: 1.0,
        gpu_s: measured.lost_gpu_s(measured.seconds, loss),
        waited,
        late: 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::Lateness;
    use crate::straggler::measure::{Flow, Measured};
    use crate::straggler::rule::Rule;
    use crate::straggler::usual::UsualFlow;

    /// Standard deviation of the pace over 10 s.
    const SIGMA: f64 = 0.03;

    /// Evidence after evaluations of 2 s, each with its loss and the waiting for rank 1 of two.
    fn after(evaluations: impl IntoIterator<Item = (f64, f64)>) -> Lateness {
        let mut lateness = Lateness::default();
        let mut measured = Measured {
            seconds: 2.0,
            living: 2,
            ..Measured::default()
        };
        for (loss, waited) in evaluations {
            measured.until += 2.0;
            let flow = Flow {
                net: waited,
                peer: waited,
                ..Flow::default()
            };
            measured.ranks = vec![Flow::default(), flow];
            lateness.count(
                &measured,
                &[UsualFlow::default(); 2],
                (loss, SIGMA),
                &Rule::default(),
            );
        }
        lateness
    }

    fn named(lateness: &Lateness) -> Option<(usize, f64)> {
        let (rank, bill) = lateness.sufficient(SIGMA, &Rule::default())?;
        let entries = bill.without_ripples();
        Some((rank, entries.iter().map(|entry| entry.gpu_s).sum()))
    }

    #[test]
    fn a_loss_within_the_spread_of_the_pace_is_found_by_the_waiting_and_costs_what_the_pace_says() {
        let pace = [0.18, 0.08, 0.21, 0.06, 0.2, 0.12, 0.18, 0.13];
        let (rank, gpu_s) = named(&after(pace.map(|loss| (loss, 0.15)))).expect("a rank");
        let lost: f64 = pace.map(|loss| 2.0 * 2.0 * loss).iter().sum();
        assert_eq!(rank, 1);
        assert!((gpu_s / lost - 1.0).abs() < 0.1, "{gpu_s} of {lost}");
    }

    #[test]
    fn waiting_without_loss_names_nobody_however_long() {
        let pace = [0.1, -0.1].into_iter().cycle().take(60);
        assert_eq!(named(&after(pace.map(|loss| (loss, 0.3)))), None);
    }

    #[test]
    fn a_loss_that_the_waiting_does_not_explain_confirms_nothing() {
        // One rank is always a little late. No rank waits during the checkpoint, which is the only loss.
        let evaluations = [(0.0, 0.05), (0.0, 0.05), (0.9, 0.0), (0.0, 0.05)];
        let all = evaluations.into_iter().cycle().take(60);
        assert_eq!(named(&after(all)), None);
    }

    #[test]
    fn one_evaluation_is_not_enough() {
        assert_eq!(named(&after([(0.9, 0.9)])), None);
    }
}
