//! Merging of blocks that are too short to be judged alone.

use crate::signal::{Block, Summary};

/// Minimum number of iterations judged at once. Fewer have a single gap, which one stall dominates.
const MIN_ITERATIONS: f64 = 1.5;

/// Collects consecutive blocks.
#[derive(Debug, Default)]
pub(super) struct Window {
    open: Option<(Block, Summary)>,
}

impl Window {
    /// Adds the next block and returns everything collected, as one block, once that is enough. A
    /// block with an unknown number of iterations is skipped.
    pub(super) fn add(&mut self, block: &Block, gaps: &Summary) -> Option<(Block, Summary)> {
        let iterations = block.iterations.filter(|n| *n > 0.0);
        let open = self.open.take();
        let iterations = iterations?;
        let (mut whole, mut sum) = (block.clone(), *gaps);
        let before = open.filter(|(before, _)| {
            let follows = before.seq_last + 1 == block.seq_first;
            follows && (before.comm, before.role) == (block.comm, block.role)
        });
        if let Some((before, gaps_before)) = before {
            whole.seq_first = before.seq_first;
            whole.iterations = before.iterations.map(|earlier| earlier + iterations);
            sum.count += gaps_before.count;
            sum.sum_ms += gaps_before.sum_ms;
        }
        if whole.iterations.is_some_and(|n| n >= MIN_ITERATIONS) {
            return Some((whole, sum));
        }
        self.open = Some((whole, sum));
        None
    }
}
