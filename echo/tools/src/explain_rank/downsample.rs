//! Downsampling of blocks.

use std::collections::BTreeSet;

/// Returns at most `n` of the blocks, evenly spaced, including the first and the last.
pub(super) fn evenly<B: Copy>(blocks: &[B], n: usize) -> Vec<B> {
    let last = blocks.len().saturating_sub(1);
    if blocks.len() <= n || n < 2 {
        return blocks.iter().take(n.max(1)).copied().collect();
    }
    let chosen: BTreeSet<usize> = (0..n).map(|index| index * last / (n - 1)).collect();
    chosen
        .into_iter()
        .filter_map(|index| blocks.get(index).copied())
        .collect()
}
