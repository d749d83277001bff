use proptest::prelude::{any, prop, proptest};

use super::*;

/// Answer as NCCL 2.27 writes it: rank 3 of 8 has not launched the last all-reduce.
const BEHIND: &str = "\
NCCL version 2.27.3 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12090

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         4         8         8   RUNNING  MISMATCH

Errors
======

Warnings
========

#0-0 (00000000cafe0001) MISMATCH
  Communicator ranks have different AllReduce operation counts
  7 ranks have launched up to operation 100
  Rank 3 has launched up to operation 99 -- GPU 3 managed by process 4713 on node 10.0.0.1

";

fn launched(status: &Status) -> Vec<(u32, u64)> {
    let ranks = status.comms[0].ranks.iter();
    let total = |rank: &RankStatus| rank.launched.values().sum();
    ranks.map(|rank| (rank.member.rank, total(rank))).collect()
}

#[test]
fn a_rank_that_is_behind_is_listed_and_the_others_follow() {
    let status = parse_text(BEHIND).unwrap();
    let comm = &status.comms[0];
    assert_eq!((comm.hash, comm.size), (0xcafe_0001, 8));
    let expected = (0..8).map(|rank| (rank, if rank == 3 { 99 } else { 100 }));
    assert_eq!(launched(&status), expected.collect::<Vec<_>>());
    let process = MemberProcess {
        host: "10.0.0.1".to_owned(),
        pid: 4713,
        device: 3,
    };
    assert_eq!(comm.ranks[3].member.process, Some(process));
    assert_eq!(comm.ranks[0].member.process, None);
}

#[test]
fn several_ranks_with_one_count_are_listed_below_it() {
    let several = BEHIND.replace("  7 ranks", "  6 ranks").replace(
        "  Rank 3 has launched up to operation 99 -- GPU 3",
        "  2 ranks have not launched any operations\n  \
             Rank 2 -- GPU 2 (NVML 6) managed by process 4712 on node 10.0.0.1\n  \
             Rank 3 -- GPU 3",
    );
    let status = parse_text(&several).unwrap();
    assert_eq!(launched(&status)[1..4], [(1, 100), (2, 0), (3, 0)]);
    let process = status.comms[0].ranks[2].member.process.as_ref().unwrap();
    assert_eq!((process.pid, process.device), (4712, 2));
}

#[test]
fn a_job_without_a_discrepancy_has_no_communicators() {
    let (healthy, _) = BEHIND.split_once("#0-0").unwrap();
    assert_eq!(parse_text(healthy).unwrap(), Status::default());
}

#[test]
fn a_rank_that_did_not_answer_is_missing() {
    let incomplete = BEHIND.replace(
        "Warnings\n",
        "#0-0 (00000000cafe0001) INCOMPLETE\n  Missing communicator data from 1 rank\n  \
         Rank 7 -- GPU 3 managed by process 4717 on node 10.0.0.2\n\nWarnings\n",
    );
    let incomplete = incomplete.replace("  7 ranks", "  6 ranks");
    let status = parse_text(&incomplete).unwrap();
    assert_eq!(status.comms[0].missing[0].rank, 7);
    assert_eq!(launched(&status).len(), 7);
}

#[test]
fn unlisted_ranks_of_two_counts_are_left_out() {
    let ambiguous = BEHIND.replace(
        "  7 ranks have launched up to operation 100\n",
        "  4 ranks have launched up to operation 100\n  3 ranks have launched up to operation 98\n",
    );
    assert_eq!(launched(&parse_text(&ambiguous).unwrap()), [(3, 99)]);
}

#[test]
fn another_text_is_an_error() {
    parse_text("HTTP/1.1 400 Bad Request\r\n\r\n").unwrap_err();
}

proptest! {
    #[test]
    fn lines_in_any_order_do_not_panic(
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
        size in any::<u64>(),
    ) {
        let lines: Vec<&str> = BEHIND.lines().collect();
        let picked = order.iter().map(|at| *at.get(&lines));
        let text = picked.collect::<Vec<_>>().join("\n");
        let text = text.replace("         8         8", &format!(" {size} 8"));
        let _status = parse_text(&format!("Communicators...\n{text}"));
    }
}
