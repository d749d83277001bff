//! Progress of the ranks of a hang, as a live agent would report it: the number of operations that
//! each rank has issued on each communicator that waits.
//!
//! A rank without a dump has issued nothing, as a rank that never answers NCCL's RAS subsystem, if
//! no other rank explains why its peers wait. If all ranks have joined an operation, they wait for
//! their GPUs, other than the ranks that are named.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fleet_agent_core::event::Op;
use fleet_agent_core::signal::{Block, CommId, Point, Source, Value};
use fleet_hang::{Blocked, Group, Hang, Job};
use fleet_proto::metric;
use xxhash_rust::xxh64::xxh64;

use crate::blocks::RankPoints;
use crate::trace::parse_op;

/// Times of the reports since the first one. An instance names a hang when no rank has progressed
/// for 30 s of its own time and a rank that waits has reported since then. The last report makes it
/// look again.
pub const REPORT_TIMES: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_secs(33),
    Duration::from_secs(35),
];

/// Progress of a rank on a communicator.
struct Issued {
    block: Block,
    total: u64,
    /// Whether the rank waits for its GPU in an operation that all ranks have joined.
    waits: bool,
}

/// Returns the points of all ranks of the communicators that wait, one block per report.
pub fn reports(job: &Job, hang: &Hang) -> Vec<RankPoints> {
    let named: BTreeSet<u32> = hang
        .findings
        .iter()
        .flat_map(|one| &one.ranks)
        .copied()
        .collect();
    let mut by_rank: BTreeMap<u32, Vec<Issued>> = BTreeMap::new();
    for one in &hang.blocked {
        let is_joined = one.behind.is_empty() && one.unobserved.is_empty();
        // If all are named, as two that disagree, all wait.
        let are_all_named = one.waiting.iter().all(|rank| named.contains(rank));
        for (rank, total) in issued(one, job) {
            let counted = block(one, rank, total).map(|block| Issued {
                block,
                total,
                waits: is_joined && (are_all_named || !named.contains(&rank)),
            });
            by_rank.entry(rank).or_default().extend(counted);
        }
    }
    let of_rank = |(rank, issued): (u32, Vec<Issued>)| RankPoints {
        rank,
        blocks: REPORT_TIMES
            .map(|time| report(&issued, time))
            .into_iter()
            .collect(),
    };
    by_rank.into_iter().map(of_rank).collect()
}

/// Returns how many operations each rank has issued, no more than the one that is waited for.
fn issued(one: &Blocked, job: &Job) -> Vec<(u32, u64)> {
    let members = members(one);
    let is_of = |group: &&Group| group.name == one.group && group.members == members;
    let group = job.groups.iter().find(is_of);
    let enqueued = |rank: &u32| group?.progress.get(rank)?.enqueued;
    let behind = one.behind.iter().map(|rank| {
        // Both ranks of a transfer have done those before.
        let last = if one.is_transfer {
            one.seq.checked_sub(1)
        } else {
            enqueued(rank)
        };
        (
            *rank,
            last.map_or(0, |last| last.saturating_add(1)).min(one.seq),
        )
    });
    let silent = one.unobserved.iter().map(|rank| (*rank, 0));
    let silent = silent.filter(|_| one.behind.is_empty());
    let waiting = one
        .waiting
        .iter()
        .map(|rank| (*rank, one.seq.saturating_add(1)));
    waiting.chain(behind).chain(silent).collect()
}

/// Returns the ranks of the group, of a transfer its two. Several groups may have one name.
fn members(one: &Blocked) -> BTreeSet<u32> {
    let ranks = [&one.waiting, &one.behind, &one.unobserved, &one.unknown];
    ranks.into_iter().flatten().copied().collect()
}

fn block(one: &Blocked, rank: u32, issued: u64) -> Option<Block> {
    let ranks: Vec<u32> = members(one).into_iter().collect();
    let seq = issued.saturating_sub(1);
    let comm = if one.is_transfer {
        // Of each direction of each pair: their numbers have nothing in common.
        format!("{} {} of {:?} in {ranks:?}", one.group, one.op, one.waiting)
    } else {
        format!("{} {ranks:?}", one.group)
    };
    Some(Block {
        comm: CommId::new(xxh64(comm.as_bytes(), 0)),
        comm_rank: u32::try_from(ranks.binary_search(&rank).ok()?).ok()?,
        comm_nranks: u32::try_from(ranks.len()).ok()?,
        source: Source::FlightRecorder,
        op: match one.op.as_str() {
            "send" => Op::Send,
            "recv" => Op::Recv,
            // A barrier is an all-reduce for NCCL.
            other => parse_op(other).unwrap_or(Op::AllReduce),
        },
        seq_first: seq,
        seq_last: seq,
        iterations: None,
        role: None,
    })
}

fn report(issued: &[Issued], time: Duration) -> Vec<Point> {
    let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let point = |own: &Issued| Point {
        metric: metric::ISSUED,
        start_ns: 0,
        time_ns,
        block: own.block.clone(),
        value: Value::Issued {
            total: own.total,
            age_ms: None,
            waiting_ms: if own.waits {
                time.as_secs_f64() * 1e3
            } else {
                0.0
            },
            is_stopped: false,
            running: None,
            exit: None,
        },
    };
    issued.iter().map(point).collect()
}

#[cfg(test)]
mod tests {
    use fleet_hang::{Finding, Kind, Progress};

    use super::*;

    fn blocked(behind: &[u32], unobserved: &[u32]) -> Hang {
        let one = Blocked {
            group: "a".to_owned(),
            op: "all_gather".to_owned(),
            seq: 7,
            waiting: vec![4],
            behind: behind.to_vec(),
            unobserved: unobserved.to_vec(),
            ..Blocked::default()
        };
        Hang {
            blocked: vec![one],
            ..Hang::default()
        }
    }

    /// Returns the number of issued operations by rank, which all reports repeat.
    fn totals(job: &Job, hang: &Hang) -> Vec<(u32, u64)> {
        let total = |own: RankPoints| {
            let reported: Vec<u64> = own
                .blocks
                .iter()
                .flatten()
                .filter_map(|point| match point.value {
                    Value::Issued { total, .. } => Some(total),
                    _ => None,
                })
                .collect();
            assert_eq!(reported, [reported[0]; REPORT_TIMES.len()]);
            (own.rank, reported[0])
        };
        reports(job, hang).into_iter().map(total).collect()
    }

    fn job(rank: u32, enqueued: u64) -> Job {
        let own = Progress {
            enqueued: Some(enqueued),
            ..Progress::default()
        };
        let group = Group {
            name: "a".to_owned(),
            members: [rank, 4].into(),
            progress: [(rank, own)].into(),
            ..Group::default()
        };
        Job {
            groups: vec![group],
            ..Job::default()
        }
    }

    #[test]
    fn a_rank_that_is_behind_has_issued_what_its_dump_shows() {
        assert_eq!(totals(&job(2, 5), &blocked(&[2], &[])), [(2, 6), (4, 8)]);
    }

    #[test]
    fn of_two_groups_of_one_name_the_one_with_the_same_ranks_counts() {
        let mut of_both = job(2, 100);
        of_both.groups[0].members = [2, 3].into();
        of_both.groups.extend(job(2, 5).groups);
        assert_eq!(totals(&of_both, &blocked(&[2], &[])), [(2, 6), (4, 8)]);
    }

    #[test]
    fn a_rank_without_a_dump_has_issued_nothing_if_its_peers_wait_for_it_alone() {
        let none = Job::default();
        assert_eq!(totals(&none, &blocked(&[], &[3])), [(3, 0), (4, 8)]);
        assert_eq!(totals(&none, &blocked(&[2], &[3])), [(2, 0), (4, 8)]);
    }

    #[test]
    fn ranks_that_all_joined_wait_but_for_the_one_that_is_named() {
        let mut hang = blocked(&[], &[]);
        hang.blocked[0].waiting = vec![4, 5];
        hang.findings = vec![Finding {
            kind: Kind::NotBegun,
            ranks: vec![5],
            sentence: String::new(),
        }];
        let waited = |own: RankPoints| {
            own.blocks.concat().iter().any(
                |point| matches!(point.value, Value::Issued { waiting_ms, .. } if waiting_ms > 30e3),
            )
        };
        let waits = |hang: &Hang| -> Vec<bool> {
            let reports = reports(&Job::default(), hang).into_iter();
            reports.map(waited).collect()
        };
        assert_eq!(waits(&hang), [true, false]);
        hang.findings[0].ranks = vec![4, 5];
        assert_eq!(waits(&hang), [true, true]);
    }
}
