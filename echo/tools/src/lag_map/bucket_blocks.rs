//! Sums of time buckets in the form of blocks, as the detector compares them.

use std::collections::BTreeMap;

use echo_analysis::assembly::{CohortBlock, MeanArrival, Member, Transfer};
use echo_core::ids::{CommId, Op, Rank, RankInJob, RoleId};
use echo_core::model::event::{SeqRange, Source, Summary};
use echo_core::units::{Nanos, Window};
use echo_store::timeseries::TimeseriesPoint;
use fleet_proto::metric;

/// Blocks of a cohort by bucket.
pub(super) type BucketBlocks = BTreeMap<i64, CohortBlock>;

/// A kind of collective in a bucket.
type TransferKey = (i64, CommId, Option<Op>);

/// Sums the points of a job, cohort by cohort.
pub(super) fn bucket_blocks(points: &[&TimeseriesPoint]) -> Vec<BucketBlocks> {
    let roles = roles(points);
    let mut blocks: BTreeMap<RoleId, BTreeMap<i64, CohortSums>> = BTreeMap::new();
    let mut transfers: BTreeMap<TransferKey, Transfer> = BTreeMap::new();
    for point in points {
        let Some(rank) = point.origin.rank.map(RankInJob::rank) else {
            continue;
        };
        if point.metric.as_str() == metric::WAIT {
            add_transfer(&mut transfers, rank, point);
        } else if let Some(role) = point.role {
            let of_role = blocks.entry(role).or_default();
            of_role.entry(point.bucket).or_default().add(rank, point);
        }
    }
    for ((bucket, ..), transfer) in transfers {
        // GPUs are compared within a cohort only.
        let mut cohorts = transfer.ranks.keys().map(|rank| roles.get(rank));
        let first = cohorts.next().flatten();
        let Some(role) = first.filter(|_| cohorts.all(|role| role == first)) else {
            continue;
        };
        let block = blocks.get_mut(role).and_then(|of| of.get_mut(&bucket));
        if let Some(block) = block {
            block.transfers.push(transfer);
        }
    }
    let of_role = |of_role: BTreeMap<i64, CohortSums>| -> BucketBlocks {
        let built = of_role.into_iter();
        built
            .filter_map(|(bucket, block)| Some((bucket, block.block()?)))
            .collect()
    };
    blocks.into_values().map(of_role).collect()
}

/// Latest role of each rank.
fn roles(points: &[&TimeseriesPoint]) -> BTreeMap<Rank, RoleId> {
    let mut latest: BTreeMap<Rank, (i64, RoleId)> = BTreeMap::new();
    let blocks = points
        .iter()
        .filter(|point| point.metric.as_str() != metric::WAIT);
    for point in blocks {
        if let Some((rank, role)) = point.origin.rank.zip(point.role) {
            let known = latest.entry(rank.rank()).or_insert((point.bucket, role));
            *known = (*known).max((point.bucket, role));
        }
    }
    let roles = latest.into_iter();
    roles.map(|(rank, (_, role))| (rank, role)).collect()
}

/// Adds the time of a GPU inside one kind of collective.
fn add_transfer(
    transfers: &mut BTreeMap<TransferKey, Transfer>,
    rank: Rank,
    point: &TimeseriesPoint,
) {
    let (Some(inside), Some(seqs)) = (summary(point), any_operations()) else {
        return;
    };
    let key = (point.bucket, point.comm, point.op.clone());
    let transfer = transfers.entry(key).or_insert_with(|| Transfer {
        comm: point.comm,
        op: point.op.clone(),
        seqs,
        iterations: 0.0,
        ranks: BTreeMap::new(),
    });
    transfer.iterations = transfer.iterations.max(point.iterations);
    let known = transfer.ranks.entry(rank).or_insert((NONE, Vec::new()));
    known.0 = plus(known.0, inside);
}

/// Sums of one rank in a bucket.
#[derive(Debug, Default)]
struct RankSums {
    iterations: f64,
    gap: Option<Summary>,
    host_blocked: Option<Summary>,
    device_blocked: Option<Summary>,
    arrival: Option<MeanArrival>,
}

impl RankSums {
    fn add(&mut self, point: &TimeseriesPoint) {
        let sum = |known: &mut Option<Summary>| {
            *known = match (*known, summary(point)) {
                (Some(known), Some(more)) => Some(plus(known, more)),
                (known, more) => known.or(more),
            };
        };
        match (point.metric.as_str(), point.source) {
            (metric::HOST_GAP, _) => sum(&mut self.gap),
            (metric::BLOCKED, Source::Host) => sum(&mut self.host_blocked),
            (metric::BLOCKED, Source::Device) => sum(&mut self.device_blocked),
            // Every block has an arrival.
            (metric::ARRIVAL, _) => {
                self.iterations += point.iterations;
                let compared = point.arrivals.map(|all| MeanArrival {
                    // The store has compared arrivals after the same completion.
                    anchor_seq: 0,
                    mean_ms: all.late_ms / all.blocks,
                });
                self.arrival = self.arrival.or(compared);
            }
            _ => {}
        }
    }

    fn member(self, rank: Rank) -> Member {
        Member {
            rank,
            gap: self.gap,
            blocked: self.device_blocked.or(self.host_blocked),
            elapsed_ms: None,
            arrival: self.arrival,
        }
    }
}

/// Sums of a cohort in a bucket.
#[derive(Debug, Default)]
struct CohortSums {
    ranks: BTreeMap<Rank, RankSums>,
    transfers: Vec<Transfer>,
}

impl CohortSums {
    fn add(&mut self, rank: Rank, point: &TimeseriesPoint) {
        self.ranks.entry(rank).or_default().add(point);
    }

    /// Returns the block; `None` without iterations.
    fn block(mut self) -> Option<CohortBlock> {
        let iterations = self.ranks.values().map(|sums| sums.iterations);
        let iterations = iterations.fold(0.0, f64::max);
        // A kind of collective in few of the iterations delays those only.
        for transfer in &mut self.transfers {
            transfer.iterations = transfer.iterations.max(iterations);
        }
        let members = self.ranks.into_iter();
        let members: Vec<Member> = members.map(|(rank, sums)| sums.member(rank)).collect();
        (iterations > 0.0).then_some(CohortBlock {
            seqs: any_operations()?,
            iterations,
            before: 0.0,
            // Lags do not depend on the time of a block.
            time: Window::new(Nanos::new(0), Nanos::new(1))?,
            n_expected: members.len(),
            members,
            period: None,
            transfers: self.transfers,
        })
    }
}

/// Lags do not depend on the numbers of the operations.
fn any_operations() -> Option<SeqRange> {
    SeqRange::new(0, 0)
}

/// Distribution without samples.
const NONE: Summary = Summary {
    count: 0,
    sum: 0.0,
    min: None,
    max: None,
};

const fn plus(one: Summary, other: Summary) -> Summary {
    Summary {
        count: one.count.saturating_add(other.count),
        sum: one.sum + other.sum,
        ..NONE
    }
}

/// Samples of a point without their extremes; `None` without samples or iterations.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are whole and not negative"
)]
fn summary(point: &TimeseriesPoint) -> Option<Summary> {
    (point.count > 0.0 && point.iterations > 0.0).then_some(Summary {
        count: point.count as u64,
        sum: point.sum,
        ..NONE
    })
}
