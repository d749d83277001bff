//! A few blocks of many.

use std::collections::BTreeSet;

/// At most `n` of the blocks, evenly spaced, the first and the last among them.
pub(super) fn evenly<B: Copy>(blocks: &[B], n: usize) -> Vec<B> {
    let last = blocks.len().saturating_sub(1);
    if blocks.len() <= n || n < 2 {
        return blocks.iter().take(n.max(1)).copied().collect();
    }
    let chosen: BTreeSet<usize> = (0..n).map(|place| place * last / (n - 1)).collect();
    chosen
        .into_iter()
        .filter_map(|place| blocks.get(place).copied())
        .collect()
}
