//! Lag of a rank, block by block, computed by the code of live detection.
//!
//! Each block is assembled separately from the stored events, so a rank that reported late, or not
//! at all, delays nothing. Blocks are matched by the sequence numbers of their operations; time
//! only narrows the search.

use std::collections::BTreeMap;

use echo_analysis::assembly::{Assembly, CohortBlock};
use echo_analysis::lag::{Lags, lags, suited_signal};
use echo_core::ids::{CommId, Rank, RankInJob, RoleId};
use echo_core::model::event::{Event, SeqRange, Source, StoredEvent};
use echo_core::stats::robust_sigma;
use echo_core::units::Nanos;
use echo_store::JobQuery;
use fleet_proto::metric;
use schemars::JsonSchema;
use serde::Serialize;

use super::communicators::{self, CommunicatorLags};
use super::downsample::evenly;
use super::last_arrivals::LastArrivals;
use super::subject::Subject;
use crate::ToolError;
use crate::host_evidence::{CLOCK_TOLERANCE_NANOS, widen_for_clock_skew};
use crate::names::metrics;
use crate::scope::Scope;

/// Maximum number of blocks of a rank that are read, latest first.
const MAX_BLOCKS: usize = 20_000;

/// Maximum number of points in a series.
const MAX_POINTS: usize = 120;

/// Minimum number of points, however large the cohort.
const MIN_POINTS: usize = 4;

/// Maximum number of events read for a series.
const MAX_EVENTS: usize = 200_000;

/// Signals that each rank reports about each block.
const SIGNALS: [&str; 4] = [
    metric::HOST_GAP,
    metric::BLOCKED,
    metric::ARRIVAL,
    metric::PERIOD,
];

/// Lag of a rank, block by block.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LagSeries {
    /// Signal by which ranks are compared: `host_gap`, `arrival` or `device_wait`; null without
    /// points.
    pub signal: Option<&'static str>,
    /// Number of blocks that the rank reported in the window.
    pub blocks: u64,
    /// Note on how the points were selected; null when every block has a point.
    pub note: Option<String>,
    /// Points, earliest first; at most 120.
    pub points: Vec<LagPoint>,
    /// Count of blocks in which the rank was last; null when it could not be compared. Explains
    /// incidents but does not raise any.
    pub last: Option<LastArrivals>,
    /// Lag measured on the GPUs, per communicator and operation, largest lag first: a judgement by
    /// `device_wait` uses the communicator with the largest lag. At most 6; empty when GPUs are not
    /// measured.
    pub communicators: Vec<CommunicatorLags>,
}

/// Lag of a rank in one block.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LagPoint {
    /// End of the block, median of the ranks' clocks, RFC 3339.
    pub time: String,
    /// Sequence number of the first operation.
    pub seq_first: u64,
    /// Sequence number of the last operation.
    pub seq_last: u64,
    /// Number of the first iteration, counted from the first operation of the communicator.
    pub first_iteration: f64,
    /// Lag behind the median of its peers, milliseconds per iteration (per operation for
    /// `arrival`); null when it cannot be compared.
    pub lag_ms: Option<f64>,
    /// Robust standard deviation of the lags of its peers, milliseconds; null with fewer than three
    /// peers.
    pub peers_sigma_ms: Option<f64>,
    /// Iteration time, milliseconds; null when no iteration ended in the block.
    pub period_ms: Option<f64>,
    /// Number of ranks that reported the block.
    pub ranks: u64,
}

/// A block as reported by the rank itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RankBlock {
    seqs: SeqRange,
    from: Nanos,
    to: Nanos,
}

/// Blocks that a rank reported in a window, earliest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RankBlocks {
    role: Option<RoleId>,
    blocks: Vec<RankBlock>,
    has_more: bool,
}

impl RankBlocks {
    /// Loads the blocks from the store.
    pub(super) async fn load(scope: &Scope<'_>, subject: &Subject) -> Result<Self, ToolError> {
        let query = JobQuery {
            cluster: scope.require_cluster()?.clone(),
            job: subject.job().cloned(),
            rank: Some(subject.rank),
            role: None,
            comm: None,
            // Agents send one arrival per block.
            metrics: metrics(&[metric::ARRIVAL])?,
            source: None,
            window: scope.window,
            blocks: None,
            limit: MAX_BLOCKS,
        };
        let events = scope.context.store.job_events(query).await?;
        Ok(Self {
            has_more: events.len() == MAX_BLOCKS,
            ..Self::from_events(&events)
        })
    }

    /// Selects the blocks of the latest role and communicator: earlier ones may belong to another
    /// job of the same name.
    fn from_events(events: &[StoredEvent]) -> Self {
        let judged = |stored: &StoredEvent| {
            let block = stored.event.block.as_ref()?;
            let own = RankBlock {
                seqs: block.seqs?,
                from: stored.event.start.unwrap_or(stored.event.timestamp),
                to: stored.event.timestamp,
            };
            block.iterations?;
            Some(((block.role?, block.comm), own))
        };
        let judged: Vec<((RoleId, CommId), RankBlock)> = events.iter().filter_map(judged).collect();
        let latest = judged.last().map(|(key, _)| *key);
        let same = judged.into_iter().filter(|(key, _)| Some(*key) == latest);
        let by_end: BTreeMap<u64, RankBlock> =
            same.map(|(_, own)| (own.seqs.last(), own)).collect();
        Self {
            role: latest.map(|(role, _)| role),
            blocks: by_end.into_values().collect(),
            has_more: false,
        }
    }

    /// Role of the rank; `None` when it reported no block.
    pub(super) const fn role(&self) -> Option<RoleId> {
        self.role
    }

    /// Time span of the blocks, on the clock of the rank; `None` when it reported no block.
    pub(super) fn span(&self) -> Option<(Nanos, Nanos)> {
        let (first, last) = self.blocks.first().zip(self.blocks.last())?;
        Some((first.from, last.to))
    }

    /// Computes the series of the rank.
    pub(super) async fn series(
        &self,
        scope: &Scope<'_>,
        subject: &Subject,
    ) -> Result<LagSeries, ToolError> {
        let sampled = evenly(&self.blocks, n_points(subject.world_size()));
        let events = self.load_events(scope, subject, &sampled).await?;
        let blocks: Vec<CohortBlock> = sampled
            .iter()
            .filter_map(|own| assemble(own.seqs, &events_of_block(&events, own)))
            .collect();
        let signal = suited_signal(&blocks.iter().collect::<Vec<_>>());
        let compared: Vec<Option<Lags>> =
            blocks.iter().map(|block| lags(signal, &[block])).collect();
        let points: Vec<LagPoint> = blocks
            .iter()
            .zip(&compared)
            .map(|(block, found)| point(block, found.as_ref(), subject.rank))
            .collect();
        Ok(LagSeries {
            signal: (!points.is_empty()).then(|| signal.name()),
            blocks: self.blocks.len().try_into().unwrap_or(u64::MAX),
            note: self.note(points.len()),
            points,
            last: LastArrivals::count(subject.rank, &compared),
            communicators: communicators::load(scope, subject, self.role).await?,
        })
    }

    fn note(&self, n_points: usize) -> Option<String> {
        let n_blocks = self.blocks.len();
        if self.has_more {
            return Some(format!(
                "{n_points} of the latest {n_blocks} blocks of the window, evenly spaced; use a shorter window to see more"
            ));
        }
        (n_points < n_blocks).then(|| {
            format!(
                "{n_points} of {n_blocks} blocks, evenly spaced; use a shorter window to see more"
            )
        })
    }

    /// Loads the reports of all ranks of the role about the sampled blocks.
    async fn load_events(
        &self,
        scope: &Scope<'_>,
        subject: &Subject,
        sampled: &[RankBlock],
    ) -> Result<Vec<StoredEvent>, ToolError> {
        let window = self
            .span()
            .and_then(|(from, to)| widen_for_clock_skew(from, to));
        let (Some(window), Some(role)) = (window, self.role) else {
            return Ok(Vec::new());
        };
        let store = &scope.context.store;
        let query = JobQuery {
            cluster: scope.require_cluster()?.clone(),
            job: subject.job().cloned(),
            rank: None,
            role: Some(role),
            comm: None,
            metrics: metrics(&SIGNALS)?,
            source: None,
            window,
            blocks: Some(sampled.iter().map(|own| own.seqs).collect()),
            limit: MAX_EVENTS,
        };
        let waits = JobQuery {
            metrics: metrics(&[metric::WAIT])?,
            source: Some(Source::Device),
            ..query.clone()
        };
        let mut events = store.job_events(query).await?;
        events.append(&mut store.job_events(waits).await?);
        Ok(events)
    }
}

/// Number of points that the limit on events allows.
fn n_points(world_size: Option<u32>) -> usize {
    let n_ranks = world_size.and_then(|size| usize::try_from(size).ok());
    let per_block = n_ranks.unwrap_or(1).saturating_mul(SIGNALS.len()).max(1);
    (MAX_EVENTS / per_block).clamp(MIN_POINTS, MAX_POINTS)
}

/// Events that end inside a block, by sequence number and by time.
fn events_of_block<'e>(events: &'e [StoredEvent], own: &RankBlock) -> Vec<&'e StoredEvent> {
    let latest = own.to.offset(CLOCK_TOLERANCE_NANOS);
    let earliest = own.from.offset(-CLOCK_TOLERANCE_NANOS);
    let ends_inside = |stored: &&StoredEvent| {
        let seqs = stored.event.block.as_ref().and_then(|block| block.seqs);
        let last = seqs.map(SeqRange::last);
        last.is_some_and(|last| own.seqs.first() <= last && last <= own.seqs.last())
            && earliest <= stored.event.timestamp
            && stored.event.timestamp <= latest
    };
    events.iter().filter(ends_inside).collect()
}

/// Assembles the block of a cohort from the ranks that reported all of it.
fn assemble(seqs: SeqRange, events: &[&StoredEvent]) -> Option<CohortBlock> {
    // No rank is awaited: the first event is long past when the others arrive.
    const LONG_AFTER: Nanos = Nanos::new(3_600_000_000_000);
    let whole = events.iter().filter(|stored| is_whole(&stored.event, seqs));
    let busiest: BTreeMap<Rank, CommId> =
        whole.filter_map(|stored| reporter(&stored.event)).collect();
    let belongs = |stored: &&&StoredEvent| {
        reporter(&stored.event).is_some_and(|(rank, comm)| busiest.get(&rank) == Some(&comm))
    };
    let mut assembly = Assembly::default();
    let mut add = |stored: &StoredEvent, received| {
        assembly.add(&StoredEvent {
            received,
            ..stored.clone()
        });
    };
    let mut belonging = events.iter().filter(belongs).peekable();
    if let Some(first) = belonging.peek() {
        add(first, Nanos::new(0));
    }
    for stored in belonging {
        add(stored, LONG_AFTER);
    }
    let closed = assembly.closed(0.0).into_iter();
    closed
        .map(|(_, block)| block)
        .find(|block| block.seqs == seqs)
}

/// Agents send the arrivals of a block last.
fn is_whole(event: &Event, seqs: SeqRange) -> bool {
    let block = event.block.as_ref();
    event.metric.as_str() == metric::ARRIVAL && block.is_some_and(|block| block.seqs == Some(seqs))
}

fn reporter(event: &Event) -> Option<(Rank, CommId)> {
    Some((
        event.origin.rank.map(RankInJob::rank)?,
        event.block.as_ref()?.comm,
    ))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "sequence numbers stay far below 2^53"
)]
fn point(block: &CohortBlock, found: Option<&Lags>, rank: Rank) -> LagPoint {
    let lag_of = |lags: &Lags| {
        lags.ranks
            .iter()
            .find(|lag| lag.rank == rank)
            .map(|lag| lag.mean_ms)
    };
    let peers: Vec<f64> = found
        .into_iter()
        .flat_map(|lags| &lags.ranks)
        .filter(|lag| lag.rank != rank)
        .map(|lag| lag.mean_ms)
        .collect();
    let n_ops = (block.seqs.last() - block.seqs.first() + 1) as f64;
    LagPoint {
        time: block.time.to().to_string(),
        seq_first: block.seqs.first(),
        seq_last: block.seqs.last(),
        first_iteration: block.seqs.first() as f64 * block.iterations / n_ops,
        lag_ms: found.and_then(lag_of),
        peers_sigma_ms: robust_sigma(&peers),
        period_ms: block.period.map(|reading| reading.ms),
        ranks: block.members.len().try_into().unwrap_or(u64::MAX),
    }
}
