//! Offset and rate of a GPU's timer against the clock of its host. Pure.
//!
//! The end of an operation is observed some time after it, never before: `GPU end - time observed`
//! is at most the offset, and often close to it, because ends are polled continuously. The two
//! clocks also run at different rates: 5 to 20 ppm were measured on H100, which is more than a
//! millisecond per minute. So the offset is a line that lies on or above all observations, and as
//! low as possible: an edge of their upper hull.

use std::collections::VecDeque;

/// Time over which observations are reduced to the largest, nanoseconds.
const BIN_NS: u64 = 1_000_000_000;

/// Number of bins.
const MAX_BINS: usize = 32;

/// Number of bins from which on their slope tells the rate, instead of the delay of observations.
const MIN_BINS: usize = 8;

/// Largest difference of rates. Crystals differ by less than 100 ppm each.
const MAX_RATE: f64 = 200e-6;

/// Distance below the line at which three bins in a row show that the timer was set back,
/// nanoseconds.
const SET_BACK_NS: f64 = 5e6;

/// Offset of a GPU's timer to its host's clock, estimated from operations.
#[derive(Debug, Default)]
pub(super) struct GpuClock {
    /// Offset of the first observation; the others are relative to it, so that they fit a float.
    base: Option<i128>,
    bins: VecDeque<Bin>,
    /// Consecutive complete bins far below the line.
    below: u32,
    line: Line,
}

/// Largest observation of one bin.
#[derive(Debug, Clone, Copy)]
struct Bin {
    number: u64,
    at_ns: u64,
    offset_ns: f64,
}

/// Offset at an instant, and its change per nanosecond.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    at_ns: u64,
    offset_ns: f64,
    rate: f64,
}

impl Line {
    fn offset_ns(self, ts_ns: u64) -> f64 {
        self.rate
            .mul_add(elapsed(self.at_ns, ts_ns), self.offset_ns)
    }
}

impl GpuClock {
    /// Adds an operation that ended at `stop_ns` of the GPU's timer, observed at `ts_ns` of the
    /// host's clock. Returns the offset of the timer to the clock at that time, nanoseconds.
    pub(super) fn observe(&mut self, ts_ns: u64, stop_ns: u64) -> i128 {
        let offset = i128::from(stop_ns) - i128::from(ts_ns);
        let base = *self.base.get_or_insert(offset);
        self.add(ts_ns, relative(offset, base));
        base + rounded(self.line.offset_ns(ts_ns))
    }

    fn add(&mut self, ts_ns: u64, offset_ns: f64) {
        let number = ts_ns / BIN_NS;
        let new = Bin {
            number,
            at_ns: ts_ns,
            offset_ns,
        };
        let is_later = self.bins.back().is_none_or(|last| number > last.number);
        if is_later {
            self.drop_old_line();
            self.bins.push_back(new);
            if self.bins.len() > MAX_BINS {
                self.bins.pop_front();
            }
        } else {
            // Observations of several threads come a little out of order.
            let mut latest = self.bins.iter_mut().rev();
            let own = latest.find(|bin| bin.number == number);
            let Some(own) = own.filter(|own| own.offset_ns < offset_ns) else {
                return;
            };
            *own = new;
        }
        if is_later || offset_ns > self.line.offset_ns(ts_ns) {
            self.fit();
        }
    }

    /// Forgets all but the last bins when those are far below the line.
    fn drop_old_line(&mut self) {
        let last = self.bins.back();
        let is_below =
            last.is_some_and(|bin| bin.offset_ns < self.line.offset_ns(bin.at_ns) - SET_BACK_NS);
        self.below = if is_below { self.below + 1 } else { 0 };
        if self.below >= 3 {
            let kept = self.bins.len().saturating_sub(3);
            self.bins.drain(..kept);
            self.below = 0;
        }
    }

    /// Fits the line: the edge of the upper hull above the middle of the bins, which of all lines
    /// on or above them is the lowest on average. Its slope is limited, and none where there are
    /// few bins.
    fn fit(&mut self) {
        let (Some(first), Some(last)) = (self.bins.front(), self.bins.back()) else {
            return;
        };
        let at_ns = last.at_ns;
        let middle = elapsed(at_ns, first.at_ns) / 2.0;
        let points = self.bins.iter();
        let points = points.map(|bin| (elapsed(at_ns, bin.at_ns), bin.offset_ns));
        let hull = upper_hull(points.clone());
        let edges = hull.iter().zip(hull.iter().skip(1));
        let edge = edges.into_iter().find(|(_, to)| to.0 >= middle);
        let slope = edge
            .filter(|_| self.bins.len() >= MIN_BINS)
            .map_or(0.0, |(from, to)| (to.1 - from.1) / (to.0 - from.0))
            .clamp(-MAX_RATE, MAX_RATE);
        let heights = points.map(|(at, offset)| offset - slope * at);
        self.line = Line {
            at_ns,
            offset_ns: heights.fold(f64::NEG_INFINITY, f64::max),
            rate: slope,
        };
    }
}

/// Corners of the upper hull of points in order of their first coordinate (Andrew 1979).
fn upper_hull(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut hull: Vec<(f64, f64)> = Vec::new();
    for point in points {
        while let [.., before, last] = hull.as_slice() {
            let is_below = (last.0 - before.0) * (point.1 - before.1)
                >= (last.1 - before.1) * (point.0 - before.0);
            if !is_below {
                break;
            }
            hull.pop();
        }
        hull.push(point);
    }
    hull
}

/// Time from one instant to another, nanoseconds; negative if the second is earlier.
#[expect(
    clippy::cast_precision_loss,
    reason = "bins span half a minute, far below 2^53 ns"
)]
fn elapsed(from_ns: u64, to_ns: u64) -> f64 {
    if to_ns >= from_ns {
        (to_ns - from_ns) as f64
    } else {
        -((from_ns - to_ns) as f64)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a difference above 2^53 ns is another clock, and rounding does not matter"
)]
fn relative(offset: i128, base: i128) -> f64 {
    (offset - base) as f64
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "whole nanoseconds are enough, and the cast saturates"
)]
fn rounded(ns: f64) -> i128 {
    ns.round() as i128
}

#[cfg(test)]
mod tests {
    use super::GpuClock;

    const AHEAD: u64 = 1_000_000_000_000;
    const SECOND: u64 = 1_000_000_000;

    /// Instant of a GPU's timer that runs `ppm` faster than the host's clock.
    fn timer(host_ns: u64, ppm: i64) -> u64 {
        let drift = i64::try_from(host_ns / 1_000_000).unwrap() * ppm;
        (host_ns + AHEAD).checked_add_signed(drift).unwrap()
    }

    /// Delays between the end and its observation, nanoseconds: mostly some microseconds.
    fn delay(n: u64) -> u64 {
        5_000 + n * 7_919 % 97 * 1_000 + if n.is_multiple_of(13) { 3_000_000 } else { 0 }
    }

    /// Largest error of the offset, nanoseconds, over `ends` after the first ten seconds.
    fn largest_error(ends: impl Iterator<Item = (u64, u64)>) -> i128 {
        let mut clock = GpuClock::default();
        let mut worst = 0;
        for (n, (end_ns, stop_ns)) in (0..).zip(ends) {
            let offset = clock.observe(end_ns + delay(n), stop_ns);
            let exact = i128::from(stop_ns) - i128::from(end_ns);
            if end_ns > 10 * SECOND {
                worst = worst.max((offset - exact).abs());
            }
        }
        worst
    }

    #[test]
    fn drift_of_200_ppm_in_both_directions_is_followed_within_50_microseconds() {
        for ppm in [-200, -20, 0, 7, 200] {
            let ends = (1..12_000).map(|n| n * 20_000_000);
            let worst = largest_error(ends.map(|end| (end, timer(end, ppm))));
            assert!(worst < 50_000, "{worst} ns at {ppm} ppm");
        }
    }

    #[test]
    fn rare_operations_are_enough() {
        let ends = (1..400).map(|n| n * 700_000_000);
        let worst = largest_error(ends.map(|end| (end, timer(end, -20))));
        assert!(worst < 150_000, "{worst} ns");
    }

    #[test]
    fn a_timer_that_is_set_back_is_followed_after_some_seconds() {
        let mut clock = GpuClock::default();
        for n in 1..3_000 {
            let end = n * 20_000_000;
            let back = if end > 30 * SECOND { SECOND } else { 0 };
            let stop = timer(end, 0) - back;
            let offset = clock.observe(end + 5_000, stop);
            if end > 40 * SECOND {
                let exact = i128::from(stop) - i128::from(end);
                assert!((offset - exact).abs() < 100_000, "{} s", end / SECOND);
            }
        }
    }

    #[test]
    fn the_first_operation_counts_at_once() {
        let mut clock = GpuClock::default();
        assert_eq!(clock.observe(100, AHEAD + 90), i128::from(AHEAD) - 10);
        assert_eq!(clock.observe(200, AHEAD + 150), i128::from(AHEAD) - 10);
        assert_eq!(clock.observe(300, AHEAD + 295), i128::from(AHEAD) - 5);
    }
}
