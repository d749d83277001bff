//! Histograms of the calls object: counterparts of the structs in `programs/durations.h`.

use crate::layout::{CallSum, Fields, FunctionSum, sum_key};

/// Number of the first bucket of durations; buckets are numbered as in the agent's histograms.
pub const FIRST_BUCKET: u8 = 28;
const BUCKETS: usize = 112;
const GRID_BUCKETS: usize = 128;
const BLOCK_BUCKETS: usize = 40;

/// Durations of the calls of one function in one process since it was first seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FunctionHistogram {
    /// Process id.
    pub tgid: u32,
    /// Function number; the second byte is the direction of a copy.
    pub op: u32,
    /// Bytes of copies and allocations.
    pub bytes: u64,
    /// Total duration, nanoseconds.
    pub total_ns: u64,
    /// Longest duration, nanoseconds.
    pub longest_ns: u64,
    /// Calls in which the thread was preempted.
    pub interrupted: u64,
    /// Calls by duration, from bucket [`FIRST_BUCKET`] on. Counts wrap.
    pub buckets: Vec<u32>,
}

/// Sampled sizes of the kernel launches of one process since it was first seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaunchSizeCounts {
    /// Process id.
    pub tgid: u32,
    /// Sum of the blocks.
    pub grid_total: u64,
    /// Sum of the threads of a block.
    pub block_total: u64,
    /// Launches by number of blocks, from bucket 0 on. Counts wrap.
    pub grid: Vec<u32>,
    /// Launches by number of threads of a block, from bucket 0 on. Counts wrap.
    pub block: Vec<u32>,
}

impl FunctionHistogram {
    /// Parses a `struct sum_key` and a `struct durations`.
    pub(crate) fn from_map_entry(key: &[u8], durations: &[u8]) -> Option<Self> {
        let (tgid, op) = sum_key(key)?;
        let mut fields = Fields(durations);
        Some(Self {
            tgid,
            op,
            bytes: fields.u64()?,
            total_ns: fields.u64()?,
            longest_ns: fields.u64()?,
            interrupted: fields.u64()?,
            buckets: counts(&mut fields, BUCKETS)?,
        })
    }

    /// Returns its sums.
    pub fn sum(&self) -> FunctionSum {
        let sum = CallSum {
            calls: self.buckets.iter().map(|count| u64::from(*count)).sum(),
            bytes: self.bytes,
            total_ns: self.total_ns,
            longest_ns: self.longest_ns,
        };
        FunctionSum {
            tgid: self.tgid,
            op: self.op,
            sum,
        }
    }
}

impl LaunchSizeCounts {
    /// Parses a process id and a `struct launch_sizes`.
    pub(crate) fn from_map_entry(key: &[u8], sizes: &[u8]) -> Option<Self> {
        let tgid = Fields(key).u32()?;
        let mut fields = Fields(sizes);
        Some(Self {
            tgid,
            grid_total: fields.u64()?,
            block_total: fields.u64()?,
            grid: counts(&mut fields, GRID_BUCKETS)?,
            block: counts(&mut fields, BLOCK_BUCKETS)?,
        })
    }
}

fn counts(fields: &mut Fields<'_>, n: usize) -> Option<Vec<u32>> {
    std::iter::repeat_with(|| fields.u32()).take(n).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_is_read_with_its_sums() {
        let mut bytes: Vec<u8> = [4096_u64, 3000, 2000, 1]
            .iter()
            .flat_map(|n| n.to_ne_bytes())
            .collect();
        bytes.extend([1_u32, 2].iter().flat_map(|n| n.to_ne_bytes()));
        bytes.resize(32 + 4 * BUCKETS, 0);
        let key = [7_u32.to_ne_bytes(), 5_u32.to_ne_bytes()].concat();
        let histogram = FunctionHistogram::from_map_entry(&key, &bytes).unwrap();
        assert_eq!(histogram.buckets[..3], [1, 2, 0]);
        let FunctionSum { tgid, op, sum } = histogram.sum();
        assert_eq!((tgid, op, sum.calls, sum.bytes), (7, 5, 3, 4096));
        assert_eq!((sum.total_ns, sum.longest_ns), (3000, 2000));
        assert_eq!(histogram.interrupted, 1);
        assert_eq!(FunctionHistogram::from_map_entry(&key, &bytes[..479]), None);
    }

    #[test]
    fn sizes_of_launches_are_read() {
        let mut bytes = [24_u64, 256]
            .iter()
            .flat_map(|n| n.to_ne_bytes())
            .collect::<Vec<u8>>();
        bytes.resize(16 + 4 * (GRID_BUCKETS + BLOCK_BUCKETS), 0);
        bytes[16 + 4 * GRID_BUCKETS] = 3;
        let sizes = LaunchSizeCounts::from_map_entry(&7_u32.to_ne_bytes(), &bytes).unwrap();
        assert_eq!(
            (sizes.tgid, sizes.grid_total, sizes.block_total),
            (7, 24, 256)
        );
        assert_eq!((sizes.grid[0], sizes.block[0]), (0, 3));
    }
}
