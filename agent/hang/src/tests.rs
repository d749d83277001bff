use std::collections::BTreeMap;

use super::*;

mod properties;

/// Progress of a rank that has completed an operation, and enqueued more.
fn rank(completed: u64, enqueued: u64) -> Progress {
    let pending = completed + 1..=enqueued;
    Progress {
        enqueued: Some(enqueued),
        completed: Some(completed),
        operations: pending.map(|number| (number, reduce(number))).collect(),
        ..Progress::default()
    }
}

fn reduce(position: u64) -> Operation {
    Operation {
        name: "all_reduce".to_owned(),
        elements: Some(1024),
        position: Some(position),
        ..Operation::default()
    }
}

fn group(name: &str, progress: impl IntoIterator<Item = (u32, Progress)>) -> Group {
    let progress: BTreeMap<u32, Progress> = progress.into_iter().collect();
    Group {
        name: name.to_owned(),
        members: progress.keys().copied().collect(),
        progress,
        ..Group::default()
    }
}

fn job(groups: Vec<Group>) -> Job {
    Job {
        groups,
        ..Job::default()
    }
}

/// Kinds and ranks of the findings.
fn named(job: &Job) -> Vec<(Kind, Vec<u32>)> {
    let findings = analyse(job).findings.into_iter();
    findings.map(|one| (one.kind, one.ranks)).collect()
}

#[test]
fn the_rank_that_misses_the_first_operation_is_named_and_none_that_ran_ahead_less() {
    let ranks = [
        rank(100, 121),
        rank(100, 118),
        rank(100, 100),
        rank(100, 117),
    ];
    let job = job(vec![group("0", (0..).zip(ranks))]);
    assert_eq!(named(&job), [(Kind::DidNotJoin, vec![2])]);
}

#[test]
fn counts_alone_name_the_rank_with_the_fewest_operations() {
    let counted = |enqueued| Progress {
        enqueued: Some(enqueued),
        ..Progress::default()
    };
    let ranks = [64, 65, 66, 67, 66, 65, 64, 60].map(counted);
    let ahead = job(vec![group("0", (0..).zip(ranks))]);
    assert_eq!(named(&ahead), [(Kind::DidNotJoin, vec![7])]);
    assert_eq!(analyse(&ahead).blocked[0].seq, 61);
    let even = job(vec![group("0", (0..).zip([64, 64].map(counted)))]);
    assert_eq!(named(&even), []);
}

#[test]
fn observations_of_different_moments_name_nobody_in_any_group_of_the_job() {
    let moving = group("0", (0..).zip([rank(500, 503), rank(495, 498)]));
    // Rank 1 was observed before it joined the operation.
    let other = group("1", [(1, rank(6, 6)), (2, rank(6, 7))]);
    let unrelated = group("2", [(8, rank(6, 6)), (9, rank(6, 7))]);
    let hang = analyse(&job(vec![moving, other, unrelated]));
    assert_eq!(hang.missing, [8]);
    let proof = "rank 0 has completed operation 500 of communicator 0, rank 1 had enqueued no more than 498";
    assert!(hang.advance.unwrap().starts_with(proof));
}

#[test]
fn the_source_of_a_broadcast_may_complete_it_before_others_join() {
    let mut source = rank(6, 7);
    source.completed = Some(7);
    let sent = Operation {
        name: "broadcast".to_owned(),
        state: State::Completed,
        ..Operation::default()
    };
    let before = Operation {
        state: State::Completed,
        ..reduce(6)
    };
    source.operations = [(6, before), (7, sent)].into();
    let job = job(vec![group(
        "0",
        [(0, source), (1, rank(6, 6)), (2, rank(6, 7))],
    )]);
    assert_eq!(named(&job), [(Kind::DidNotJoin, vec![1])]);
}

#[test]
fn groups_of_one_name_are_told_apart_by_their_ranks() {
    let first = group("1", [(0, rank(49, 50)), (1, rank(49, 50))]);
    let second = group("1", [(2, rank(6, 7)), (3, rank(6, 6))]);
    assert_eq!(
        named(&job(vec![first, second])),
        [(Kind::DidNotJoin, vec![3])]
    );
}

#[test]
fn an_operation_that_all_ranks_joined_names_none() {
    let job = job(vec![group(
        "0",
        (0..).zip([rank(100, 120), rank(100, 117)]),
    )]);
    assert_eq!(named(&job), [(Kind::DoesNotEnd, vec![])]);
}

fn started(mut own: Progress) -> Progress {
    let first = own.completed.map_or(0, |completed| completed + 1);
    own.operations.get_mut(&first).unwrap().state = State::Started;
    own
}

#[test]
fn the_gpu_that_has_not_begun_what_the_others_have_is_named_unless_it_is_in_another_operation() {
    let world = |last| {
        let begun = [started(rank(100, 120)), started(rank(100, 118))];
        group("0", (0..).zip(begun.into_iter().chain([last])))
    };
    let alone = job(vec![world(rank(100, 119))]);
    assert_eq!(named(&alone), [(Kind::NotBegun, vec![2])]);
    let pair = group("1", [(2, started(rank(6, 7))), (3, started(rank(6, 7)))]);
    let busy = job(vec![world(rank(100, 119)), pair]);
    assert!(
        named(&busy).iter().all(|(_, ranks)| ranks.is_empty()),
        "{busy:?}"
    );
}

fn with(change: impl Fn(&mut Operation)) -> Progress {
    let mut own = rank(37, 38);
    own.operations.values_mut().for_each(change);
    own
}

#[test]
fn ranks_that_disagree_with_the_majority_are_named_and_both_of_two() {
    let usual = || rank(37, 38);
    let changes: [fn(&mut Operation); 2] = [
        |own| own.elements = Some(1),
        |own| own.name = "all_gather".to_owned(),
    ];
    for change in changes {
        let three = job(vec![group(
            "0",
            (0..).zip([usual(), with(change), usual()]),
        )]);
        assert_eq!(named(&three), [(Kind::Mismatch, vec![1])]);
        let two = job(vec![group("0", (0..).zip([usual(), with(change)]))]);
        assert_eq!(named(&two), [(Kind::Mismatch, vec![0, 1])]);
    }
}

#[test]
fn types_are_compared_where_they_are_known() {
    let of = |dtype: Option<&str>| with(|own| own.dtype = dtype.map(str::to_owned));
    let ranks = [
        of(Some("Float")),
        of(Some("Float")),
        of(None),
        of(Some("Half")),
    ];
    let job = job(vec![group("0", (0..).zip(ranks))]);
    assert_eq!(named(&job), [(Kind::Mismatch, vec![3])]);
}

fn at(position: u64) -> Progress {
    let mut own = rank(6, 7);
    own.operations.insert(7, reduce(position));
    own
}

#[test]
fn two_communicators_in_different_orders_are_a_deadlock() {
    let first = group("1", [(0, at(1)), (1, at(2))]);
    let second = group("2", [(0, at(2)), (1, at(1))]);
    let both = job(vec![first, second]);
    assert_eq!(named(&both), [(Kind::OtherOrder, vec![0, 1])]);
    let third = group("1", [(0, at(1)), (1, at(2)), (2, at(1))]);
    let fourth = group("2", [(0, at(2)), (1, at(1)), (2, at(2))]);
    assert_eq!(
        named(&job(vec![third, fourth])),
        [(Kind::OtherOrder, vec![1])]
    );
}

#[test]
fn ranks_that_wait_for_each_other_are_a_deadlock() {
    let first = group("1", [(0, rank(6, 7)), (1, rank(6, 6))]);
    let second = group("2", [(0, rank(6, 6)), (1, rank(6, 7))]);
    let hang = analyse(&job(vec![first, second]));
    assert_eq!(hang.findings[0].kind, Kind::OtherOrder);
    assert_eq!(hang.missing, [0, 1]);
}

#[test]
fn a_rank_that_is_behind_because_it_waits_is_a_link() {
    let first = group("1", [(0, rank(6, 7)), (1, rank(6, 6))]);
    let second = group("2", [(1, rank(6, 7)), (2, rank(6, 6))]);
    let hang = analyse(&job(vec![first, second]));
    assert_eq!((hang.missing, hang.links), (vec![2], vec![1]));
    assert_eq!(hang.blocked[0].group, "2");
}

#[test]
fn a_rank_whose_gpu_is_blocked_by_another_group_is_a_link() {
    // 3 waits for 1, whose GPU is behind the operation of group 2 in which 2 waits for 4.
    let first = group("1", [(3, rank(6, 7)), (1, rank(6, 6))]);
    let second = group("2", [(1, at(3)), (2, at(5))]);
    let third = group("3", [(2, at(4)), (4, rank(6, 6))]);
    let hang = analyse(&job(vec![first, second, third]));
    assert_eq!((hang.missing, hang.links), (vec![4], vec![1]));
}

#[test]
fn a_rank_whose_last_operation_has_ended_waits_for_nobody() {
    let first = group("1", [(0, rank(6, 7)), (1, rank(6, 6))]);
    let second = group("2", [(1, rank(6, 7)), (2, rank(6, 6))]);
    let mut job = job(vec![first, second]);
    let ended = LastOperation {
        group: None,
        is_pending: false,
    };
    job.last.insert(1, ended);
    assert_eq!(analyse(&job).missing, [1, 2]);
}

#[test]
fn few_ranks_ahead_of_all_others_are_named_instead_of_these() {
    let ranks = (0..32).map(|at| (at, rank(100, if at == 3 || at == 9 { 101 } else { 100 })));
    let job = job(vec![group("0", ranks)]);
    assert_eq!(named(&job), [(Kind::Ahead, vec![3, 9])]);
    assert_eq!(analyse(&job).missing, [0_u32; 0]);
}

#[test]
fn members_that_were_not_observed_are_named_if_nobody_else_explains_the_wait() {
    let mut alone = group("0", [(0, rank(6, 7)), (1, rank(6, 7))]);
    alone.members.insert(2);
    assert_eq!(
        named(&job(vec![alone.clone()])),
        [(Kind::NotObserved, vec![2])]
    );
    alone.progress.insert(1, rank(6, 6));
    assert_eq!(named(&job(vec![alone])), [(Kind::DidNotJoin, vec![1])]);
}

#[test]
fn processes_that_ended_are_named_first_and_once() {
    let mut job = job(vec![group(
        "0",
        (0..).zip([rank(6, 7), rank(6, 6), rank(6, 6), rank(6, 6)]),
    )]);
    job.groups[0].progress.insert(4, rank(6, 7));
    job.groups[0].progress.insert(5, rank(6, 7));
    job.processes = [
        (1, Process::Stopped),
        (2, Process::Dead),
        (3, Process::Crashed("signal 9".to_owned())),
    ]
    .into();
    let expected = [
        (Kind::Crashed, vec![3]),
        (Kind::ProcessDead, vec![2]),
        (Kind::Stopped, vec![1]),
    ];
    assert_eq!(named(&job), expected);
    assert_eq!(analyse(&job).findings[0].sentence, "rank 3 ended: signal 9");
}

#[test]
fn a_stopped_process_is_named_though_it_joined() {
    let mut job = job(vec![group("0", (0..).zip([rank(6, 7), rank(6, 7)]))]);
    job.processes.insert(1, Process::Stopped);
    assert_eq!(named(&job), [(Kind::Stopped, vec![1])]);
}

#[test]
fn a_rank_that_was_observed_long_before_the_group_advanced_is_unknown() {
    let seen = |enqueued, observed_s: u64| Progress {
        enqueued: Some(enqueued),
        observed_ns: Some(observed_s * 1_000_000_000),
        advanced_ns: Some(observed_s.min(40) * 1_000_000_000),
        ..Progress::default()
    };
    let ranks = [seen(9, 60), seen(9, 60), seen(8, 59), seen(3, 29)];
    let hang = analyse(&job(vec![group("0", (0..).zip(ranks))]));
    assert_eq!(
        (hang.missing, &hang.blocked[0].unknown[..]),
        (vec![2], &[3][..])
    );
}

#[test]
fn the_count_of_a_rank_that_fell_silent_does_not_tell_which_operation_blocks() {
    let seen = |enqueued, observed_s: u64| Progress {
        enqueued: Some(enqueued),
        observed_ns: Some(observed_s * 1_000_000_000),
        advanced_ns: Some(observed_s.min(20) * 1_000_000_000),
        ..Progress::default()
    };
    let silent = seen(50, 19);
    let ranks = [seen(99, 60), seen(99, 60), silent.clone(), seen(98, 60)];
    let hang = analyse(&job(vec![group("0", (0..).zip(ranks))]));
    assert_eq!((hang.missing, hang.blocked[0].seq), (vec![2, 3], 99));
    let ranks = [seen(99, 60), seen(99, 60), silent];
    let hang = analyse(&job(vec![group("0", (0..).zip(ranks))]));
    assert_eq!((hang.missing, hang.blocked[0].seq), (vec![2], 99));
}

#[test]
fn a_transfer_waits_for_its_peer_and_leads_to_the_end_of_the_chain() {
    let recv = |rank, peer| Transfer {
        group: "5".to_owned(),
        purpose: String::new(),
        op: "recv".to_owned(),
        seq: 4,
        rank,
        peer,
        is_peer_observed: true,
        is_last: true,
    };
    let mut job = job(vec![group("0", [(2, rank(6, 7)), (3, rank(6, 6))])]);
    job.transfers = vec![recv(3, 1), recv(1, 0)];
    let hang = analyse(&job);
    assert_eq!((hang.missing, hang.links), (vec![0], vec![1, 3]));
    assert_eq!(
        hang.findings[0].sentence,
        "rank 0 did not join the other half of recv 4 of communicator 5"
    );
}
