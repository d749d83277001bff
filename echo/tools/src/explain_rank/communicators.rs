//! Lag of the GPU of a rank on each of its communicators, block by block.
//!
//! If GPUs are measured, detection uses the communicator with the largest lag. That is not always
//! the busiest one: in the others, the rank may be on time because its whole group was late.

use std::collections::BTreeMap;

use echo_analysis::assembly::Transfer;
use echo_analysis::lag::transfer_lags;
use echo_core::ids::{CommId, Op, RankInJob, RoleId};
use echo_core::model::event::{Reading, SeqRange, Source, StoredEvent};
use echo_core::stats::mean;
use echo_core::units::Nanos;
use echo_store::JobQuery;
use fleet_proto::metric;
use schemars::JsonSchema;
use serde::Serialize;

use super::downsample::evenly;
use super::subject::Subject;
use crate::ToolError;
use crate::host_evidence::widen_for_clock_skew;
use crate::names::metrics;
use crate::scope::Scope;

/// Maximum number of waits of the rank that are read, latest first.
const MAX_OWN: usize = 20_000;

/// Maximum number of communicators that are read, those with the most blocks.
const MAX_COMMS: usize = 6;

/// Maximum number of series per answer, those with the largest lag.
const MAX_SERIES: usize = 6;

/// Maximum number of points per series, and minimum however many ranks report.
const MAX_POINTS: usize = 40;
const MIN_POINTS: usize = 4;

/// Maximum number of events read per communicator.
const MAX_EVENTS: usize = 50_000;

/// Lag of a rank in one operation of one communicator, measured on the GPUs.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CommunicatorLags {
    /// Communicator id, 16 hexadecimal digits.
    pub communicator: String,
    /// Collective operation; null when not reported.
    pub op: Option<String>,
    /// Mean lag over the points, milliseconds per iteration.
    pub lag_ms: f64,
    /// Number of blocks that the rank reported in the window.
    pub blocks: u64,
    /// Points, earliest first; at most 40, evenly spaced.
    pub points: Vec<CommunicatorPoint>,
}

/// Lag of a rank in one block of a communicator.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CommunicatorPoint {
    /// End of the block on the rank's own clock, RFC 3339.
    pub time: String,
    /// Sequence number of the first operation, within the communicator.
    pub seq_first: u64,
    /// Sequence number of the last operation.
    pub seq_last: u64,
    /// Lag: upper median of the time that its peers spent inside, minus its own, milliseconds per
    /// iteration.
    pub lag_ms: f64,
    /// Number of ranks compared.
    pub ranks: u64,
}

/// Blocks of the rank by operation, with their ends on its own clock.
type Kinds = BTreeMap<Option<Op>, BTreeMap<SeqRange, Nanos>>;

/// Loads the series, largest lag first.
pub(super) async fn load(
    scope: &Scope<'_>,
    subject: &Subject,
    role: Option<RoleId>,
) -> Result<Vec<CommunicatorLags>, ToolError> {
    let Some(role) = role else {
        return Ok(Vec::new());
    };
    let (store, window) = (&scope.context.store, scope.window);
    let own = JobQuery {
        cluster: scope.require_cluster()?.clone(),
        job: subject.job().cloned(),
        rank: Some(subject.rank),
        role: Some(role),
        comm: None,
        metrics: metrics(&[metric::WAIT])?,
        source: Some(Source::Device),
        window,
        blocks: None,
        limit: MAX_OWN,
    };
    let mut comms: Vec<(CommId, Kinds)> = by_comm(&store.job_events(own.clone()).await?);
    let n_blocks = |kinds: &Kinds| kinds.values().map(BTreeMap::len).sum::<usize>();
    comms.sort_by_key(|(comm, kinds)| (std::cmp::Reverse(n_blocks(kinds)), *comm));
    comms.truncate(MAX_COMMS);
    let mut all_series = Vec::new();
    for (comm, kinds) in comms {
        let chosen = sample_blocks(&kinds, subject.world_size());
        let all = JobQuery {
            rank: None,
            // A communicator that spans roles is not evaluated; detecting that requires all of
            // its ranks.
            role: None,
            comm: Some(comm),
            window: widen_for_clock_skew(window.from(), window.to()).unwrap_or(window),
            blocks: Some(chosen.values().flat_map(BTreeMap::keys).copied().collect()),
            limit: MAX_EVENTS,
            ..own.clone()
        };
        let events = store.job_events(all).await?;
        for (op, blocks) in &chosen {
            let points: Vec<CommunicatorPoint> = blocks
                .iter()
                .filter_map(|(seqs, end)| {
                    let transfer = assemble(comm, op.as_ref(), *seqs, role, &events)?;
                    point(&transfer, *end, subject)
                })
                .collect();
            let n_blocks = kinds.get(op).map_or(0, BTreeMap::len);
            all_series.extend(series(comm, op.as_ref(), n_blocks, points));
        }
    }
    all_series.sort_by(|a, b| b.lag_ms.total_cmp(&a.lag_ms));
    all_series.truncate(MAX_SERIES);
    Ok(all_series)
}

fn by_comm(events: &[StoredEvent]) -> Vec<(CommId, Kinds)> {
    let mut comms: BTreeMap<CommId, Kinds> = BTreeMap::new();
    for stored in events {
        if let Some(block) = &stored.event.block
            && let Some(seqs) = block.seqs
        {
            let kinds = comms.entry(block.comm).or_default();
            let blocks = kinds.entry(block.op.clone()).or_default();
            blocks.insert(seqs, stored.event.timestamp);
        }
    }
    comms.into_iter().collect()
}

/// Selects evenly spaced blocks of each operation, as many as the limit on events allows.
fn sample_blocks(kinds: &Kinds, world_size: Option<u32>) -> Kinds {
    let n_ranks = world_size.and_then(|size| usize::try_from(size).ok());
    let per_block = n_ranks.unwrap_or(1).saturating_mul(kinds.len()).max(1);
    let n = (MAX_EVENTS / per_block).clamp(MIN_POINTS, MAX_POINTS);
    let sampled = |blocks: &BTreeMap<SeqRange, Nanos>| {
        let all: Vec<(SeqRange, Nanos)> = blocks.iter().map(|(seqs, end)| (*seqs, *end)).collect();
        evenly(&all, n).into_iter().collect()
    };
    let kinds = kinds.iter();
    kinds
        .map(|(op, blocks)| (op.clone(), sampled(blocks)))
        .collect()
}

/// Assembles the reports of all ranks about one block; `None` when one of them has another role, as
/// in a judgement.
fn assemble(
    comm: CommId,
    op: Option<&Op>,
    seqs: SeqRange,
    role: RoleId,
    events: &[StoredEvent],
) -> Option<Transfer> {
    let mut transfer = Transfer {
        comm,
        op: op.cloned(),
        seqs,
        iterations: 0.0,
        ranks: BTreeMap::new(),
    };
    for stored in events {
        let Some(block) = stored.event.block.as_ref() else {
            continue;
        };
        if block.seqs != Some(seqs) || block.op.as_ref() != op {
            continue;
        }
        if block.role != Some(role) {
            return None;
        }
        let rank = stored.event.origin.rank.map(RankInJob::rank);
        if let (Some(rank), Some(iterations), Reading::Histogram(summary)) =
            (rank, block.iterations, stored.event.reading)
        {
            transfer.iterations = iterations;
            transfer.ranks.insert(rank, (summary, Vec::new()));
        }
    }
    (transfer.iterations > 0.0).then_some(transfer)
}

fn point(transfer: &Transfer, end: Nanos, subject: &Subject) -> Option<CommunicatorPoint> {
    let lags = transfer_lags(transfer)?;
    let own = lags.iter().find(|(rank, _)| *rank == subject.rank);
    let (_, lag_ms) = own?;
    Some(CommunicatorPoint {
        time: end.to_string(),
        seq_first: transfer.seqs.first(),
        seq_last: transfer.seqs.last(),
        lag_ms: *lag_ms,
        ranks: lags.len().try_into().unwrap_or(u64::MAX),
    })
}

fn series(
    comm: CommId,
    op: Option<&Op>,
    n_blocks: usize,
    points: Vec<CommunicatorPoint>,
) -> Option<CommunicatorLags> {
    let lags: Vec<f64> = points.iter().map(|point| point.lag_ms).collect();
    Some(CommunicatorLags {
        communicator: comm.to_string(),
        op: op.map(ToString::to_string),
        lag_ms: mean(&lags)?,
        blocks: n_blocks.try_into().unwrap_or(u64::MAX),
        points,
    })
}
