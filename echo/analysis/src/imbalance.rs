//! Work that is spread unevenly: over the stages of a pipeline, or over the ranks from one
//! iteration to the next.
//!
//! Both are properties of the job. No rank is at fault, and no rank is named.

use std::collections::BTreeMap;

use echo_core::ids::Rank;
use echo_core::stats::order::last_rank_entropy;
use echo_core::stats::polish::median_polish;
use echo_core::stats::{median, upper_median};

use crate::assembly::{CohortBlock, Transfer};

/// Smallest entropy of the last rank that is an imbalance (measured on production traces: 0.90 for
/// uneven sequences, 0.00 for one slow worker).
const MIN_ENTROPY: f64 = 0.8;

/// Smallest distance of the last rank, as a share of the median distance, for which an operation
/// counts.
const LATE_SHARE: f64 = 0.5;

/// Minimum number of operations.
const ENOUGH_OPERATIONS: usize = 8;

/// Minimum number of ranks.
const ENOUGH_RANKS: usize = 4;

/// Residual of a cell in the table of stages, as a share of the stage's excess, above which a
/// single rank is slow, not the stage.
const LONE_SHARE: f64 = 0.5;

/// Imbalance of data: the last rank differs from operation to operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DataImbalance {
    /// Entropy of the last rank over operations with a late rank, 0 (always the same) to 1 (all
    /// ranks in turn).
    pub entropy: f64,
    /// Median distance from the typical rank to the last, milliseconds per operation. Occasional
    /// pauses do not move it.
    pub skew_ms: f64,
    /// Number of operations compared.
    pub n_operations: usize,
}

impl DataImbalance {
    /// Margin above the gate: few operations are a small sample.
    #[expect(
        clippy::cast_precision_loss,
        reason = "operations of one window are few"
    )]
    pub fn margin(&self) -> f64 {
        1.0 + ENOUGH_OPERATIONS as f64 / self.n_operations.max(1) as f64
    }
}

/// Returns the imbalance of data in a window, on the communicator where it is largest; `None` for
/// few ranks or operations, or if the last rank is mostly the same one.
pub fn data_imbalance(blocks: &[&CohortBlock]) -> Option<DataImbalance> {
    let mut by_kind: BTreeMap<_, Vec<(Rank, f64, usize)>> = BTreeMap::new();
    for transfer in blocks.iter().flat_map(|block| &block.transfers) {
        let turns = by_kind.entry((transfer.comm, &transfer.op)).or_default();
        let n_ranks = transfer.ranks.len();
        let lasts = sampled(transfer).into_values().filter_map(|one| last(&one));
        turns.extend(lasts.map(|(rank, skew)| (rank, skew, n_ranks)));
    }
    let found = by_kind.into_values().filter_map(|turns| {
        let n_ranks = turns.iter().map(|(_, _, n)| *n).max()?;
        let skews: Vec<f64> = turns.iter().map(|(_, skew, _)| *skew).collect();
        let skew_ms = median(&skews)?;
        // A rank that is last by a tiny margin is not late.
        let late = turns.iter();
        let late = late.filter(|(_, skew, _)| *skew >= skew_ms * LATE_SHARE);
        let entropy = last_rank_entropy(late.map(|(rank, ..)| *rank), n_ranks)?;
        Some(DataImbalance {
            entropy,
            skew_ms,
            n_operations: turns.len(),
        })
        .filter(|found| {
            n_ranks >= ENOUGH_RANKS
                && found.n_operations >= ENOUGH_OPERATIONS
                && found.entropy > MIN_ENTROPY
        })
    });
    found.max_by(|a, b| a.skew_ms.total_cmp(&b.skew_ms))
}

/// Times inside each operation that all ranks sampled; the mean of the whole block if there are no
/// samples.
fn sampled(transfer: &Transfer) -> BTreeMap<u64, Vec<(Rank, f64)>> {
    let mut ops: BTreeMap<u64, Vec<(Rank, f64)>> = BTreeMap::new();
    for (rank, (summary, samples)) in &transfer.ranks {
        for sample in samples {
            ops.entry(sample.seq)
                .or_default()
                .push((*rank, sample.value));
        }
        if let Some(mean) = summary.mean().filter(|_| samples.is_empty()) {
            ops.entry(transfer.seqs.last())
                .or_default()
                .push((*rank, mean));
        }
    }
    ops.retain(|_, times| times.len() == transfer.ranks.len());
    ops
}

/// Returns the last rank, which spent the least time inside, and its distance from the typical
/// rank.
fn last(times: &[(Rank, f64)]) -> Option<(Rank, f64)> {
    let typical = upper_median(&times.iter().map(|(_, ms)| *ms).collect::<Vec<f64>>())?;
    let (rank, least) = times.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some((*rank, typical - least))
}

/// Excess compute time of each stage's GPUs over the typical one, milliseconds per iteration, from
/// a table of stages by replicas; 0 where single ranks explain it. `None` for fewer than two stages
/// or replicas.
pub fn stage_excess(table: &[Vec<f64>]) -> Option<Vec<f64>> {
    if table.len() < 2 || table.iter().any(|row| row.len() < 2) {
        return None;
    }
    let polished = median_polish(table)?;
    let of_stage = polished.rows.iter().zip(&polished.residuals);
    let excess = of_stage.map(|(row, residuals)| {
        let lone = residuals.iter().copied().fold(0.0, f64::max);
        if lone > LONE_SHARE * row {
            0.0
        } else {
            row.max(0.0)
        }
    });
    Some(excess.collect())
}

#[cfg(test)]
mod tests {
    use super::stage_excess;

    #[test]
    fn an_overloaded_last_stage_is_a_stage_and_one_slow_worker_is_not() {
        let mut table = vec![vec![50.0; 4]; 4];
        table[3] = vec![80.0; 4];
        assert_eq!(stage_excess(&table).unwrap(), [0.0, 0.0, 0.0, 30.0]);
        table[3] = vec![50.0, 50.0, 50.0, 110.0];
        assert_eq!(stage_excess(&table).unwrap(), [0.0; 4]);
    }

    #[test]
    fn one_stage_cannot_be_compared() {
        assert_eq!(stage_excess(&[vec![1.0, 2.0]]), None);
    }
}
