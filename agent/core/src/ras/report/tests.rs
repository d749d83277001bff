use super::*;
use crate::event::Op;
use crate::ras::RankStatus;

/// Host with these addresses, on which probes report the processes with these ids.
struct Host {
    addresses: &'static [&'static str],
    probed: &'static [u32],
}

impl LocalHost for Host {
    fn cluster(&self) -> &'static str {
        "lab"
    }

    fn node(&self) -> &'static str {
        "node-a"
    }

    fn is_local(&self, address: &str) -> bool {
        self.addresses.contains(&address)
    }

    fn is_probed(&self, process: &MemberProcess, _: u32, _: u32) -> bool {
        self.probed.contains(&process.pid)
    }

    fn job(&self, _: &MemberProcess) -> Option<String> {
        Some("train".to_owned())
    }
}

const FIRST: Host = Host {
    addresses: &["10.0.0.1"],
    probed: &[],
};
const SECOND: Host = Host {
    addresses: &["10.0.0.2"],
    probed: &[],
};

/// Ranks 0 and 1 are on the first host, 2 and 3 on the second.
fn member(rank: u32) -> Member {
    Member {
        rank,
        process: Some(MemberProcess {
            host: format!("10.0.0.{}", 1 + rank / 2),
            pid: 100 + rank,
            device: 0,
        }),
    }
}

fn rank(rank: u32, launched: &[(Op, u64)]) -> RankStatus {
    RankStatus {
        member: member(rank),
        launched: launched.iter().copied().collect(),
        is_leaving: false,
    }
}

fn comm(ranks: Vec<RankStatus>, missing: &[u32]) -> Status {
    let world = CommStatus {
        hash: 0xabc,
        size: 4,
        ranks,
        missing: missing.iter().map(|rank| member(*rank)).collect(),
        ..CommStatus::default()
    };
    Status { comms: vec![world] }
}

fn reduced(counts: [u64; 4]) -> Status {
    let ranks = (0..).zip(counts);
    let ranks = ranks.map(|(at, count)| rank(at, &[(Op::AllReduce, count)]));
    comm(ranks.collect(), &[])
}

/// Node, rank in the job and operations of each point.
fn progress<'r>(reported: &'r [ResourcePoints]) -> Vec<(&'r str, u32, u64)> {
    let row = |own: &'r ResourcePoints| {
        let [point] = own.points.as_slice() else {
            panic!("{own:?}")
        };
        let Value::Issued { total, .. } = point.value else {
            panic!("{point:?}")
        };
        (
            own.resource.node.as_str(),
            own.resource.rank.unwrap(),
            total,
        )
    };
    reported.iter().map(row).collect()
}

#[test]
fn each_host_reports_its_own_ranks_under_its_own_name() {
    let status = reduced([7, 7, 7, 6]);
    let first = Reporter::default().report(&status, &FIRST, 5);
    assert_eq!(progress(&first), [("node-a", 0, 7), ("node-a", 1, 7)]);
    let second = Reporter::default().report(&status, &SECOND, 5);
    assert_eq!(progress(&second), [("node-a", 2, 7), ("node-a", 3, 6)]);
    let ResourcePoints { resource, points } = &second[1];
    assert_eq!(resource.job.as_deref(), Some("train"));
    assert_eq!((resource.world_size, resource.pid), (Some(4), 103));
    assert_eq!(points[0].block.comm, CommId::new(0xabc));
    assert_eq!(points[0].block.source, Source::Ras);
}

#[test]
fn a_rank_that_launched_another_operation_than_its_peers_is_behind() {
    let both = [(Op::AllReduce, 8), (Op::AllGather, 3)];
    let ranks = [0, 1, 2].map(|at| rank(at, &both));
    let other = rank(3, &[(Op::AllReduce, 7), (Op::AllGather, 4)]);
    let status = comm(ranks.into_iter().chain([other]).collect(), &[]);
    let reported = Reporter::default().report(&status, &SECOND, 5);
    assert_eq!(progress(&reported), [("node-a", 2, 11), ("node-a", 3, 10)]);
}

#[test]
fn ranks_that_ran_ahead_by_different_amounts_are_reported_where_they_are() {
    let reported = Reporter::default().report(&reduced([64, 67, 65, 60]), &SECOND, 5);
    assert_eq!(progress(&reported), [("node-a", 2, 65), ("node-a", 3, 60)]);
}

#[test]
fn a_rank_that_launched_another_operation_is_behind_those_that_ran_ahead() {
    let counts = [(8, 3), (12, 5), (9, 3), (7, 4)];
    let ranks = (0..).zip(counts).map(|(at, (reduced, gathered))| {
        rank(at, &[(Op::AllReduce, reduced), (Op::AllGather, gathered)])
    });
    let status = comm(ranks.collect(), &[]);
    let launched = &crate::ras::progress(&status)[0].launched;
    assert_eq!(
        launched.values().copied().collect::<Vec<_>>(),
        [11, 17, 12, 10]
    );
}

#[test]
fn of_two_ranks_that_launched_different_operations_neither_is_behind() {
    let one = rank(0, &[(Op::AllReduce, 8), (Op::AllGather, 3)]);
    let other = rank(1, &[(Op::AllReduce, 7), (Op::AllGather, 5)]);
    let status = comm(vec![one, other], &[]);
    let launched = &crate::ras::progress(&status)[0].launched;
    assert_eq!(launched.values().copied().collect::<Vec<_>>(), [10, 10]);
}

#[test]
fn a_dead_rank_stays_where_it_was_when_its_own_host_saw_it_last() {
    let mut reporter = Reporter::default();
    reporter.report(&reduced([7, 7, 7, 6]), &SECOND, 5);
    let ranks = (0..3).map(|at| rank(at, &[(Op::AllReduce, 9)])).collect();
    let reported = reporter.report(&comm(ranks, &[3]), &SECOND, 10);
    assert_eq!(progress(&reported), [("node-a", 2, 9), ("node-a", 3, 6)]);
}

#[test]
fn one_host_reports_a_rank_that_never_answered() {
    let ranks: Vec<_> = (0..3).map(|at| rank(at, &[(Op::AllReduce, 9)])).collect();
    let status = comm(ranks, &[3]);
    let expected = [("node-a", 0, 9), ("node-a", 1, 9), ("10.0.0.2", 3, 0)];
    let first = Reporter::default().report(&status, &FIRST, 5);
    assert_eq!(progress(&first), expected);
}

#[test]
fn another_host_leaves_the_silence_of_a_rank_to_the_agent_that_reported_it() {
    let mut reporter = Reporter::default();
    reporter.report(&reduced([7, 7, 7, 6]), &FIRST, 5);
    let ranks = (0..3).map(|at| rank(at, &[(Op::AllReduce, 9)])).collect();
    let reported = reporter.report(&comm(ranks, &[3]), &FIRST, 10);
    assert_eq!(progress(&reported), [("node-a", 0, 9), ("node-a", 1, 9)]);
}

#[test]
fn a_rank_whose_progress_is_reported_by_probes_is_not_reported_again() {
    let host = Host {
        probed: &[100],
        ..FIRST
    };
    let reported = Reporter::default().report(&reduced([7; 4]), &host, 5);
    assert_eq!(progress(&reported), [("node-a", 1, 7)]);
}

#[test]
fn a_rank_that_leaves_a_communicator_is_not_behind() {
    let mut status = reduced([7, 7, 7, 6]);
    status.comms[0].ranks[3].is_leaving = true;
    let reported = Reporter::default().report(&status, &SECOND, 5);
    assert_eq!(progress(&reported), [("node-a", 2, 7)]);
}

#[test]
fn the_rank_in_the_job_is_that_in_the_largest_communicator() {
    let mut status = reduced([7; 4]);
    let mut pair = CommStatus {
        hash: 0xdef,
        size: 2,
        ranks: vec![
            rank(2, &[(Op::AllGather, 5)]),
            rank(3, &[(Op::AllGather, 4)]),
        ],
        ..CommStatus::default()
    };
    (pair.ranks[0].member.rank, pair.ranks[1].member.rank) = (0, 1);
    status.comms.insert(0, pair);
    let reported = Reporter::default().report(&status, &SECOND, 5);
    let expected = [
        ("node-a", 2, 5),
        ("node-a", 3, 4),
        ("node-a", 2, 7),
        ("node-a", 3, 7),
    ];
    assert_eq!(progress(&reported), expected);
}

#[test]
fn communicators_of_equal_hash_stay_apart() {
    let mut status = reduced([7; 4]);
    let mut twin = status.comms[0].clone();
    (status.comms[0].creator, twin.creator) = (1, 2);
    status.comms.push(twin);
    let reported = Reporter::default().report(&status, &FIRST, 5);
    let comms: BTreeSet<CommId> = reported
        .iter()
        .map(|own| own.points[0].block.comm)
        .collect();
    assert_eq!(comms.len(), 2);
}

#[test]
fn nothing_is_reported_before_the_first_operation() {
    assert_eq!(
        Reporter::default().report(&reduced([0; 4]), &FIRST, 5),
        Vec::new()
    );
}
