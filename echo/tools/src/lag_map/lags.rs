//! Lags of ranks per time bucket, computed by the code of live detection; no I/O.
//!
//! The sums of a bucket are compared like one long block of each cohort, by the signal that suits
//! the cohort in the window.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use echo_analysis::lag::{Lags, lags, suited_signal};
use echo_core::ids::JobId;
use echo_core::model::event::Origin;
use echo_core::stats::mean;
use echo_store::timeseries::TimeseriesPoint;

use super::bucket_blocks::{BucketBlocks, bucket_blocks};
use super::{RankKey, rank_of};

/// Lags of one rank.
#[derive(Debug, Clone, PartialEq)]
pub struct RankLags {
    /// Job; `None` when unknown.
    pub job: Option<String>,
    /// Rank within the job.
    pub rank: u32,
    /// Node from which it last reported.
    pub node: String,
    /// Lag per bucket behind the median of its peers, milliseconds per iteration (at one operation
    /// for jobs that are compared by arrivals). Negative when it is early; `None` when it cannot be
    /// compared.
    pub lags_ms: Vec<Option<f64>>,
    /// Time per bucket for which other ranks have been waiting for it in an operation that did not
    /// end, milliseconds; `None` outside of hangs and stalls.
    pub missing_ms: Vec<Option<f64>>,
}

impl RankLags {
    /// Key of the rank.
    pub fn key(&self) -> RankKey {
        (self.job.clone(), self.rank)
    }

    /// Mean of the known lags, milliseconds, without operations that did not end.
    pub fn mean_ms(&self) -> Option<f64> {
        let known = self.lags_ms.iter().flatten();
        mean(&known.copied().collect::<Vec<f64>>())
    }

    /// Bucket and value of the largest lag, milliseconds; the time for which others waited for it
    /// is a lag.
    pub fn peak_ms(&self) -> Option<(usize, f64)> {
        let known = self.cells().enumerate();
        let known = known.filter_map(|(place, lag)| Some((place, lag?)));
        known.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Lag per bucket, milliseconds: the larger of lag and time for which others waited for it.
    pub fn cells(&self) -> impl Iterator<Item = Option<f64>> {
        let both = self.lags_ms.iter().zip(&self.missing_ms);
        both.map(|(lag, missing)| lag.iter().chain(missing).copied().reduce(f64::max))
    }

    /// Ranking score: sum of the squared positive lags, so that a short stall counts beside a
    /// lasting lag.
    pub(super) fn score(&self) -> f64 {
        let known = self.cells().flatten();
        known.map(|lag| lag.max(0.0).powi(2)).sum()
    }

    fn new(job: Option<&JobId>, rank: u32, origin: &Origin, n_buckets: usize) -> Self {
        Self {
            job: job.map(ToString::to_string),
            rank,
            node: origin.node.to_string(),
            lags_ms: vec![None; n_buckets],
            missing_ms: vec![None; n_buckets],
        }
    }
}

/// Computes the lags of all comparable ranks, ordered by job and number. Ranks that were
/// `missing` from an operation need not be comparable.
pub(super) fn rank_lags(
    points: &[TimeseriesPoint],
    n_buckets: usize,
    missing: &BTreeSet<RankKey>,
) -> Vec<RankLags> {
    let mut jobs: BTreeMap<Option<&JobId>, Vec<&TimeseriesPoint>> = BTreeMap::new();
    for point in points {
        jobs.entry(point.origin.job.as_ref())
            .or_default()
            .push(point);
    }
    let lags = jobs
        .into_iter()
        .map(|(job, points)| lags_of_job(job, &points, n_buckets, missing));
    lags.flatten().collect()
}

fn lags_of_job(
    job: Option<&JobId>,
    points: &[&TimeseriesPoint],
    n_buckets: usize,
    missing: &BTreeSet<RankKey>,
) -> Vec<RankLags> {
    let latest = latest_origins(points);
    let mut ranks: BTreeMap<u32, RankLags> = BTreeMap::new();
    let name = job.map(ToString::to_string);
    for (rank, origin) in &latest {
        if missing.contains(&(name.clone(), *rank)) {
            ranks.insert(*rank, RankLags::new(job, *rank, origin, n_buckets));
        }
    }
    for blocks in bucket_blocks(points) {
        for (bucket, compared) in compared(&blocks) {
            for lag in &compared.ranks {
                let rank = lag.rank.value();
                let Some(origin) = latest.get(&rank) else {
                    continue;
                };
                let of_rank = ranks
                    .entry(rank)
                    .or_insert_with(|| RankLags::new(job, rank, origin, n_buckets));
                let cell = usize::try_from(bucket).ok();
                if let Some(cell) = cell.and_then(|place| of_rank.lags_ms.get_mut(place)) {
                    *cell = Some(cell.map_or(lag.mean_ms, |known: f64| known.max(lag.mean_ms)));
                }
            }
        }
    }
    ranks.into_values().collect()
}

/// Compares the ranks of a cohort bucket by bucket. One rank alone is not compared.
fn compared(blocks: &BucketBlocks) -> impl Iterator<Item = (i64, Lags)> {
    let signal = suited_signal(&blocks.values().collect::<Vec<_>>());
    let compared = blocks
        .iter()
        .filter_map(move |(bucket, block)| Some((*bucket, lags(signal, &[block])?)));
    compared.filter(|(_, lags)| lags.ranks.len() > 1)
}

/// Latest origin of each rank.
fn latest_origins(points: &[&TimeseriesPoint]) -> BTreeMap<u32, Arc<Origin>> {
    let mut latest: BTreeMap<u32, (i64, &Arc<Origin>)> = BTreeMap::new();
    for point in points {
        if let Some(rank) = rank_of(&point.origin) {
            let known = latest.entry(rank).or_insert((point.bucket, &point.origin));
            if point.bucket >= known.0 {
                *known = (point.bucket, &point.origin);
            }
        }
    }
    let origins = latest.into_iter();
    origins
        .map(|(rank, (_, origin))| (rank, Arc::clone(origin)))
        .collect()
}
