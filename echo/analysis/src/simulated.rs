//! Simulated job: the reports of its agents, block by block.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::suboptimal_flops,
    reason = "small numbers, written as one would on paper"
)]

use std::sync::Arc;

use echo_core::ids::{CommId, RankInJob, RoleId};
use echo_core::model::event::{
    Anchor, Block, Event, Origin, Reading, SeqRange, Source, StoredEvent, Summary,
};
use echo_core::units::{NANOS_PER_MILLI, Nanos};
use fleet_proto::metric;

pub mod device;
pub mod durations;
pub mod outcome;

/// Operations in one iteration of the simulated job.
pub const OPS_PER_ITERATION: u64 = 10;
/// Operations in one of its blocks.
pub const OPS_PER_BLOCK: u64 = 40;

/// Measurements of one rank in one block of four iterations.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// Host gap of each iteration, milliseconds.
    pub gap_ms: f64,
    /// One gap of the block that differs from the others, milliseconds.
    pub odd_gap_ms: Option<f64>,
    /// Time blocked in each iteration, milliseconds.
    pub blocked_ms: f64,
    /// Synchronisations in the block.
    pub n_syncs: u64,
    /// Mean arrival after the last common completion, milliseconds.
    pub arrival_ms: f64,
    /// Duration of an iteration, milliseconds.
    pub period_ms: f64,
}

impl Measured {
    /// A healthy rank of a job with iterations of 50 ms.
    pub const HEALTHY: Self = Self {
        gap_ms: 4.0,
        odd_gap_ms: None,
        blocked_ms: 30.0,
        n_syncs: 4,
        arrival_ms: 80.0,
        period_ms: 50.0,
    };
}

/// A job with one rank on each node.
#[derive(Debug, Clone)]
pub struct Job {
    /// Ranks, one to a node.
    pub n_ranks: u32,
    /// Clock offset of each rank, nanoseconds.
    pub clock_skew: fn(u32) -> i64,
}

impl Job {
    /// A job of `n_ranks` ranks whose clocks agree.
    pub fn with_ranks(n_ranks: u32) -> Self {
        Self {
            n_ranks,
            clock_skew: |_| 0,
        }
    }

    /// All events of blocks `0..n_blocks`, numbered, block by block and rank by rank.
    pub fn events(
        &self,
        n_blocks: u64,
        measure: impl Fn(u64, u32) -> Measured,
    ) -> Vec<StoredEvent> {
        let per_rank = |block: u64| {
            let measure = &measure;
            (0..self.n_ranks).flat_map(move |rank| self.block(block, rank, measure(block, rank)))
        };
        numbered((0..n_blocks).flat_map(per_rank))
    }

    fn block(&self, block: u64, rank: u32, measured: Measured) -> Vec<Event> {
        let (first, last) = (block * OPS_PER_BLOCK, (block + 1) * OPS_PER_BLOCK - 1);
        let begin_ms = block as f64 * 200.0;
        let gaps = {
            let odd = measured.odd_gap_ms.unwrap_or(measured.gap_ms);
            let n = measured.n_syncs as f64;
            Summary {
                count: measured.n_syncs,
                sum: measured.gap_ms * (n - 1.0).max(0.0) + if n > 0.0 { odd } else { 0.0 },
                min: Some(measured.gap_ms.min(odd)),
                max: Some(measured.gap_ms.max(odd)),
            }
        };
        let even = |value: f64, count: u64| Summary {
            count,
            sum: value * count as f64,
            min: Some(value),
            max: Some(value),
        };
        let span = (begin_ms, begin_ms + 199.0);
        let seqs = SeqRange::new(first, last);
        let point = |name, reading| self.event(rank, (name, reading), seqs, span);
        let mut events = Vec::new();
        if measured.n_syncs > 0 {
            events.push(point(metric::HOST_GAP, Reading::Histogram(gaps)));
            let blocked = even(measured.blocked_ms, measured.n_syncs);
            events.push(point(metric::BLOCKED, Reading::Histogram(blocked)));
            events.push(point(metric::PERIOD, Reading::Double(measured.period_ms)));
        }
        let mut arrivals = point(
            metric::ARRIVAL,
            Reading::Histogram(even(measured.arrival_ms, OPS_PER_BLOCK)),
        );
        if let Some(block) = &mut arrivals.block {
            block.anchor = Some(Anchor {
                seq: first.saturating_sub(1),
                offset_ms: 0.0,
            });
        }
        events.push(arrivals);
        events
    }

    /// A report that the rank has issued `n` operations so far. It arrives without delay.
    pub fn issued(&self, rank: u32, n: u64, at_ms: f64) -> StoredEvent {
        let last = n.saturating_sub(1);
        let reading = Reading::Int(i64::try_from(n).unwrap());
        let what = (metric::ISSUED, reading);
        let event = self.event(rank, what, SeqRange::new(last, last), (at_ms, at_ms));
        StoredEvent {
            id: 1,
            received: instant(at_ms),
            event,
        }
    }

    fn event(
        &self,
        rank: u32,
        (name, reading): (&str, Reading),
        seqs: Option<SeqRange>,
        (from_ms, to_ms): (f64, f64),
    ) -> Event {
        let skew = (self.clock_skew)(rank);
        let origin = Origin {
            cluster: "test".parse().unwrap(),
            node: format!("node-{rank}").parse().unwrap(),
            rank: Some(RankInJob::new(i64::from(rank), Some(i64::from(self.n_ranks))).unwrap()),
            job: Some("job".parse().unwrap()),
            gpu_model: Some(Arc::from("NVIDIA H200")),
            gpu_uuid: None,
            namespace: None,
            pod: None,
        };
        Event {
            timestamp: instant(to_ms).offset(skew),
            start: Some(instant(from_ms).offset(skew)),
            origin: Arc::new(origin),
            metric: name.parse().unwrap(),
            unit: Arc::from("ms"),
            reading,
            block: Some(Block {
                comm: CommId::new(1),
                op: Some("AllReduce".parse().unwrap()),
                seqs,
                role: Some(RoleId::new(7)),
                iterations: Some((OPS_PER_BLOCK / OPS_PER_ITERATION) as f64),
                anchor: None,
                source: Source::Host,
            }),
            attrs: Arc::from("{}"),
            samples: Vec::new(),
        }
    }
}

/// Events as they are stored, all received at once.
pub fn numbered(events: impl Iterator<Item = Event>) -> Vec<StoredEvent> {
    let stored = |(event, id)| StoredEvent {
        id,
        received: instant(0.0),
        event,
    };
    events.zip(1..).map(stored).collect()
}

/// An instant of the simulated time.
pub fn instant(ms: f64) -> Nanos {
    Nanos::new(1_790_000_000_000_000_000).offset((ms * NANOS_PER_MILLI) as i64)
}
