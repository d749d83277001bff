//! A rank for which all others wait, while there is no past to compare with.

use crate::straggler::bill::Entry;
use crate::straggler::measure::Measured;
use crate::straggler::rule::Rule;

/// Time after which a rank is late for which its peers wait `healthy_wait` of the time or little more, seconds. Where collectives run beside the computation, peers wait during
/// the backward pass only: two thirds of the time for a rank that costs 40 %. In the recordings of real jobs,
/// no healthy rank was waited for like that for more than 8 s.
const LASTING_S: f64 = 30.0;

/// Rank for which all others wait, in one evaluation after another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alone {
    /// The rank.
    pub(super) rank: usize,
    /// Begin and end, job time, seconds.
    since: f64,
    until: f64,
    /// Length of the past at the beginning, seconds.
    past_s: f64,
    /// Waiting of each peer, seconds.
    waited_s: f64,
    /// Part of it that is on no bill, and its beginning, job time, seconds.
    unbilled_s: f64,
    billed: f64,
}

impl Alone {
    /// The rank for which all others wait in an evaluation, with what they waited for it before.
    /// `past_s` is the length of the past, seconds.
    pub(super) fn take(
        before: Option<Self>,
        measured: &Measured,
        past_s: f64,
        rule: &Rule,
    ) -> Option<Self> {
        let (rank, flow) = measured.always_last()?;
        let is_alone = flow.peer >= rule.healthy_wait
            && flow.suffered <= (1.0 - rule.alone) * flow.peer
            && measured.seconds > 0.0;
        if !is_alone {
            return None;
        }
        let since = measured.until - measured.seconds;
        let mut alone = before.filter(|alone| alone.rank == rank).unwrap_or(Self {
            rank,
            since,
            until: since,
            past_s,
            waited_s: 0.0,
            unbilled_s: 0.0,
            billed: since,
        });
        // Operations that overlap are waited for at once.
        let waited_s = measured.seconds * flow.peer.min(1.0);
        alone.until = measured.until;
        alone.waited_s += waited_s;
        alone.unbilled_s += waited_s;
        Some(alone)
    }

    /// Returns true if the past was too short when it began.
    pub(super) fn has_no_past(&self, rule: &Rule) -> bool {
        self.past_s <= 2.0 * rule.need_s
    }

    /// Returns true if no healthy job waits like this.
    pub(super) fn is_late(&self, rule: &Rule) -> bool {
        self.lasts() || self.excess_s(rule) >= 2.0 * rule.enough_s
    }

    /// Returns true if it may turn out to be late, so that this is no past.
    pub(super) fn may_be_late(&self, rule: &Rule) -> bool {
        self.lasts() || self.excess_s(rule) >= rule.enough_s / 2.0
    }

    /// Waiting of each peer beyond the longest of healthy jobs, seconds.
    fn excess_s(&self, rule: &Rule) -> f64 {
        let healthy_s = rule.healthy_wait * (self.until - self.since);
        self.waited_s - healthy_s
    }

    fn lasts(&self) -> bool {
        self.until - self.since >= LASTING_S
    }

    /// The lower bound of the loss that is on no bill yet.
    pub(super) fn bill(&mut self, measured: &Measured, rule: &Rule) -> Entry {
        let seconds = self.until - self.billed;
        let waited = self.unbilled_s / seconds;
        let loss = (waited - rule.healthy_wait).clamp(0.0, 1.0);
        let entry = Entry {
            from: self.billed,
            to: self.until,
            loss,
            weight: 1.0,
            gpu_s: measured.lost_gpu_s(seconds, loss),
            waited,
            late: 0.0,
        };
        self.settle();
        entry
    }

    /// Leaves nothing to bill up to now: it is on a bill, or the past tells the loss.
    pub(super) fn settle(&mut self) {
        self.unbilled_s = 0.0;
        self.billed = self.until;
    }
}

#[cfg(test)]
mod tests {
    use super::{Alone, Measured, Rule};
    use crate::straggler::measure::Flow;

    /// An evaluation of 2 s of two ranks, in which the peer waits for rank 0 for a share of the time.
    fn evaluation(until: f64, peer: f64) -> Measured {
        let waited = Flow {
            peer,
            ..Flow::default()
        };
        Measured {
            until,
            seconds: 2.0,
            ranks: vec![waited, Flow::default()],
            living: 2,
            ..Measured::default()
        }
    }

    /// What is known after evaluations of these shares.
    fn after(shares: impl IntoIterator<Item = f64>) -> (Option<Alone>, Measured) {
        let mut alone = None;
        let mut last = Measured::default();
        for (number, share) in (1_u32..).zip(shares) {
            last = evaluation(2.0 * f64::from(number), share);
            alone = Alone::take(alone, &last, 0.0, &Rule::default());
        }
        (alone, last)
    }

    fn is_late(shares: impl IntoIterator<Item = f64>) -> bool {
        let (alone, _) = after(shares);
        alone.is_some_and(|alone| alone.is_late(&Rule::default()))
    }

    #[test]
    fn a_rank_is_late_after_ten_seconds_of_waiting_all_the_time_and_after_thirty_of_most_of_it() {
        assert!(!is_late([1.0; 4]) && is_late([1.0; 5]));
        assert!(!is_late([0.62; 14]) && is_late([0.62; 15]));
    }

    #[test]
    fn an_evaluation_in_which_the_peers_wait_less_begins_anew() {
        let mut shares = [0.62; 16];
        shares[8] = 0.5;
        assert!(!is_late(shares));
        assert!(!is_late([f64::NAN; 20]));
    }

    #[test]
    fn all_waiting_since_the_beginning_is_billed_once_and_none_that_the_past_tells() {
        let rule = Rule::default();
        let (alone, last) = after([0.7; 15]);
        let mut alone = alone.unwrap();
        let first = alone.bill(&last, &rule);
        // A tenth of 30 s of two GPUs.
        assert_eq!((first.from, first.to), (0.0, 30.0));
        assert!((first.gpu_s - 6.0).abs() < 1e-9, "{first:?}");
        let next = |alone: Alone, until: f64| {
            let measured = evaluation(until, 0.7);
            Alone::take(Some(alone), &measured, 0.0, &rule).unwrap()
        };
        let mut of_the_past = next(alone, 32.0);
        of_the_past.settle();
        let mut alone = next(of_the_past, 34.0);
        let second = alone.bill(&last, &rule);
        assert_eq!((second.from, second.to), (32.0, 34.0));
    }
}
