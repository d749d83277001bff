//! Detection of the iteration that a job repeats on one communicator.
//!
//! An iteration begins at each occurrence of its *anchor*, a signature that occurs once per
//! iteration. The anchor cuts the operations into segments; segments that have the same operations
//! as most others, in any order, are iterations. Among all signatures that explain most operations
//! this way, the one with the shortest iteration of several operations is the anchor. So the
//! operations of a log line, an evaluation or a checkpoint spoil only the segment that contains
//! them, and the distance between two log lines is never mistaken for the iteration.
//!
//! Searches run at fixed sequence numbers, so that all ranks of a communicator find the same
//! iteration at the same operation.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// Minimum number of operations for an iteration: shorter runs of equal layers look like one.
const MIN_EVIDENCE: usize = 128;
/// Maximum number of operations considered.
const MAX_EVIDENCE: usize = 8192;
/// Initial interval between searches, in operations.
const SEARCH_EVERY: u64 = 64;
/// Interval between searches once an iteration is known, or after many failed searches.
const REVIEW_EVERY: u64 = 1024;
/// Minimum fraction of the operations that an iteration has to explain.
const MIN_EXPLAINED: f64 = 0.8;
/// Minimum fraction of the segments that have to be alike.
const MIN_ALIKE: f64 = 0.7;
/// Maximum fraction of the segments that may have insertions: what occurs in every other segment
/// belongs to the iteration.
const MAX_EXTRAS: f64 = 0.4;
/// Fraction of the recent operations below which a known iteration has ended.
const MIN_STILL_EXPLAINED: f64 = 0.2;
/// Minimum number of equal segments.
const MIN_SEGMENTS: usize = 2;

/// Tracks the signatures of one communicator.
#[derive(Debug, Default)]
pub struct PatternTracker {
    recent: VecDeque<u64>,
    next_seq: u64,
    known: Option<Pattern>,
}

/// Iteration of a communicator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// Number of operations per iteration.
    pub period: u64,
    /// Number of occurrences of each signature per iteration.
    pub signatures: BTreeMap<u64, u64>,
}

impl Pattern {
    /// Returns the number of iterations that operations amount to, counting the signatures that
    /// belong to one.
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of operations stay far below 2^53"
    )]
    pub fn iterations<'s>(&self, signatures: impl IntoIterator<Item = (&'s u64, &'s u64)>) -> f64 {
        let own = signatures
            .into_iter()
            .filter(|(signature, _)| self.signatures.contains_key(signature));
        let n_ops: u64 = own.map(|(_, n)| n).sum();
        n_ops as f64 / self.period as f64
    }

    /// Returns the signatures that occur once per iteration.
    pub fn anchors(&self) -> impl Iterator<Item = u64> {
        let once = self.signatures.iter().filter(|(_, n)| **n == 1);
        once.map(|(signature, _)| *signature)
    }
}

impl PatternTracker {
    /// Creates a tracker whose first operation has number `seq`.
    pub fn starting_at(seq: u64) -> Self {
        Self {
            next_seq: seq,
            ..Self::default()
        }
    }

    /// Skips `n` operations that were not seen: the operations before them are not continued by
    /// those after them.
    pub fn skip(&mut self, n: u64) {
        if n > 0 {
            self.next_seq += n;
            self.recent.clear();
        }
    }

    /// Adds the next operation and returns whether a new iteration was found.
    pub fn push(&mut self, signature: u64) -> bool {
        self.next_seq += 1;
        self.recent.push_back(signature);
        if self.recent.len() > MAX_EVIDENCE {
            self.recent.pop_front();
        }
        let is_young = !self.is_settled() && self.recent.len() < MAX_EVIDENCE / 8;
        let every = if is_young { SEARCH_EVERY } else { REVIEW_EVERY };
        self.next_seq.is_multiple_of(every) && self.search()
    }

    /// Returns the iteration, once known.
    pub fn pattern(&self) -> Option<&Pattern> {
        self.known.as_ref()
    }

    /// Returns the number of operations per iteration, once known.
    pub fn period(&self) -> Option<u64> {
        self.known.as_ref().map(|known| known.period)
    }

    fn is_settled(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.period > 1)
    }

    fn search(&mut self) -> bool {
        if self.recent.len() < MIN_EVIDENCE {
            return false;
        }
        // Operations that are all alike may turn out to be layers of an iteration.
        let is_settled = self.is_settled();
        let recent = self.recent.make_contiguous();
        if let Some(known) = self.known.as_ref().filter(|_| is_settled)
            && explained(known, recent) >= MIN_STILL_EXPLAINED
        {
            return false;
        }
        let found = shortest(recent).filter(|found| self.known.as_ref() != Some(found));
        let is_new = found.is_some();
        self.known = found.or_else(|| self.known.take());
        is_new
    }
}

/// Returns the fraction of the operations that belong to an iteration.
#[expect(clippy::cast_precision_loss, reason = "bounded by the evidence")]
fn explained(pattern: &Pattern, recent: &[u64]) -> f64 {
    let own = recent
        .iter()
        .filter(|signature| pattern.signatures.contains_key(signature));
    own.count() as f64 / recent.len() as f64
}

/// Returns the shortest iteration that explains most of the operations.
fn shortest(recent: &[u64]) -> Option<Pattern> {
    let mut positions: HashMap<u64, Vec<usize>> = HashMap::new();
    for (at, signature) in recent.iter().enumerate() {
        positions.entry(*signature).or_default().push(at);
    }
    // Wrapping sums of the scrambled signatures before each operation: equal segments have equal
    // sums, in any order.
    let mut sums = vec![0_u64];
    for signature in recent {
        let last = sums.last().copied().unwrap_or(0);
        sums.push(last.wrapping_add(scrambled(*signature)));
    }
    let candidates = positions.into_values();
    let best = candidates
        .filter_map(|positions| typical_segment(recent, &positions, &sums))
        .min_by_key(|segment| (segment.len == 1, segment.len, segment.from))?;
    let mut signatures = BTreeMap::new();
    for signature in recent.get(best.from..best.from + best.len)? {
        *signatures.entry(*signature).or_insert(0) += 1;
    }
    Some(Pattern {
        period: best.len as u64,
        signatures,
    })
}

/// Operations between two occurrences of an anchor.
#[derive(Debug, Clone, Copy)]
struct Segment {
    from: usize,
    len: usize,
}

/// Returns the segment that most others between these anchors equal; `None` when it does not
/// explain most of the operations.
#[expect(clippy::cast_precision_loss, reason = "bounded by the evidence")]
fn typical_segment(recent: &[u64], anchors: &[usize], sums: &[u64]) -> Option<Segment> {
    let mut alike: HashMap<(usize, u64), (usize, Segment)> = HashMap::new();
    for (from, to) in anchors.iter().zip(anchors.iter().skip(1)) {
        let sum = sums.get(*to)?.wrapping_sub(*sums.get(*from)?);
        let segment = Segment {
            from: *from,
            len: to - from,
        };
        let entry = alike.entry((segment.len, sum)).or_insert((0, segment));
        entry.0 += 1;
    }
    let ops = |(n, segment): &(usize, Segment)| n * segment.len;
    let first = |(_, segment): &(usize, Segment)| std::cmp::Reverse(segment.from);
    let others: Vec<(usize, Segment)> = alike.into_values().collect();
    let typical = *others
        .iter()
        .max_by_key(|found| (ops(found), first(found)))?;
    // Segments with insertions contain the typical one as well.
    let with_extras = others.iter().filter(|(_, other)| {
        other.len > typical.1.len
            && other.len <= 2 * typical.1.len
            && contains_all(recent, *other, typical.1)
    });
    let n_extras = with_extras.map(|(n, _)| n).sum::<usize>();
    let n_alike = typical.0 + n_extras;
    // Operations before the first anchor and after the last one may be parts of iterations.
    let whole = anchors.last()? - anchors.first()?;
    let outside = recent
        .len()
        .saturating_sub(whole)
        .saturating_sub(2 * typical.1.len);
    let explained = (n_alike * typical.1.len) as f64;
    // An anchor that occurs twice per iteration cuts it into a long segment and a short one.
    let is_usual = explained >= MIN_EXPLAINED * (whole + outside) as f64
        && n_alike as f64 >= MIN_ALIKE * (anchors.len() - 1) as f64;
    let is_usual = is_usual && n_extras as f64 <= MAX_EXTRAS * n_alike as f64;
    (typical.0 >= MIN_SEGMENTS && ops(&typical) >= MIN_EVIDENCE / 4 && is_usual)
        .then_some(typical.1)
}

/// Returns whether a segment contains all operations of another one.
fn contains_all(recent: &[u64], segment: Segment, typical: Segment) -> bool {
    let counts = |segment: Segment| {
        let mut counts: HashMap<u64, usize> = HashMap::new();
        let ops = recent.get(segment.from..segment.from + segment.len);
        for signature in ops.into_iter().flatten() {
            *counts.entry(*signature).or_default() += 1;
        }
        counts
    };
    let all = counts(segment);
    let mut needed = counts(typical).into_iter();
    needed.all(|(signature, n)| all.get(&signature).is_some_and(|has| *has >= n))
}

/// Spreads a signature over all bits, so that sums of small numbers do not collide.
fn scrambled(signature: u64) -> u64 {
    xxhash_rust::xxh64::xxh64(&signature.to_le_bytes(), 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn feed(tracker: &mut PatternTracker, signatures: impl IntoIterator<Item = u64>) {
        for signature in signatures {
            tracker.push(signature);
        }
    }

    fn repeat(pattern: &[u64], times: usize) -> impl Iterator<Item = u64> + '_ {
        pattern.iter().copied().cycle().take(pattern.len() * times)
    }

    fn counts(signatures: &[u64]) -> BTreeMap<u64, u64> {
        let mut counts = BTreeMap::new();
        for signature in signatures {
            *counts.entry(*signature).or_insert(0) += 1;
        }
        counts
    }

    #[test]
    fn operations_before_the_first_iteration_belong_to_none() {
        let mut tracker = PatternTracker::default();
        feed(&mut tracker, [90, 91, 92]);
        feed(&mut tracker, repeat(&[1, 2, 2, 3], 40));
        assert_eq!(tracker.period(), Some(4));
        let pattern = tracker.pattern().unwrap();
        let iterations = pattern.iterations(&counts(&[90, 91, 92, 1, 2, 2, 3]));
        assert!((iterations - 1.0).abs() < 1e-9, "{iterations}");
    }

    #[test]
    fn equal_layers_are_not_mistaken_for_the_iteration() {
        let layers: Vec<u64> = (0..100).map(|at| u64::from(at == 99)).collect();
        let mut tracker = PatternTracker::default();
        feed(&mut tracker, repeat(&layers, 6));
        assert_eq!(tracker.period(), Some(100));
    }

    #[test]
    fn an_alternating_backward_pass_is_not_mistaken_for_the_iteration() {
        let forward = std::iter::once(9).chain(std::iter::repeat_n(1, 32));
        let layers: Vec<u64> = forward.chain([1, 2].repeat(32)).collect();
        let mut tracker = PatternTracker::default();
        feed(&mut tracker, repeat(&layers, 10));
        assert_eq!(tracker.period(), Some(97));
    }

    #[test]
    fn operations_that_do_not_repeat_have_no_iteration() {
        let mut tracker = PatternTracker::default();
        feed(&mut tracker, 0..1000);
        assert_eq!(tracker.period(), None);
    }

    #[test]
    fn the_distance_between_log_lines_is_never_mistaken_for_the_iteration() {
        let mut tracker = PatternTracker::default();
        for _ in 0..40 {
            feed(&mut tracker, repeat(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 50));
            feed(&mut tracker, [77, 78]);
            assert_eq!(tracker.period(), Some(10));
        }
    }

    #[test]
    fn unseen_operations_do_not_change_the_iteration() {
        let mut tracker = PatternTracker::default();
        feed(&mut tracker, repeat(&[1, 2, 3, 4], 40));
        tracker.skip(5);
        assert_eq!(tracker.period(), Some(4));
        feed(&mut tracker, repeat(&[2, 3, 4, 1], 400));
        assert_eq!(tracker.period(), Some(4));
    }

    #[test]
    fn operations_in_every_other_segment_belong_to_the_iteration() {
        // Cut at 1, each iteration has two segments, one of which also contains 50.
        let iteration = [50, 0, 3, 1, 0, 3, 3, 0, 2, 1, 2, 3, 0];
        for from in 0..iteration.len() {
            let mut tracker = PatternTracker::starting_at(from as u64);
            feed(&mut tracker, repeat(&iteration, 300).skip(from));
            assert_eq!(tracker.period(), Some(13), "from {from}");
        }
    }

    #[test]
    fn the_iteration_of_a_new_program_replaces_the_old_one() {
        let mut tracker = PatternTracker::default();
        feed(&mut tracker, repeat(&[1, 2], 100));
        feed(&mut tracker, repeat(&[5, 6, 7], 4000));
        assert_eq!(tracker.period(), Some(3));
    }

    #[test]
    fn a_long_iteration_is_found_after_three_repetitions() {
        let long: Vec<u64> = (0..1000).collect();
        let mut tracker = PatternTracker::default();
        feed(&mut tracker, repeat(&long, 2));
        assert_eq!(tracker.period(), None);
        feed(&mut tracker, repeat(&long, 3));
        assert_eq!(tracker.period(), Some(1000));
    }

    proptest! {
        /// Loops of any length with insertions at any distance: every rank finds an iteration, and
        /// none contains the insertions. A loop that nearly repeats itself within may be found
        /// shorter; otherwise ranks that start at different operations find the same one.
        #[test]
        fn random_loops_with_random_extras_give_the_true_iteration(
            layers in prop::collection::vec(0_u64..4, 1..40),
            is_in_order in any::<bool>(),
            every in 5_usize..80,
            extras in prop::collection::vec(100_u64..104, 1..6),
            first in 0_usize..200,
        ) {
            let mut layers = layers;
            if is_in_order {
                layers.sort_unstable();
            }
            // One operation of the iteration differs from the others, as the largest bucket does.
            let iteration: Vec<u64> = std::iter::once(50).chain(layers).collect();
            let mut all = Vec::new();
            for step in 0..4_000 / iteration.len() {
                all.extend(&iteration);
                if step % every == every - 1 && extras.len() * 10 <= every * iteration.len() {
                    all.extend(&extras);
                }
            }
            let pattern_from = |from: usize| {
                let mut tracker = PatternTracker::starting_at(from as u64);
                feed(&mut tracker, all.iter().skip(from).copied());
                tracker.pattern().cloned()
            };
            for found in [pattern_from(0).unwrap(), pattern_from(first).unwrap()] {
                prop_assert!(found.period <= iteration.len() as u64);
                prop_assert!(found.signatures.keys().all(|signature| *signature < 100));
            }
            if is_in_order {
                prop_assert_eq!(pattern_from(0), pattern_from(first));
            }
        }
    }
}
