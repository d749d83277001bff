//! Time that operations took from completion to completion, and their classes.

use std::collections::{BTreeMap, VecDeque};

use crate::correlate::{Completion, Issued};
use crate::signal::{Mix, OpClass};

/// Maximum number of operations kept until a completion; the oldest are dropped beyond that.
const MAX_OPS: usize = 65_536;

/// Number of blocks without a completion after which entries stand for completions: no host runs
/// ahead of its GPU forever.
const MAX_SILENT: u32 = 16;

/// Operations of the busiest communicator since the last completion.
#[derive(Debug, Default)]
pub(super) struct Elapsed {
    ops: VecDeque<(u64, u64, OpClass)>,
    from: Option<Completion>,
    n_silent: u32,
    by_entry: bool,
}

/// Operations between two completions.
#[derive(Debug, PartialEq)]
pub(super) struct ElapsedInterval {
    pub(super) seq_first: u64,
    pub(super) seq_last: u64,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) signatures: BTreeMap<u64, u64>,
    pub(super) mix: Mix,
}

impl Elapsed {
    /// Records the next operation.
    pub(super) fn record(&mut self, issued: &Issued) {
        let n_filled = if issued.is_filled { issued.missed } else { 0 };
        // Missing operations are counted like the one after them.
        for seq in issued.at.seq.saturating_sub(n_filled)..=issued.at.seq {
            self.ops.push_back((seq, issued.signature, issued.class));
        }
        while self.ops.len() > MAX_OPS {
            self.ops.pop_front();
        }
    }

    /// Restarts at a completion: a part of the operations before it was not seen.
    pub(super) fn restart(&mut self, from: Option<Completion>) {
        self.from = from;
    }

    /// Returns the operations since the last completion, at the end of a block; `None` without a
    /// completion, or if some operations were not seen. `issued` is the block's last operation with
    /// its entry.
    pub(super) fn advance(
        &mut self,
        completion: Option<Completion>,
        issued: Completion,
    ) -> Option<ElapsedInterval> {
        let to = self.end_of_block(completion, issued)?;
        let from = self.from.replace(to);
        let n_done = self.ops.partition_point(|(seq, ..)| *seq <= to.seq);
        let done = self.ops.drain(..n_done);
        let from = from?;
        let (mut signatures, mut mix, mut n) = (BTreeMap::new(), Mix::default(), 0);
        for (_, signature, class) in done.filter(|(seq, ..)| *seq > from.seq) {
            *signatures.entry(signature).or_default() += 1;
            mix.add(class);
            n += 1;
        }
        let is_whole = n > 0 && n == to.seq.saturating_sub(from.seq);
        (is_whole && to.return_ns > from.return_ns).then_some(ElapsedInterval {
            seq_first: from.seq + 1,
            seq_last: to.seq,
            from_ns: from.return_ns,
            to_ns: to.return_ns,
            signatures,
            mix,
        })
    }

    /// Returns the end of the interval: the completion, or the last entry in a process that never
    /// completes anything.
    fn end_of_block(
        &mut self,
        completion: Option<Completion>,
        issued: Completion,
    ) -> Option<Completion> {
        if completion.is_some() {
            // The two kinds of ends are too far apart to be mixed.
            if std::mem::take(&mut self.by_entry) {
                self.from = None;
            }
            self.n_silent = 0;
            return completion;
        }
        self.n_silent += 1;
        if self.n_silent <= MAX_SILENT {
            return None;
        }
        if !std::mem::replace(&mut self.by_entry, true) {
            self.from = None;
        }
        Some(issued)
    }
}
