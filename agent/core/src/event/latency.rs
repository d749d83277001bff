//! Durations of library calls of one process, as histograms.

use std::collections::BTreeMap;

use crate::event::Direction;

/// Linear buckets per octave, as a power of two.
const BUCKET_BITS: u32 = 2;
const PER_OCTAVE: u64 = 1 << BUCKET_BITS;

/// Calls of the GPU's libraries by one process over a short window, by function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallDurations {
    /// End of the window, nanoseconds.
    pub ts_ns: u64,
    /// Calling process.
    pub pid: u32,
    /// Functions that were called in the window.
    pub calls: Vec<FunctionDurations>,
    /// Sizes of kernel launches; `None` if the source does not sample them.
    pub launch_sizes: Option<LaunchSizes>,
}

/// Calls of one function by one process over a short window.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FunctionDurations {
    /// Name of the function, such as `cudaMalloc` or `ncclAllReduce`.
    pub function: String,
    /// Direction of a copy; `None` for other functions.
    pub direction: Option<Direction>,
    /// Durations of the calls, nanoseconds.
    pub histogram: LogHistogram,
    /// Sum of the durations, nanoseconds.
    pub total_ns: u64,
    /// Longest duration, nanoseconds; the upper bound of its bucket unless it is the longest since
    /// tracing of the process began.
    pub longest_ns: u64,
    /// Calls in which the thread was preempted, of threads that also issue operations or wait for the GPU; `None` if the source
    /// does not see that.
    pub interrupted: Option<u64>,
    /// Bytes copied or allocated by the calls; 0 for other functions.
    pub bytes: u64,
}

impl FunctionDurations {
    /// Returns the name of the function, for copies with the direction: `cudaMemcpyAsync to host`.
    pub fn label(&self) -> String {
        match self.direction {
            Some(direction) => format!("{} {}", self.function, direction.name()),
            None => self.function.clone(),
        }
    }

    /// Returns the number of calls.
    pub fn calls(&self) -> u64 {
        self.histogram.count()
    }

    /// Returns the duration that a percentage of the calls did not exceed, nanoseconds, as
    /// [`LogHistogram::percentile`] does, and at most the longest duration.
    pub fn percentile_ns(&self, percent: u8) -> Option<u64> {
        let estimate = self.histogram.percentile(percent)?;
        Some(estimate.min(self.longest_ns))
    }

    /// Adds the calls of a later window.
    pub fn merge(&mut self, later: &Self) {
        self.histogram.merge(&later.histogram);
        self.total_ns = self.total_ns.saturating_add(later.total_ns);
        self.longest_ns = self.longest_ns.max(later.longest_ns);
        if let Some(later) = later.interrupted {
            self.interrupted = Some(self.interrupted.unwrap_or(0).saturating_add(later));
        }
        self.bytes = self.bytes.saturating_add(later.bytes);
    }
}

impl Direction {
    /// Returns its number as a `cudaMemcpyKind`; that of the default if it is not specified.
    pub const fn to_cuda_kind(self) -> u32 {
        match self {
            Self::ToDevice => 1,
            Self::ToHost => 2,
            Self::WithinDevice => 3,
            Self::Unspecified => 4,
        }
    }

    /// Returns its name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ToDevice => "to device",
            Self::ToHost => "to host",
            Self::WithinDevice => "within device",
            Self::Unspecified => "unspecified",
        }
    }
}

/// Sizes of kernel launches, sampled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaunchSizes {
    /// Thread blocks of a launch.
    pub grid: LogHistogram,
    /// Threads of a block.
    pub block: LogHistogram,
    /// Sum of the blocks.
    pub grid_total: u64,
    /// Sum of the threads of a block.
    pub block_total: u64,
}

impl LaunchSizes {
    /// Adds the launches of a later window.
    pub fn merge(&mut self, later: &Self) {
        self.grid.merge(&later.grid);
        self.block.merge(&later.block);
        self.grid_total = self.grid_total.saturating_add(later.grid_total);
        self.block_total = self.block_total.saturating_add(later.block_total);
    }
}

/// Histogram with four linear buckets per octave: an estimate taken from it deviates from a value
/// by at most a ninth of the value, 11.1 %. Values below 8 are exact.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogHistogram {
    counts: BTreeMap<u8, u64>,
}

impl LogHistogram {
    /// Number of buckets, which cover all values.
    pub const BUCKETS: usize = 252;

    /// Returns the bucket of a value.
    pub fn bucket(value: u64) -> u8 {
        let number = match value.checked_ilog2() {
            Some(exponent) if exponent >= BUCKET_BITS => {
                let octave = u64::from(exponent - BUCKET_BITS) + 1;
                octave * PER_OCTAVE + (value >> (exponent - BUCKET_BITS) & (PER_OCTAVE - 1))
            }
            _ => value,
        };
        // At most 251, that of the largest value.
        number.to_le_bytes()[0]
    }

    /// Returns the smallest value of a bucket; the largest number for buckets that do not exist.
    pub fn lower_bound(bucket: u8) -> u64 {
        let number = u64::from(bucket);
        if usize::from(bucket) >= Self::BUCKETS {
            return u64::MAX;
        }
        match (number / PER_OCTAVE).checked_sub(1) {
            None => number,
            Some(shift) => (PER_OCTAVE + number % PER_OCTAVE) << shift,
        }
    }

    /// Returns the largest value of a bucket.
    pub fn upper_bound(bucket: u8) -> u64 {
        match Self::lower_bound(bucket.saturating_add(1)) {
            u64::MAX => u64::MAX,
            next => next - 1,
        }
    }

    /// Adds a number of equal values.
    pub fn record(&mut self, value: u64, times: u64) {
        self.add(Self::bucket(value), times);
    }

    /// Adds a number of values to a bucket. Numbers from [`LogHistogram::BUCKETS`] on are ignored.
    pub fn add(&mut self, bucket: u8, times: u64) {
        if times > 0 && usize::from(bucket) < Self::BUCKETS {
            let count = self.counts.entry(bucket).or_default();
            *count = count.saturating_add(times);
        }
    }

    /// Adds all values of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, times) in other.buckets() {
            self.add(bucket, times);
        }
    }

    /// Returns the buckets that are not empty, smallest values first, with their counts.
    pub fn buckets(&self) -> impl Iterator<Item = (u8, u64)> {
        self.counts.iter().map(|(bucket, times)| (*bucket, *times))
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.counts
            .values()
            .fold(0, |sum, times| sum.saturating_add(*times))
    }

    /// Returns whether it has no values.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Returns an estimate of the smallest value that `percent` per cent of the values do not
    /// exceed; `None` without values. It deviates from that value by at most a ninth of it.
    pub fn percentile(&self, percent: u8) -> Option<u64> {
        let wanted = u128::from(self.count()) * u128::from(percent.min(100));
        let rank = wanted.div_ceil(100).max(1);
        let mut seen = 0;
        for (bucket, times) in self.buckets() {
            seen += u128::from(times);
            if seen >= rank {
                return Some(Self::estimate(bucket));
            }
        }
        None
    }

    /// Returns estimates of the values, smallest first, with their numbers. Each deviates from its values by at
    /// most a ninth of them.
    pub fn estimates(&self) -> impl Iterator<Item = (u64, u64)> {
        self.buckets()
            .map(|(bucket, times)| (Self::estimate(bucket), times))
    }

    /// Returns the value with the least relative deviation from any value of a bucket: the harmonic
    /// mean of its bounds.
    fn estimate(bucket: u8) -> u64 {
        let lower = u128::from(Self::lower_bound(bucket));
        let width = 1_u128 << (u64::from(bucket) / PER_OCTAVE).saturating_sub(1);
        if width == 1 {
            return Self::lower_bound(bucket);
        }
        let upper = lower + width;
        u64::try_from(lower * upper / u128::midpoint(lower, upper)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn histogram(values: &[u64]) -> LogHistogram {
        let mut histogram = LogHistogram::default();
        for value in values {
            histogram.record(*value, 1);
        }
        histogram
    }

    /// Any value, in any octave.
    fn value() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0_u32..64).prop_map(|(bits, shift)| bits >> shift)
    }

    #[test]
    fn buckets_are_contiguous_and_cover_all_values() {
        for bucket in 1..=251_u8 {
            let lower = LogHistogram::lower_bound(bucket);
            assert_eq!(LogHistogram::bucket(lower), bucket);
            assert_eq!(LogHistogram::bucket(lower - 1), bucket - 1);
        }
        assert_eq!(LogHistogram::bucket(0), 0);
        assert_eq!(LogHistogram::bucket(u64::MAX), 251);
        assert_eq!(LogHistogram::lower_bound(252), u64::MAX);
        assert_eq!(LogHistogram::upper_bound(251), u64::MAX);
        assert_eq!(LogHistogram::upper_bound(7), 7);
    }

    #[test]
    fn an_empty_histogram_has_no_percentiles() {
        assert_eq!(LogHistogram::default().percentile(50), None);
        assert_eq!(FunctionDurations::default().percentile_ns(99), None);
    }

    #[test]
    fn a_percentile_does_not_exceed_the_longest_call() {
        let calls = FunctionDurations {
            histogram: histogram(&[1000; 3]),
            longest_ns: 900,
            ..FunctionDurations::default()
        };
        assert_eq!(calls.percentile_ns(99), Some(900));
    }

    #[test]
    fn copies_are_named_with_their_direction() {
        let mut calls = FunctionDurations {
            function: "cudaMemcpyAsync".to_owned(),
            ..FunctionDurations::default()
        };
        assert_eq!(calls.label(), "cudaMemcpyAsync");
        calls.direction = Some(Direction::ToHost);
        assert_eq!(calls.label(), "cudaMemcpyAsync to host");
    }

    proptest! {
        #[test]
        fn a_percentile_deviates_from_the_true_one_by_a_ninth_at_most(
            mut values in proptest::collection::vec(value(), 1..200),
            percent in 0_u8..=100,
        ) {
            let estimate = histogram(&values).percentile(percent).unwrap();
            values.sort_unstable();
            let rank = (values.len() * usize::from(percent)).div_ceil(100).max(1);
            let exact = values[rank - 1];
            prop_assert!(u128::from(exact.abs_diff(estimate)) * 9 <= u128::from(exact));
        }

        #[test]
        fn merging_is_the_same_as_recording_all_values(
            first in proptest::collection::vec(value(), 0..50),
            second in proptest::collection::vec(value(), 0..50),
        ) {
            let mut merged = histogram(&first);
            merged.merge(&histogram(&second));
            let all = [first, second].concat();
            prop_assert_eq!(&merged, &histogram(&all));
            prop_assert_eq!(merged.count(), all.len() as u64);
        }

        #[test]
        fn percentiles_grow_with_the_percentage(
            values in proptest::collection::vec(value(), 1..50),
        ) {
            let histogram = histogram(&values);
            let percentiles: Vec<_> =
                (0..=100).map(|percent| histogram.percentile(percent)).collect();
            prop_assert!(percentiles.is_sorted());
        }
    }
}
