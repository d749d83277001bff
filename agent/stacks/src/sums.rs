//! Equal stacks, summed up. Pure.

use std::collections::HashMap;

use fleet_agent_core::event::{Stack, StackSample};

/// Maximum number of different stacks that are kept; a deeper recursion has more. Samples beyond
/// are counted as dropped.
const MAX_STACKS: usize = 2_000;

/// Samples of one process by thread, call and stack.
#[derive(Debug, Default)]
pub struct StackSums {
    counts: HashMap<(u32, Option<String>, Stack), Count>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    samples: u64,
    outside: u64,
    last_ns: u64,
}

/// One sample of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sampled {
    /// Thread id.
    pub tid: u32,
    /// Function of a GPU library that the thread was in.
    pub call: Option<String>,
    /// Whether it was certainly in none.
    pub is_outside: bool,
    /// Whether it was read in a call that was waited for, so that it is no sample of time.
    pub is_awaited: bool,
    /// Frames of the thread.
    pub stack: Stack,
}

impl StackSums {
    /// Adds a sample at `ts_ns`; returns false if there is no space for another stack.
    pub fn add(&mut self, sampled: Sampled, ts_ns: u64) -> bool {
        let is_full = self.counts.len() >= MAX_STACKS;
        let key = (sampled.tid, sampled.call, sampled.stack);
        if is_full && !self.counts.contains_key(&key) {
            return false;
        }
        let count = self.counts.entry(key).or_default();
        count.samples += u64::from(!sampled.is_awaited);
        count.outside += u64::from(sampled.is_outside);
        count.last_ns = ts_ns;
        true
    }

    /// Returns the samples since the last call, most frequent first.
    pub fn take(&mut self, pid: u32) -> Vec<StackSample> {
        let counts = std::mem::take(&mut self.counts);
        let mut samples: Vec<StackSample> = counts
            .into_iter()
            .map(|((tid, call, stack), count)| StackSample {
                ts_ns: count.last_ns,
                pid,
                tid,
                is_worker: false,
                call,
                stack,
                samples: count.samples,
                outside: count.outside,
            })
            .collect();
        samples.sort_by(|a, b| {
            let order = b.samples.cmp(&a.samples);
            order.then_with(|| (a.tid, &a.stack).cmp(&(b.tid, &b.stack)))
        });
        samples
    }
}

#[cfg(test)]
mod tests {
    use fleet_agent_core::event::Frame;

    use super::*;

    fn sampled(line: u32) -> Sampled {
        let stack = Stack {
            frames: vec![Frame::Python {
                file: "a.py".to_owned(),
                line,
                function: "f".to_owned(),
            }],
        };
        Sampled {
            tid: 7,
            call: None,
            is_outside: line == 2,
            is_awaited: false,
            stack,
        }
    }

    #[test]
    fn equal_stacks_are_one_sample_with_a_count() {
        let mut sums = StackSums::default();
        for (line, ts_ns) in [(1, 10), (2, 20), (2, 30)] {
            assert!(sums.add(sampled(line), ts_ns));
        }
        let unsure = Sampled {
            is_outside: false,
            ..sampled(2)
        };
        assert!(sums.add(unsure, 35));
        let in_call = Sampled {
            call: Some("cudaMalloc".to_owned()),
            ..sampled(3)
        };
        assert!(sums.add(in_call, 40));
        let awaited = Sampled {
            is_awaited: true,
            ..sampled(4)
        };
        assert!(sums.add(awaited, 50));
        let counts: Vec<(u64, u64, u64)> = sums
            .take(7)
            .iter()
            .map(|sample| (sample.samples, sample.outside, sample.ts_ns))
            .collect();
        assert_eq!(counts[0], (3, 2, 35));
        assert_eq!(counts[3], (0, 0, 50));
        assert_eq!(counts.len(), 4);
        assert!(sums.take(7).is_empty());
    }

    #[test]
    fn stacks_beyond_the_limit_are_not_kept() {
        let mut sums = StackSums::default();
        for line in 0..u32::try_from(MAX_STACKS).unwrap() {
            assert!(sums.add(sampled(line), 1));
        }
        assert!(!sums.add(sampled(1 << 20), 1));
        assert!(sums.add(sampled(0), 1));
    }
}
