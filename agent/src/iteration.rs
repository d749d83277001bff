//! Finds the pattern that a job repeats on one communicator.
//!
//! A period `p` is taken when the last `max(2p, 128)` signatures repeat with it, the smallest such
//! `p` first. Searches happen at fixed sequence numbers, so that all ranks of a communicator find
//! the same pattern at the same operation.

use std::collections::VecDeque;

/// Fewest operations that show a pattern: shorter runs of equal layers look like one.
const MIN_EVIDENCE: usize = 128;
const MAX_PERIOD: usize = 4096;
const SEARCH_EVERY: u64 = 16;
const MAX_SPANS: usize = 16;

/// Operations that follow a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    first: u64,
    last: u64,
    period: u64,
}

/// Follows the signatures of one communicator.
#[derive(Debug, Default)]
pub struct PatternTracker {
    recent: VecDeque<u64>,
    next_seq: u64,
    known: Option<Known>,
    follows: bool,
    spans: VecDeque<Span>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    period: usize,
    // The wrapping sum of one period's signatures is the same wherever the period is cut.
    sum: u64,
}

impl PatternTracker {
    /// A tracker whose first operation will be `seq`.
    pub fn starting_at(seq: u64) -> Self {
        Self {
            next_seq: seq,
            ..Self::default()
        }
    }

    /// Leaves out `n` operations that were not seen: what came before them does not go on after them.
    pub fn skip(&mut self, n: u64) {
        if n > 0 {
            self.next_seq += n;
            self.recent.clear();
            self.follows = false;
        }
    }

    /// Takes the next operation; true when a pattern was found that was not known before.
    pub fn push(&mut self, signature: u64) -> bool {
        let seq = self.next_seq;
        self.next_seq += 1;
        self.recent.push_back(signature);
        if self.recent.len() > 2 * MAX_PERIOD {
            self.recent.pop_front();
        }
        if self.follows && self.continues(seq, signature) {
            return false;
        }
        self.follows = false;
        self.resume(seq) || (self.next_seq.is_multiple_of(SEARCH_EVERY) && self.search(seq))
    }

    /// Operations of one iteration, while the pattern holds.
    pub fn period(&self) -> Option<u64> {
        self.follows
            .then(|| self.spans.back().map(|span| span.period))
            .flatten()
    }

    /// First operation of the pattern that holds now.
    pub fn pattern_start(&self) -> Option<u64> {
        self.follows
            .then(|| self.spans.back().map(|span| span.first))
            .flatten()
    }

    /// Iterations that the operations from `first` to `last` make up, as far as they follow a pattern.
    #[expect(
        clippy::cast_precision_loss,
        reason = "sequence numbers stay far below 2^53"
    )]
    pub fn iterations(&self, first: u64, last: u64) -> Option<f64> {
        let parts = self.spans.iter().filter_map(|span| {
            let ops = overlap(span, first, last);
            (ops > 0).then(|| ops as f64 / span.period as f64)
        });
        let sum: f64 = parts.sum();
        (sum > 0.0).then_some(sum)
    }

    /// Whether all operations from `first` to `last` follow a pattern.
    pub fn covers(&self, first: u64, last: u64) -> bool {
        let ops: u64 = self
            .spans
            .iter()
            .map(|span| overlap(span, first, last))
            .sum();
        first <= last && ops == last - first + 1
    }

    fn continues(&mut self, seq: u64, signature: u64) -> bool {
        let Some(known) = self.known else {
            return false;
        };
        if self.back(known.period) != Some(signature) {
            return false;
        }
        if let Some(span) = self.spans.back_mut() {
            span.last = seq;
        }
        true
    }

    // After a disturbance one clean period is enough, because the pattern is known already.
    fn resume(&mut self, seq: u64) -> bool {
        let Some(known) = self.known else {
            return false;
        };
        if self
            .spans
            .back()
            .is_some_and(|span| seq - span.last < known.period as u64)
        {
            return false;
        }
        if self.recent.len() >= known.period && self.sum_of_last(known.period) == known.sum {
            self.follow(seq + 1 - known.period as u64, seq, known.period);
        }
        false
    }

    fn search(&mut self, seq: u64) -> bool {
        let newest_first: Vec<u64> = self.recent.iter().rev().copied().collect();
        let Some(period) = smallest_period(&newest_first) else {
            return false;
        };
        let repeats = newest_first.iter().zip(newest_first.iter().skip(period));
        let ops = repeats.take_while(|(newer, older)| newer == older).count() + period;
        let known = Known {
            period,
            sum: self.sum_of_last(period),
        };
        let is_new = self.known != Some(known);
        self.known = Some(known);
        self.follow(seq + 1 - ops as u64, seq, period);
        is_new
    }

    fn follow(&mut self, first: u64, last: u64, period: usize) {
        let free_from = self.spans.back().map_or(0, |span| span.last + 1);
        self.follows = true;
        self.spans.push_back(Span {
            first: first.max(free_from),
            last,
            period: period as u64,
        });
        if self.spans.len() > MAX_SPANS {
            self.spans.pop_front();
        }
    }

    fn back(&self, distance: usize) -> Option<u64> {
        let at = self.recent.len().checked_sub(distance + 1)?;
        self.recent.get(at).copied()
    }

    fn sum_of_last(&self, n: usize) -> u64 {
        self.recent
            .iter()
            .rev()
            .take(n)
            .fold(0, |sum: u64, value| sum.wrapping_add(*value))
    }
}

fn overlap(span: &Span, first: u64, last: u64) -> u64 {
    (span.last.min(last) + 1).saturating_sub(span.first.max(first))
}

/// The smallest `p` with which the first `max(2p, 128)` values repeat.
///
/// The prefix function of Knuth, Morris and Pratt gives the smallest period of every prefix at once.
fn smallest_period(values: &[u64]) -> Option<usize> {
    let borders = borders(values);
    let period_of = |len: usize| borders.get(len - 1).map(|border| len - border);
    let short = period_of(MIN_EVIDENCE).filter(|period| 2 * period <= MIN_EVIDENCE);
    short.or_else(|| {
        (MIN_EVIDENCE / 2 + 1..=MAX_PERIOD)
            .take_while(|period| 2 * period <= values.len())
            .find(|&period| period_of(2 * period) == Some(period))
    })
}

fn borders(values: &[u64]) -> Vec<usize> {
    let mut borders: Vec<usize> = Vec::with_capacity(values.len());
    let mut border = 0;
    for (at, value) in values.iter().enumerate() {
        while at > 0 && border > 0 && values.get(border) != Some(value) {
            border = borders.get(border - 1).copied().unwrap_or(0);
        }
        if at > 0 && values.get(border) == Some(value) {
            border += 1;
        }
        borders.push(border);
    }
    borders
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(tracker: &mut PatternTracker, signatures: impl IntoIterator<Item = u64>) {
        for signature in signatures {
            tracker.push(signature);
        }
    }

    fn repeat(pattern: &[u64], times: usize) -> impl Iterator<Item = u64> + '_ {
        pattern.iter().copied().cycle().take(pattern.len() * times)
    }

    #[test]
    fn the_pattern_reaches_back_to_its_first_operation() {
        let mut tracker = PatternTracker::default();
        feed(&mut tracker, [90, 91, 92]);
        feed(&mut tracker, repeat(&[1, 2, 2, 3], 40));
        assert_eq!(
            (tracker.period(), tracker.pattern_start()),
            (Some(4), Some(3))
        );
        assert_eq!(tracker.iterations(0, 6), Some(1.0));
        assert!(tracker.covers(3, 100) && !tracker.covers(2, 100));
    }

    #[test]
    fn equal_layers_are_not_taken_for_the_whole_iteration() {
        let layers: Vec<u64> = (0..100).map(|at| u64::from(at == 99)).collect();
        let mut tracker = PatternTracker::default();
        feed(&mut tracker, repeat(&layers, 3));
        assert_eq!(tracker.period(), Some(100));
    }

    #[test]
    fn nothing_is_known_of_operations_that_do_not_repeat() {
        let mut tracker = PatternTracker::default();
        feed(&mut tracker, 0..1000);
        assert_eq!((tracker.period(), tracker.iterations(0, 999)), (None, None));
    }

    #[test]
    fn a_disturbance_costs_one_iteration_and_is_not_counted() {
        let mut tracker = PatternTracker::default();
        feed(&mut tracker, repeat(&[1, 2, 3, 4], 40));
        feed(&mut tracker, [99, 98]);
        assert_eq!(tracker.period(), None);
        feed(&mut tracker, repeat(&[1, 2, 3, 4], 2));
        assert_eq!(tracker.period(), Some(4));
        assert_eq!(tracker.iterations(160, 169), Some(2.0));
    }

    #[test]
    fn operations_that_were_not_seen_belong_to_no_pattern() {
        let mut tracker = PatternTracker::default();
        feed(&mut tracker, repeat(&[1, 2, 3, 4], 40));
        tracker.skip(5);
        assert_eq!(tracker.period(), None);
        feed(&mut tracker, repeat(&[2, 3, 4, 1], 2));
        assert_eq!(tracker.period(), Some(4));
        assert!(tracker.covers(165, 172) && !tracker.covers(160, 172));
    }

    #[test]
    fn another_pattern_replaces_the_first() {
        let mut tracker = PatternTracker::default();
        feed(&mut tracker, repeat(&[1, 2], 100));
        feed(&mut tracker, repeat(&[5, 6, 7], 100));
        assert_eq!(tracker.period(), Some(3));
        assert_eq!(tracker.iterations(198, 203), Some(1.0 + 4.0 / 3.0));
    }

    #[test]
    fn a_long_iteration_needs_two_of_itself() {
        let long: Vec<u64> = (0..1000).collect();
        let mut tracker = PatternTracker::default();
        feed(&mut tracker, repeat(&long, 1));
        assert_eq!(tracker.period(), None);
        feed(&mut tracker, repeat(&long, 2));
        assert_eq!(tracker.period(), Some(1000));
    }
}
