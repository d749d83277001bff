//! Clocks of the hosts, aligned roughly. Operations end everywhere at once, so the ends of one
//! block show the differences of the clocks. Only used to place blocks in time.

use echo_core::stats::median;

/// Weight of a new difference in the smoothed offset: follows a drift of 200 ppm within
/// milliseconds.
const WEIGHT: f64 = 0.1;

/// Instant of a block on the job's clock, from the ends that its ranks report, and the offsets of
/// these ranks after it. Ranks without an offset get one if another rank has one, or if the job has
/// none at all.
pub(super) fn align(ends: &[(usize, f64)], offsets: &mut [Option<f64>], is_first: bool) -> f64 {
    let offset = |rank: usize, offsets: &[Option<f64>]| offsets.get(rank).copied().flatten();
    let known: Vec<f64> = ends
        .iter()
        .filter_map(|(rank, end)| Some(end - offset(*rank, offsets)?))
        .collect();
    let has_known = !known.is_empty();
    let raw = || median(&ends.iter().map(|(_, end)| *end).collect::<Vec<f64>>());
    let Some(instant) = median(&known).or_else(raw) else {
        return 0.0;
    };
    for (rank, end) in ends {
        if let Some(own) = offsets.get_mut(*rank) {
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

/// Aligns the clocks of all ranks by blocks of several ranks each: two ranks without a communicator in
/// common are aligned by way of others. The job's clock is then the median of theirs, as of [`center`].
pub(super) fn align_all(blocks: &[Vec<(usize, f64)>], offsets: &mut [Option<f64>]) {
    loop {
        let known = offsets.iter().flatten().count();
        for ends in blocks {
            let is_first = offsets.iter().all(Option::is_none);
            align(ends, offsets, is_first);
        }
        if offsets.iter().flatten().count() == known {
            break;
        }
    }
    center(offsets);
}

/// Makes the job's clock the median of those of its ranks. One rank whose clock is far from the others,
/// or drifts, would otherwise move it.
pub(super) fn center(offsets: &mut [Option<f64>]) {
    let middle = median(&offsets.iter().copied().flatten().collect::<Vec<f64>>());
    for offset in offsets.iter_mut().flatten() {
        *offset -= middle.unwrap_or(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::{align, align_all};

    #[test]
    fn clocks_of_ranks_without_a_common_communicator_are_aligned_by_way_of_others() {
        let mut offsets = vec![None; 4];
        let (first, second) = (vec![(0, 5.0), (1, 15.0)], vec![(2, 9.0), (3, 25.0)]);
        align_all(&[first, second, vec![(1, 16.0), (2, 10.0)]], &mut offsets);
        let offsets: Vec<f64> = offsets.into_iter().flatten().collect();
        // Of the clock of rank 0: 0, 10, 4, and 20 s; the median is 7.
        for (offset, expected) in offsets.iter().zip([-7.0, 3.0, -3.0, 13.0]) {
            assert!((offset - expected).abs() < 1e-9, "{offsets:?}");
        }
    }

    #[test]
    fn clocks_of_hosts_are_aligned_by_the_ends_of_common_operations() {
        let mut offsets = vec![None, None, None];
        assert!((align(&[(0, 5.0), (1, 15.0)], &mut offsets, true) - 10.0).abs() < 1e-9);
        assert!((align(&[(0, 6.0), (1, 16.0)], &mut offsets, false) - 11.0).abs() < 1e-9);
        // The third rank is placed by one that is known.
        assert!((align(&[(1, 17.0), (2, 100.0)], &mut offsets, false) - 12.0).abs() < 1e-9);
        assert!((align(&[(2, 101.0)], &mut offsets, false) - 13.0).abs() < 1e-9);
    }
}
