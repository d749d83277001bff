//! Equal stacks, summed up. Pure.

use std::collections::HashMap;

use fleet_agent_core::event::{Stack, StackSample};

/// Maximum number of different stacks that are kept; a deeper recursion has more. Samples beyond
/// are counted as dropped.
const MAX_STACKS: usize = 2_000;

/// Samples of one process by thread, call and stack.
#[derive(Debug, Default)]
pub struct StackSums {
    counts: HashMap<(u32, Option<String>, Stack), (u64, u64)>,
}

impl StackSums {
    /// Adds a sample of a thread at `ts_ns`; returns false if there is no space for another stack.
    pub fn add(&mut self, tid: u32, call: Option<String>, stack: Stack, ts_ns: u64) -> bool {
        let is_full = self.counts.len() >= MAX_STACKS;
        let key = (tid, call, stack);
        if is_full && !self.counts.contains_key(&key) {
            return false;
        }
        let (samples, last_ns) = self.counts.entry(key).or_default();
        *samples += 1;
        *last_ns = ts_ns;
        true
    }

    /// Returns the samples since the last call, most frequent first.
    pub fn take(&mut self, pid: u32) -> Vec<StackSample> {
        let counts = std::mem::take(&mut self.counts);
        let mut samples: Vec<StackSample> = counts
            .into_iter()
            .map(|((tid, call, stack), (samples, ts_ns))| StackSample {
                ts_ns,
                pid,
                tid,
                call,
                stack,
                samples,
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

    fn stack(line: u32) -> Stack {
        Stack {
            frames: vec![Frame::Python {
                file: "a.py".to_owned(),
                line,
                function: "f".to_owned(),
            }],
        }
    }

    #[test]
    fn equal_stacks_are_one_sample_with_a_count() {
        let mut sums = StackSums::default();
        for (line, ts_ns) in [(1, 10), (2, 20), (2, 30)] {
            assert!(sums.add(7, None, stack(line), ts_ns));
        }
        assert!(sums.add(7, Some("cudaMalloc".to_owned()), stack(2), 40));
        let counts: Vec<(u64, u64)> = sums
            .take(7)
            .iter()
            .map(|sample| (sample.samples, sample.ts_ns))
            .collect();
        assert_eq!(counts[0], (2, 30));
        assert_eq!(counts.len(), 3);
        assert!(sums.take(7).is_empty());
    }

    #[test]
    fn stacks_beyond_the_limit_are_not_kept() {
        let mut sums = StackSums::default();
        for line in 0..u32::try_from(MAX_STACKS).unwrap() {
            assert!(sums.add(7, None, stack(line), 1));
        }
        assert!(!sums.add(7, None, stack(1 << 20), 1));
        assert!(sums.add(7, None, stack(0), 1));
    }
}
