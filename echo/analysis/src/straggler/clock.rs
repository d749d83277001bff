//! Clocks of the hosts, aligned roughly. Operations end everywhere at once, so the ends of one
//! block show the differences of the clocks. Only used to place blocks in time.

use echo_core::stats::median;

/// Weight of a new difference in the smoothed offset: follows a drift of 200 ppm within
/// milliseconds.
const WEIGHT: f64 = 0.1;

/// Number of windows that a block is ahead of later ones only if a clock of its ranks was set.
const FAR: i64 = 8;

/// Clocks of the ranks of a job, by their offsets from the job's clock, seconds.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    offsets: Vec<Option<f64>>,
    /// Latest window in which a block ended, unless it was far ahead of the others.
    window: Option<i64>,
}

impl Clocks {
    /// Adds a rank, whose clock is not aligned yet.
    pub(super) fn push(&mut self) {
        self.offsets.push(None);
    }

    /// Offset of the clock of a rank, if it is aligned.
    pub(super) fn offset(&self, rank: usize) -> Option<f64> {
        self.offsets.get(rank).copied().flatten()
    }

    /// Returns true if no clock is aligned.
    pub(super) fn is_unaligned(&self) -> bool {
        self.offsets.iter().all(Option::is_none)
    }

    /// Gives a rank the offset of another one, in whose place it is, unless it has one.
    pub(super) fn replace(&mut self, old: usize, new: usize) {
        let offset = self.offset(old);
        if let Some(own) = self.offsets.get_mut(new) {
            *own = own.or(offset);
        }
    }

    /// Instant of a block on the job's clock, from the ends that its ranks report. Aligns the clocks of
    /// these ranks to it; those without an offset if another rank has one, or if `is_first`.
    pub(super) fn align(&mut self, ends: &[(usize, f64)], is_first: bool) -> f64 {
        let known = ends
            .iter()
            .filter_map(|(rank, end)| Some(end - self.offset(*rank)?));
        let known: Vec<f64> = known.collect();
        let has_known = !known.is_empty();
        let raw = || median(&ends.iter().map(|(_, end)| *end).collect::<Vec<f64>>());
        let Some(instant) = median(&known).or_else(raw) else {
            return 0.0;
        };
        for (rank, end) in ends {
            if let Some(own) = self.offsets.get_mut(*rank) {
                let new = end - instant;
                *own = match *own {
                    Some(old) => Some(WEIGHT.mul_add(new - old, old)),
                    None if has_known || is_first => Some(new),
                    None => None,
                };
            }
        }
        instant
    }

    /// Aligns the clocks of all ranks by blocks of several ranks each: two ranks without a communicator
    /// in common are aligned by way of others.
    pub(super) fn align_all(&mut self, blocks: &[Vec<(usize, f64)>]) {
        loop {
            let known = self.offsets.iter().flatten().count();
            for ends in blocks {
                self.align(ends, self.is_unaligned());
            }
            if self.offsets.iter().flatten().count() == known {
                break;
            }
        }
        self.center();
    }

    /// Notes that a block ended in a window. The job's clock becomes the median of those of its ranks
    /// with the first block of each window: not with the evaluation of a window, which comes some blocks
    /// later if a rank reports late.
    pub(super) fn note_window(&mut self, window: i64) {
        let is_new = |latest: i64| window > latest || latest.saturating_sub(window) > FAR;
        if self.window.is_none_or(is_new) {
            self.window = Some(window);
            self.center();
        }
    }

    /// Makes the job's clock the median of those of its ranks. One rank whose clock is far from the
    /// others, or drifts, would otherwise move it.
    fn center(&mut self) {
        let offsets = self.offsets.iter().copied().flatten();
        let middle = median(&offsets.collect::<Vec<f64>>()).unwrap_or(0.0);
        for offset in self.offsets.iter_mut().flatten() {
            *offset -= middle;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Clocks;

    fn clocks(ranks: usize) -> Clocks {
        let mut clocks = Clocks::default();
        (0..ranks).for_each(|_| clocks.push());
        clocks
    }

    #[test]
    fn clocks_of_ranks_without_a_common_communicator_are_aligned_by_way_of_others() {
        let mut clocks = clocks(4);
        let (first, second) = (vec![(0, 5.0), (1, 15.0)], vec![(2, 9.0), (3, 25.0)]);
        clocks.align_all(&[first, second, vec![(1, 16.0), (2, 10.0)]]);
        // Of the clock of rank 0: 0, 10, 4, and 20 s; the median is 7.
        for (rank, expected) in [-7.0, 3.0, -3.0, 13.0].into_iter().enumerate() {
            let offset = clocks.offset(rank).expect("it is aligned");
            assert!((offset - expected).abs() < 1e-9, "{clocks:?}");
        }
    }

    #[test]
    fn a_block_far_in_the_future_does_not_end_the_centering() {
        let mut clocks = clocks(1);
        clocks.align(&[(0, 5.0)], true);
        for (window, is_centered) in [
            (1, true),
            (1, false),
            (0, false),
            (900, true),
            (2, true),
            (2, false),
        ] {
            clocks.offsets = vec![Some(3.0)];
            clocks.note_window(window);
            assert_eq!(clocks.offset(0) == Some(0.0), is_centered, "{window}");
        }
    }

    #[test]
    fn clocks_of_hosts_are_aligned_by_the_ends_of_common_operations() {
        let mut clocks = clocks(3);
        assert!((clocks.align(&[(0, 5.0), (1, 15.0)], true) - 10.0).abs() < 1e-9);
        assert!((clocks.align(&[(0, 6.0), (1, 16.0)], false) - 11.0).abs() < 1e-9);
        // The third rank is placed by one that is known.
        assert!((clocks.align(&[(1, 17.0), (2, 100.0)], false) - 12.0).abs() < 1e-9);
        assert!((clocks.align(&[(2, 101.0)], false) - 13.0).abs() < 1e-9);
    }
}
