//! Aggregation of one process's observations into blocks. Pure: observations in, points out.
//!
//! Every communicator has its own blocks. Those of the busiest one also carry what is measured for
//! the whole process: host gap, blocked time, arrivals and period.

pub mod attribution;
mod block;
mod device;
mod elapsed;
mod evidence;

use std::collections::BTreeMap;

use fleet_proto::metric;

use crate::correlate::{Completion, Completions, Issued, Observation, Waited};
use crate::discover::{Comm, CommIndex};
use crate::exemplar::is_sampled;
use crate::iteration::Pattern;
use crate::iteration_pattern::IterationPattern;
use crate::rollup::attribution::{Closed, Sample, SampledBlocks};
use crate::rollup::block::{BlockSize, OpenBlock, ProcessTotals};
use crate::rollup::device::RunningBlocks;
use crate::rollup::elapsed::Elapsed;
use crate::signal::{Anchor, Block, Point, Source, Value, millis};

/// Context of the process when an observation is rolled up.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// Communicators of the process.
    pub comms: &'a [Comm],
    /// Iteration pattern of the process.
    pub iteration_pattern: &'a IterationPattern,
    /// Sampling modulus.
    pub sample_mod: u32,
}

/// Rollup of one process, once block sizes are known.
#[derive(Debug)]
pub struct Rollup {
    primary: CommIndex,
    exponents: BTreeMap<CommIndex, u32>,
    open: BTreeMap<CommIndex, OpenBlock>,
    running: RunningBlocks,
    sampled: SampledBlocks,
    completions: Completions,
    last_completion: Option<Completion>,
    elapsed: Elapsed,
    max_ns: u64,
    blocks: u64,
    broken: u64,
    points: Vec<Point>,
}

impl Rollup {
    /// Creates a rollup with the busiest communicator and block sizes as exponents of two.
    /// Communicators without a size get blocks of one operation: they are used so rarely that a
    /// point per operation costs less than waiting for more. A block that lasts longer than
    /// `max_ns` ends early.
    pub fn new(primary: CommIndex, exponents: BTreeMap<CommIndex, u32>, max_ns: u64) -> Self {
        Self {
            primary,
            exponents,
            open: BTreeMap::new(),
            running: RunningBlocks::default(),
            sampled: SampledBlocks::default(),
            completions: Completions::new(primary),
            last_completion: None,
            elapsed: Elapsed::default(),
            max_ns,
            blocks: 0,
            broken: 0,
            points: Vec::new(),
        }
    }

    /// Returns the communicator whose blocks represent the process.
    pub fn primary(&self) -> CommIndex {
        self.primary
    }

    /// Processes the next observation.
    pub fn observe(&mut self, observation: &Observation, view: View<'_>) {
        let completion = self.completions.observe(observation);
        match observation {
            Observation::Issued(issued) => self.on_issued(issued, view),
            Observation::WaitBegan { .. } => {}
            Observation::Active(activity) => {
                if let Some(totals) = self.totals() {
                    totals.activity.add(activity);
                }
            }
            Observation::Waited(waited) => self.on_waited(waited, completion, view),
            Observation::Completed(completed) => self.on_completed(completed, view),
            Observation::TransferTime { exclusive_ns } => self.add_kernel_time(*exclusive_ns),
        }
    }

    /// Adds a sample of the process to the blocks that were open in its window.
    pub fn add_sample(&mut self, sample: &Sample) {
        self.sampled.add(sample);
        self.points.extend(self.sampled.take_complete());
    }

    /// Reports the samples of closed blocks as they are, at the end of the process's events.
    pub fn report_samples(&mut self) {
        self.points.extend(self.sampled.take_all());
    }

    /// Closes all open blocks as they are.
    pub fn finish(&mut self, view: View<'_>) {
        self.close_running(view);
        while let Some((comm, open)) = self.open.pop_first() {
            self.close(comm, open, view);
        }
        self.report_samples();
    }

    /// Returns the points of the blocks closed since the last call.
    pub fn take_points(&mut self) -> Vec<Point> {
        std::mem::take(&mut self.points)
    }

    /// Returns the number of closed blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the number of blocks discarded because a part of them was not seen.
    pub fn broken(&self) -> u64 {
        self.broken
    }

    /// Marks all open blocks as broken: the lost events may have belonged to any of them.
    pub fn on_loss(&mut self) {
        for open in self.open.values_mut() {
            open.is_broken = true;
        }
        self.last_completion = None;
        self.elapsed = Elapsed::default();
    }

    /// Marks the blocks of a communicator that contain operations from `from_seq` on as broken:
    /// these numbers are reassigned.
    pub fn on_renumber(&mut self, comm: CommIndex, from_seq: u64) {
        let open = self.open.get_mut(&comm).into_iter();
        for open in open.chain(self.running.blocks_of(comm)) {
            open.is_broken |= open.seq_last >= from_seq;
        }
        self.running.on_renumber(comm, from_seq);
        if comm == self.primary {
            self.last_completion = None;
            self.elapsed = Elapsed::default();
        }
    }

    fn on_issued(&mut self, issued: &Issued, view: View<'_>) {
        let at = issued.at;
        if self
            .open
            .get(&at.comm)
            .is_some_and(|open| !open.accepts(at.seq, issued.entry_ns))
            && let Some(mut open) = self.open.remove(&at.comm)
        {
            // The missing operations may be its end.
            open.is_broken |= issued.missed > 0;
            self.retire(at.comm, open, view);
        }
        if !self.open.contains_key(&at.comm) {
            let anchor = self.last_completion.map(|completion| Anchor {
                seq: completion.seq,
                offset_ms: millis(issued.entry_ns.saturating_sub(completion.return_ns)),
            });
            let size = BlockSize {
                exponent: self.exponents.get(&at.comm).copied().unwrap_or(0),
                max_ns: self.max_ns,
            };
            self.open
                .insert(at.comm, OpenBlock::new(size, issued, anchor));
            if at.comm == self.primary {
                self.sampled.begin(issued.entry_ns);
                self.points.extend(self.sampled.take_complete());
            }
        }
        if at.comm == self.primary {
            self.elapsed.record(issued);
        }
        if let Some(open) = self.open.get_mut(&at.comm) {
            open.add_issued(issued);
        }
        if let (Some(gap_ns), Some(totals)) = (issued.host_gap_ns, self.totals()) {
            totals.host_gap.add(millis(gap_ns));
        }
    }

    fn on_waited(&mut self, waited: &Waited, completion: Option<Completion>, view: View<'_>) {
        if let Some(totals) = self.totals() {
            if waited.blocked_ns > 0 {
                totals.blocked.add(millis(waited.blocked_ns));
            }
            totals.completion = completion.or(totals.completion);
        }
        self.last_completion = completion.or(self.last_completion);
        let Some(at) = waited.covers else { return };
        let sampled = view
            .comms
            .get(at.comm.position())
            .is_some_and(|comm| is_sampled(comm.id, at.seq, view.sample_mod));
        if let Some(open) = self.open.get_mut(&at.comm) {
            open.add_wait(at, waited, sampled);
        }
    }

    fn totals(&mut self) -> Option<&mut ProcessTotals> {
        self.open
            .get_mut(&self.primary)
            .map(|open| &mut open.totals)
    }

    fn close(&mut self, index: CommIndex, mut open: OpenBlock, view: View<'_>) {
        Self::settle(&mut open);
        let Some(comm) = view.comms.get(index.position()).filter(|_| !open.is_broken) else {
            self.discard(index, &open);
            return;
        };
        self.blocks += 1;
        let block = Block {
            comm: comm.id,
            comm_rank: comm.rank,
            comm_nranks: comm.nranks,
            source: Source::Host,
            op: open.busiest_op(),
            seq_first: open.seq_first,
            seq_last: open.seq_last,
            iterations: self.iterations(index, &open, view),
            role: view.iteration_pattern.role(),
        };
        if index == self.primary {
            self.close_totals(&block, &open, view);
        }
        self.close_device_part(&block, index, &mut open);
        let (arrival, anchor) = (open.totals.arrival, open.totals.anchor);
        let (start_ns, time_ns) = (open.first_entry_ns, open.last_entry_ns);
        for (op, wait) in open.waits {
            let block = Block {
                op,
                ..block.clone()
            };
            let value = wait.into_value();
            self.points.push(Point {
                metric: metric::WAIT,
                start_ns,
                time_ns,
                block,
                value,
            });
        }
        // The collector takes the arrival as the sign that the rank has reported all of a block, so
        // it comes last.
        if index == self.primary {
            let closed = Closed {
                block: block.clone(),
                start_ns,
                time_ns,
            };
            self.sampled.close(start_ns, closed);
            self.points.push(Point {
                metric: metric::ARRIVAL,
                start_ns,
                time_ns,
                block,
                value: Value::Summary {
                    summary: arrival,
                    exemplars: Vec::new(),
                    anchor,
                },
            });
        }
    }

    fn discard(&mut self, index: CommIndex, open: &OpenBlock) {
        self.broken += 1;
        if index == self.primary {
            self.elapsed.restart(open.totals.completion);
            self.sampled.discard(open.first_entry_ns);
        }
    }

    fn close_totals(&mut self, block: &Block, open: &OpenBlock, view: View<'_>) {
        let totals = &open.totals;
        let mut push = |metric, value| {
            let (start_ns, time_ns) = (open.first_entry_ns, open.last_entry_ns);
            self.points.push(Point {
                metric,
                start_ns,
                time_ns,
                block: block.clone(),
                value,
            });
        };
        for (metric, value) in evidence::values(&totals.activity, None) {
            push(metric, value);
        }
        if totals.host_gap.count > 0 {
            push(metric::HOST_GAP, Value::from(totals.host_gap));
        }
        if totals.blocked.count > 0 {
            push(metric::BLOCKED, Value::from(totals.blocked));
        }
        self.close_elapsed(block, open, view);
    }

    /// Reports the time of the operations up to the last completion, and the time per iteration.
    fn close_elapsed(&mut self, block: &Block, open: &OpenBlock, view: View<'_>) {
        let issued = Completion {
            seq: open.seq_last,
            return_ns: open.last_entry_ns,
        };
        let Some(interval) = self.elapsed.advance(open.totals.completion, issued) else {
            return;
        };
        let pattern = view.iteration_pattern.pattern();
        let iterations = pattern.map(|pattern| pattern.iterations(&interval.signatures));
        let elapsed_ms = millis(interval.to_ns - interval.from_ns);
        let block = Block {
            seq_first: interval.seq_first,
            seq_last: interval.seq_last,
            iterations: iterations.filter(|iterations| *iterations > 0.0),
            ..block.clone()
        };
        let mut push = |metric, value| {
            self.points.push(Point {
                metric,
                start_ns: interval.from_ns,
                time_ns: interval.to_ns,
                block: block.clone(),
                value,
            });
        };
        // A period covers iterations only: the time of other operations is not known.
        let is_own = |pattern: &Pattern| {
            let mut signatures = interval.signatures.keys();
            signatures.all(|signature| pattern.signatures.contains_key(signature))
        };
        if let Some(iterations) = block.iterations.filter(|_| pattern.is_some_and(is_own)) {
            push(metric::PERIOD, Value::Gauge(elapsed_ms / iterations));
        }
        let mix = interval.mix;
        let ms = elapsed_ms;
        push(metric::ELAPSED, Value::Elapsed { ms, mix });
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "operations of one block stay below 2^53"
    )]
    fn iterations(&self, comm: CommIndex, open: &OpenBlock, view: View<'_>) -> Option<f64> {
        if comm == self.primary && view.iteration_pattern.repeats_nothing() {
            // A process without iterations is measured in operations.
            return Some((open.seq_last - open.seq_first + 1) as f64);
        }
        if comm == self.primary {
            return open.iterations(view.iteration_pattern.pattern()?);
        }
        let per_iteration = view.iteration_pattern.profile()?.ops.get(&comm)?;
        Some((open.seq_last - open.seq_first + 1) as f64 / per_iteration)
    }
}

#[cfg(test)]
mod tests;
