//! Points that a live agent with GPU times would report about the same operations, one block per
//! iteration.
//!
//! A block covers the same operations on all ranks, whatever their clocks show. The marked steps of
//! a trace give the number of iterations, else the repetition of the operations does.
//!
//! Ranks that share groups, directly or through others, are one cohort. If the groups fall into
//! parts that share no rank, as the stages of a pipeline do, a rank waits for other parts in
//! transfers, which do not carry a number. Then the time in which its GPU does not compute counts as
//! waiting.

use std::collections::BTreeMap;

use fleet_agent_core::batch::{Batch, Resource, ResourcePoints};
use fleet_agent_core::event::Op;
use fleet_agent_core::exemplar::{DEFAULT_MODULUS, Sampler, is_sampled};
use fleet_agent_core::signal::{
    Block, CommId, Exemplar, Point, Role, Source, Summary, Value, millis,
};
use fleet_proto::metric;
use xxhash_rust::xxh64::xxh64;

use crate::matching::{MatchedGroup, matched};
use crate::timeline::{PlacedOp, placed};
use crate::trace::RankTrace;

/// Points of one rank.
#[derive(Debug, Clone, PartialEq)]
pub struct RankPoints {
    /// Rank.
    pub rank: u32,
    /// Points of each block. Times are nanoseconds since the first operation of the rank.
    pub blocks: Vec<Vec<Point>>,
}

impl RankPoints {
    /// Returns one batch per block, whose times begin at `start_ns`, Unix nanoseconds.
    pub fn batches(&self, resource: &Resource, start_ns: u64) -> Vec<Batch> {
        let at = |time_ns: u64| start_ns.saturating_add(time_ns);
        let moved = |point: &Point| {
            let mut point = point.clone();
            (point.start_ns, point.time_ns) = (at(point.start_ns), at(point.time_ns));
            if let Value::Summary { exemplars, .. } = &mut point.value {
                for exemplar in exemplars {
                    exemplar.time_ns = at(exemplar.time_ns);
                }
            }
            point
        };
        let batch = |(number, points): (u64, &Vec<Point>)| Batch {
            number,
            resources: vec![ResourcePoints {
                resource: resource.clone(),
                points: points.iter().map(moved).collect(),
            }],
            reports: Vec::new(),
            agent_counters: None,
        };
        (1..).zip(&self.blocks).map(batch).collect()
    }

    /// Time from the first operation to the end of the last block, nanoseconds.
    pub fn span_ns(&self) -> u64 {
        let ends = self.blocks.iter().flatten().map(|point| point.time_ns);
        ends.max().unwrap_or(0)
    }
}

/// Converts the traces. Empty if the format has no times of operations, or if no group has enough
/// of its ranks.
pub fn points(traces: &BTreeMap<u32, RankTrace>) -> Vec<RankPoints> {
    let mut groups = matched(traces);
    groups.retain(MatchedGroup::is_comparable);
    let parts = Parts::new(&groups);
    let n_blocks = iterations(traces, &groups);
    let rank_points = |(rank, trace): (&u32, &RankTrace)| {
        let ops = placed(*rank, &groups).filter(|ops| !ops.is_empty())?;
        let view = RankView {
            rank: *rank,
            groups: &groups,
            role: Role::new(parts.of(*rank)),
            n_blocks,
            // Of the whole trace: the time of a kernel does not tell its iteration if laps overlap.
            busy_ms: trace
                .busy_ns
                .map(|busy_ns| millis(busy_ns) / count(n_blocks)),
            idle_is_wait: parts.n > 1,
        };
        Some(RankPoints {
            rank: *rank,
            blocks: view.blocks(&ops),
        })
    };
    traces.iter().filter_map(rank_points).collect()
}

/// Parts of the job that share no rank.
struct Parts {
    by_rank: BTreeMap<u32, u32>,
    n: usize,
}

impl Parts {
    /// Joins the ranks of each group; a part is named by its lowest rank.
    fn new(groups: &[MatchedGroup<'_>]) -> Self {
        let mut by_rank: BTreeMap<u32, u32> = BTreeMap::new();
        for group in groups {
            let part = |rank: &u32, known: &BTreeMap<u32, u32>| known.get(rank).copied();
            let joined: Vec<u32> = group
                .ranks
                .iter()
                .map(|rank| part(rank, &by_rank).unwrap_or(*rank))
                .collect();
            let lowest = joined.iter().copied().min().unwrap_or(0);
            for own in by_rank.values_mut().filter(|own| joined.contains(own)) {
                *own = lowest;
            }
            by_rank.extend(group.ranks.iter().map(|rank| (*rank, lowest)));
        }
        let parts: std::collections::BTreeSet<&u32> = by_rank.values().collect();
        let n = parts.len();
        Self { by_rank, n }
    }

    fn of(&self, rank: u32) -> u64 {
        let part = self.by_rank.get(&rank).copied().unwrap_or(rank);
        xxh64(&part.to_le_bytes(), 0)
    }
}

/// Returns the number of iterations.
fn iterations(traces: &BTreeMap<u32, RankTrace>, groups: &[MatchedGroup<'_>]) -> usize {
    let steps = traces.values().map(|trace| trace.n_steps).min();
    let steps = steps.and_then(|steps| usize::try_from(steps).ok());
    let least = groups.iter().map(|group| group.ops.len()).max();
    if let Some(steps) = steps.filter(|steps| *steps > 1 && least >= Some(*steps)) {
        return steps;
    }
    let repetitions = groups.iter().map(repetitions).filter(|n| *n > 1);
    repetitions.reduce(greatest_common_divisor).unwrap_or(1)
}

/// Returns how often the operations of a group repeat.
fn repetitions(group: &MatchedGroup<'_>) -> usize {
    let signature = |(_, ops): &(u64, Vec<&crate::trace::Collective>)| {
        ops.first().map(|op| (op.op, op.size.checked_ilog2()))
    };
    let signatures: Vec<_> = group.ops.iter().map(signature).collect();
    let n = signatures.len();
    let repeats = |period: &usize| {
        let (early, late) = (signatures.iter(), signatures.iter().skip(*period));
        early.zip(late).all(|(one, other)| one == other)
    };
    let periods = (1..=n.min(MAX_PERIOD)).filter(|period| n.is_multiple_of(*period));
    periods
        .into_iter()
        .find(repeats)
        .map_or(1, |period| n / period)
}

/// Longest pattern of operations that is searched for.
const MAX_PERIOD: usize = 4_096;

fn greatest_common_divisor(one: usize, other: usize) -> usize {
    if other == 0 {
        one
    } else {
        greatest_common_divisor(other, one % other)
    }
}

/// What the points of one rank share.
struct RankView<'a, 't> {
    rank: u32,
    groups: &'a [MatchedGroup<'t>],
    role: Role,
    n_blocks: usize,
    busy_ms: Option<f64>,
    idle_is_wait: bool,
}

impl RankView<'_, '_> {
    /// Number of the block of an operation, equal on all ranks.
    fn block_of(&self, op: &PlacedOp<'_>) -> usize {
        let n_ops = self.groups.get(op.group).map_or(1, |group| group.ops.len());
        op.index * self.n_blocks / n_ops.max(1)
    }

    fn blocks(&self, ops: &[PlacedOp<'_>]) -> Vec<Vec<Point>> {
        let mut by_block: BTreeMap<usize, Vec<PlacedOp<'_>>> = BTreeMap::new();
        for op in ops {
            by_block.entry(self.block_of(op)).or_default().push(*op);
        }
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for op in ops {
            *counts.entry(op.group).or_default() += 1;
        }
        let primary = counts
            .iter()
            .max_by_key(|(group, n)| (**n, usize::MAX - **group));
        let primary = primary.map_or(0, |(group, _)| *group);
        let starts = |own: &Vec<PlacedOp<'_>>| own.iter().map(|op| op.start_ns).min();
        let ends = |own: &Vec<PlacedOp<'_>>| own.iter().map(PlacedOp::end_ns).max();
        let mut blocks = Vec::new();
        let mut following = by_block.values().skip(1);
        for own in by_block.values() {
            let start_ns = starts(own).unwrap_or(0);
            let end_ns = following.next().map_or_else(|| ends(own), starts);
            let span = (start_ns, end_ns.unwrap_or(start_ns).max(start_ns));
            blocks.push(self.block(own, primary, span));
        }
        blocks
    }

    /// Points of one block, those of its operations first and the arrivals last, as agents send
    /// them.
    fn block(&self, ops: &[PlacedOp<'_>], primary: usize, span: (u64, u64)) -> Vec<Point> {
        let mut waits: BTreeMap<(usize, Op), Vec<PlacedOp<'_>>> = BTreeMap::new();
        for op in ops {
            waits.entry((op.group, op.op.op)).or_default().push(*op);
        }
        let mut points: Vec<Point> = waits
            .iter()
            .filter_map(|((group, op), of_op)| {
                let about = self.about(*group, *op, ops)?;
                let value = wait(&about, of_op);
                Some(point(metric::WAIT, span, about, value))
            })
            .collect();
        let first = ops.iter().find(|op| op.group == primary);
        let Some(about) = first.and_then(|first| self.about(primary, first.op.op, ops)) else {
            return points;
        };
        let (start_ns, end_ns) = span;
        let period_ms = millis(end_ns - start_ns);
        let in_ops_ms: f64 = ops.iter().map(|op| millis(op.op.duration_ns)).sum();
        let busy_ms = self.busy_ms.map(|busy_ms| busy_ms.min(period_ms));
        let blocked_ms = match busy_ms {
            Some(busy_ms) if self.idle_is_wait => period_ms - busy_ms,
            _ => in_ops_ms.min(period_ms),
        };
        points.push(point(metric::BLOCKED, span, about.clone(), one(blocked_ms)));
        let busy_ms = busy_ms.unwrap_or(period_ms - blocked_ms);
        points.push(point(metric::BUSY, span, about.clone(), one(busy_ms)));
        points.push(point(
            metric::PERIOD,
            span,
            about.clone(),
            Value::Gauge(period_ms),
        ));
        let mut arrival = Summary::default();
        for op in ops.iter().filter(|op| op.group == primary) {
            arrival.add(millis(op.start_ns.saturating_sub(start_ns)));
        }
        points.push(point(metric::ARRIVAL, span, about, arrival.into()));
        points
    }

    /// Operations of a group in a block.
    fn about(&self, group: usize, op: Op, ops: &[PlacedOp<'_>]) -> Option<Block> {
        let matched = self.groups.get(group)?;
        let own = || ops.iter().filter(|op| op.group == group).map(|op| op.seq);
        let rank_in_group = matched.ranks.iter().position(|rank| *rank == self.rank)?;
        Some(Block {
            comm: CommId::new(xxh64(matched.name.as_bytes(), 0)),
            comm_rank: u32::try_from(rank_in_group).ok()?,
            comm_nranks: u32::try_from(matched.ranks.len() + matched.missing.len()).ok()?,
            source: Source::Device,
            op,
            seq_first: own().min()?,
            seq_last: own().max()?,
            iterations: Some(1.0),
            role: Some(self.role),
        })
    }
}

fn wait(about: &Block, ops: &[PlacedOp<'_>]) -> Value {
    let (mut summary, mut sampler) = (Summary::default(), Sampler::default());
    for op in ops {
        let wait_ms = millis(op.op.duration_ns);
        summary.add(wait_ms);
        let exemplar = Exemplar {
            seq: op.seq,
            time_ns: op.end_ns(),
            wait_ms,
        };
        let is_sampled = is_sampled(about.comm, op.seq, DEFAULT_MODULUS);
        sampler.offer(exemplar, is_sampled);
    }
    Value::Summary {
        summary,
        exemplars: sampler.into_exemplars(),
        anchor: None,
    }
}

fn point(metric: &'static str, span: (u64, u64), block: Block, value: Value) -> Point {
    let (start_ns, time_ns) = span;
    Point {
        metric,
        start_ns,
        time_ns,
        block,
        value,
    }
}

/// A summary of one sample.
fn one(sample_ms: f64) -> Value {
    let mut summary = Summary::default();
    summary.add(sample_ms);
    summary.into()
}

#[expect(clippy::cast_precision_loss, reason = "far fewer than 2^53")]
fn count(n: usize) -> f64 {
    n.max(1) as f64
}
