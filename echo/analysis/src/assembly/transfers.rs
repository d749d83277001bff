//! Time that the GPUs of a job spend inside collectives, kept block by block until the cohort's own
//! block consumes it.
//!
//! Device timestamps come per communicator and operation, each with its own blocks. A cohort
//! evaluates them together with the block of its busiest communicator in which they ended, by each
//! rank's own clock.

use std::collections::{BTreeMap, BTreeSet};

use echo_core::ids::{CommId, Op, Rank};
use echo_core::model::event::{Block, Event, OpSample, Reading, SeqRange, Summary};
use echo_core::units::Nanos;

use super::Transfer;
use super::open_blocks::Begins;
use super::report::total;

/// Maximum number of pending blocks of one communicator and operation; beyond it the oldest is
/// dropped.
const MAX_WAITING: usize = 256;

/// Maximum number of pairs of communicator and operation per rank of the job, and its minimum.
const MAX_PAIRS_PER_RANK: usize = 8;
const MIN_PAIRS: usize = 64;

/// Sampled operations kept of one rank and block.
const MAX_SAMPLES: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Transfers {
    pairs: BTreeMap<(CommId, Option<Op>), BTreeMap<SeqRange, Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    iterations: f64,
    /// End by each reporting rank's own clock.
    ends: BTreeMap<Rank, Nanos>,
    ranks: BTreeMap<Rank, (Summary, Vec<OpSample>)>,
}

/// The block of the busiest communicator with which transfers are evaluated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Host<'a> {
    /// Its operations.
    pub(super) seqs: SeqRange,
    /// Communicator of each rank's block and its first entry on the rank's own clock.
    pub(super) ranks: &'a Begins,
}

impl Host<'_> {
    /// Returns true if the block is one of this communicator.
    fn is_of(&self, comm: CommId) -> bool {
        let first = self.ranks.values().next();
        first.is_some_and(|(own, _)| *own == comm)
    }
}

/// Total time in a block for ranks that split it at different operations.
fn joined(parts: Vec<Transfer>) -> Option<Transfer> {
    let mut iterations: BTreeMap<Rank, f64> = BTreeMap::new();
    for part in &parts {
        for rank in part.ranks.keys() {
            *iterations.entry(*rank).or_default() += part.iterations;
        }
    }
    let mut parts = parts.into_iter();
    let mut whole = parts.next()?;
    for part in parts {
        for (rank, (summary, samples)) in part.ranks {
            let sum = whole.ranks.entry(rank);
            sum.and_modify(|(known, kept)| {
                *known = total(*known, summary);
                let free = MAX_SAMPLES.saturating_sub(kept.len());
                kept.extend(samples.iter().take(free));
            })
            .or_insert((summary, samples));
        }
    }
    whole.iterations = iterations.into_values().fold(whole.iterations, f64::max);
    Some(whole)
}

impl Transfers {
    /// Adds a wait measured by a GPU; returns false at the limit of communicators.
    pub(super) fn add(&mut self, event: &Event, block: &Block, rank: Rank, n_ranks: usize) -> bool {
        let (Some(seqs), Reading::Histogram(summary)) = (block.seqs, event.reading) else {
            return true;
        };
        let Some(iterations) = block.iterations.filter(|_| summary.count > 0) else {
            return true;
        };
        let key = (block.comm, block.op.clone());
        let most = MIN_PAIRS.max(n_ranks * MAX_PAIRS_PER_RANK);
        if self.pairs.len() >= most && !self.pairs.contains_key(&key) {
            return false;
        }
        let waiting = self.pairs.entry(key).or_default();
        let entry = waiting.entry(seqs).or_insert_with(|| Waiting {
            iterations,
            ends: BTreeMap::new(),
            ranks: BTreeMap::new(),
        });
        entry.ends.insert(rank, event.timestamp);
        let samples = event.samples.iter().take(MAX_SAMPLES).copied().collect();
        entry.ranks.insert(rank, (summary, samples));
        if waiting.len() > MAX_WAITING {
            waiting.pop_first();
        }
        true
    }

    /// Waits held, rank by rank.
    #[cfg(test)]
    pub(super) fn stored(&self) -> usize {
        let blocks = self.pairs.values().flat_map(BTreeMap::values);
        blocks.map(|block| block.ranks.len()).sum()
    }

    /// Removes and returns the blocks that ended with or before the host block and whose ranks all
    /// belong to `role`. Blocks of its own communicator end with it. Blocks of others are returned
    /// once they ended before it began: by then every rank has sent them.
    pub(super) fn take(&mut self, host: Host<'_>, role: &BTreeSet<Rank>) -> Vec<Transfer> {
        let mut taken = Vec::new();
        for ((comm, op), waiting) in &mut self.pairs {
            let is_due = |seqs: &SeqRange, block: &Waiting| {
                let of_host = |(rank, end)| Some((host.ranks.get(rank)?, end));
                // Two ranks are enough to check: most pending waits belong to another role.
                let two = [block.ends.first_key_value(), block.ends.last_key_value()];
                let first = two.into_iter().flatten().find_map(of_host);
                first.is_some_and(|((own, begin), end)| {
                    if own == comm {
                        seqs.last() <= host.seqs.last()
                    } else {
                        end < begin
                    }
                })
            };
            let due: Vec<SeqRange> = waiting
                .iter()
                .filter(|(seqs, block)| is_due(seqs, block))
                .map(|(seqs, _)| *seqs)
                .collect();
            let mut parts: BTreeMap<SeqRange, Vec<Transfer>> = BTreeMap::new();
            for seqs in due {
                if let Some(block) = waiting.remove(&seqs)
                    && block.ranks.keys().all(|rank| role.contains(rank))
                {
                    let is_part = seqs.first() >= host.seqs.first() && host.is_of(*comm);
                    let whole = if is_part { host.seqs } else { seqs };
                    let transfer = Transfer {
                        comm: *comm,
                        op: op.clone(),
                        seqs: whole,
                        iterations: block.iterations,
                        ranks: block.ranks,
                    };
                    parts.entry(whole).or_default().push(transfer);
                }
            }
            taken.extend(parts.into_values().filter_map(joined));
        }
        self.pairs.retain(|_, waiting| !waiting.is_empty());
        taken
    }
}
