//! Progress of the ranks of a hang, as a live agent would report it: the number of operations that
//! each rank has issued on each communicator that waits.
//!
//! A rank without a dump has issued nothing, as a rank that never answers NCCL's RAS subsystem, if
//! no other rank explains why its peers wait.

use std::collections::BTreeMap;
use std::time::Duration;

use fleet_agent_core::event::Op;
use fleet_agent_core::signal::{Block, CommId, Point, Source, Value};
use fleet_proto::metric;
use xxhash_rust::xxh64::xxh64;

use crate::blocks::RankPoints;
use crate::flight_recorder::Dump;
use crate::hang::{Blocked, Hang, LastEnqueued, last_enqueued};
use crate::trace::parse_op;

/// Times of the reports since the first one. An instance names a hang when no rank has progressed
/// for 30 s of its own time and a rank that waits has reported since then. The last report makes it
/// look again.
pub const REPORT_TIMES: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_secs(33),
    Duration::from_secs(35),
];

/// Returns the points of all ranks of the communicators that wait, one block per report.
pub fn reports(dumps: &BTreeMap<u32, Dump>, hang: &Hang) -> Vec<RankPoints> {
    let last_enqueued = last_enqueued(dumps);
    let mut by_rank: BTreeMap<u32, Vec<(Block, u64)>> = BTreeMap::new();
    for one in &hang.blocked {
        for (rank, issued) in issued(one, &last_enqueued) {
            let counted = block(one, rank, issued).map(|block| (block, issued));
            by_rank.entry(rank).or_default().extend(counted);
        }
    }
    let of_rank = |(rank, issued): (u32, Vec<(Block, u64)>)| RankPoints {
        rank,
        blocks: REPORT_TIMES
            .map(|time| report(&issued, time))
            .into_iter()
            .collect(),
    };
    by_rank.into_iter().map(of_rank).collect()
}

/// Returns how many operations each rank has issued, no more than the one that is waited for.
fn issued(one: &Blocked, last_enqueued: &LastEnqueued<'_>) -> Vec<(u32, u64)> {
    let behind = one.behind.iter().map(|rank| {
        let last = if one.is_transfer {
            // Both ranks have done the transfers before.
            Some(one.seq - 1)
        } else {
            let own = last_enqueued.get(rank);
            own.and_then(|own| own.get(one.group.as_str()).copied())
        };
        (*rank, count(last.unwrap_or(-1).min(one.seq - 1)))
    });
    let silent = one.without_dump.iter().map(|rank| (*rank, 0));
    let silent = silent.filter(|_| one.behind.is_empty());
    let waiting = one.waiting.iter().map(|rank| (*rank, count(one.seq)));
    waiting.chain(behind).chain(silent).collect()
}

/// Returns the number of operations up to `seq`; -1 is before the first one.
fn count(seq: i64) -> u64 {
    u64::try_from(seq.saturating_add(1)).unwrap_or(0)
}

fn block(one: &Blocked, rank: u32, issued: u64) -> Option<Block> {
    let mut ranks = [&one.waiting[..], &one.behind, &one.without_dump].concat();
    ranks.sort_unstable();
    let seq = issued.saturating_sub(1);
    let comm = if one.is_transfer {
        // Of each direction of each pair: their numbers have nothing in common.
        format!("{} {} of {:?} in {ranks:?}", one.group, one.op, one.waiting)
    } else {
        one.group.clone()
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

fn report(issued: &[(Block, u64)], time: Duration) -> Vec<Point> {
    let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let point = |(block, total): &(Block, u64)| Point {
        metric: metric::ISSUED,
        start_ns: 0,
        time_ns,
        block: block.clone(),
        value: Value::Issued {
            total: *total,
            waiting_ms: 0.0,
            is_stopped: false,
        },
    };
    issued.iter().map(point).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn blocked(behind: &[u32], without_dump: &[u32]) -> Hang {
        let one = Blocked {
            group: "a".to_owned(),
            purpose: String::new(),
            op: "all_gather".to_owned(),
            seq: 7,
            waiting: vec![4],
            behind: behind.to_vec(),
            without_dump: without_dump.to_vec(),
            is_transfer: false,
        };
        Hang {
            blocked: vec![one],
            ..Hang::default()
        }
    }

    /// Returns the number of issued operations by rank, which all reports repeat.
    fn totals(dumps: &BTreeMap<u32, Dump>, hang: &Hang) -> Vec<(u32, u64)> {
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
        reports(dumps, hang).into_iter().map(total).collect()
    }

    #[test]
    fn a_rank_that_is_behind_has_issued_what_its_dump_shows() {
        let entry = json!({"process_group": ["a", ""], "collective_seq_id": 5,
                           "profiling_name": "nccl:all_gather", "state": "completed"});
        let text = json!({ "entries": [entry] }).to_string();
        let dumps = BTreeMap::from([(2, Dump::read(text.as_bytes()).unwrap())]);
        assert_eq!(totals(&dumps, &blocked(&[2], &[])), [(2, 6), (4, 8)]);
    }

    #[test]
    fn a_rank_without_a_dump_has_issued_nothing_if_its_peers_wait_for_it_alone() {
        let none = BTreeMap::new();
        assert_eq!(totals(&none, &blocked(&[], &[3])), [(3, 0), (4, 8)]);
        assert_eq!(totals(&none, &blocked(&[2], &[3])), [(2, 0), (4, 8)]);
    }
}
