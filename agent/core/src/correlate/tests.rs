use super::*;
use crate::discover::CommTable;
use crate::event::CommInit;

const MS: u64 = 1_000_000;

fn comms() -> (CommIndex, CommIndex) {
    let mut table = CommTable::default();
    for unique_id in [1, 2] {
        table.record_init(
            1,
            CommInit {
                nranks: 4,
                rank: 0,
                unique_id,
                comm: None,
            },
        );
    }
    (table.find(1, 1).unwrap(), table.find(1, 2).unwrap())
}

fn all_reduce() -> Operation {
    Operation {
        op: Op::AllReduce,
        count: 8,
        datatype: 7,
        comm: 0,
        seq: None,
        peer: None,
    }
}

fn issue(correlator: &mut Correlator, comm: CommIndex, at_ms: u64) -> Issued {
    match correlator.issue(comm, 4, all_reduce(), at_ms * MS) {
        Observation::Issued(issued) => issued,
        other => panic!("{other:?}"),
    }
}

fn wait(correlator: &mut Correlator, tid: u32, from_ms: u64, to_ms: u64) -> Waited {
    correlator.begin_wait(tid);
    end(correlator, tid, from_ms, to_ms)
}

fn end(correlator: &mut Correlator, tid: u32, from_ms: u64, to_ms: u64) -> Waited {
    match correlator.end_wait(tid, from_ms * MS, to_ms * MS) {
        Observation::Waited(waited) => waited,
        other => panic!("{other:?}"),
    }
}

#[test]
fn sequence_numbers_count_from_zero_per_communicator() {
    let (a, b) = comms();
    let mut correlator = Correlator::default();
    let seqs = [a, a, b, a].map(|comm| issue(&mut correlator, comm, 1).at.seq);
    assert_eq!(seqs, [0, 1, 0, 2]);
}

#[test]
fn a_wait_covers_the_last_collective_issued_before_it() {
    let (a, b) = comms();
    let mut correlator = Correlator::default();
    issue(&mut correlator, a, 1);
    issue(&mut correlator, b, 2);
    let covers = wait(&mut correlator, 1, 3, 9).covers.unwrap();
    assert_eq!((covers.comm, covers.seq), (b, 0));
}

#[test]
fn a_collective_issued_during_a_wait_is_not_covered_by_it() {
    let (a, _) = comms();
    let mut correlator = Correlator::default();
    issue(&mut correlator, a, 1);
    correlator.begin_wait(1);
    issue(&mut correlator, a, 5);
    assert_eq!(end(&mut correlator, 1, 2, 9).covers.unwrap().seq, 0);
    assert_eq!(wait(&mut correlator, 1, 10, 12).covers.unwrap().seq, 1);
}

#[test]
fn a_second_wait_without_a_collective_between_covers_nothing() {
    let (a, _) = comms();
    let mut correlator = Correlator::default();
    issue(&mut correlator, a, 1);
    assert!(wait(&mut correlator, 1, 2, 9).covers.is_some());
    assert_eq!(wait(&mut correlator, 1, 10, 12).covers, None);
}

#[test]
fn the_host_gap_runs_from_the_last_wait_to_the_next_collective_only() {
    let (a, b) = comms();
    let mut correlator = Correlator::default();
    assert_eq!(issue(&mut correlator, a, 1).host_gap_ns, None);
    wait(&mut correlator, 1, 2, 9);
    wait(&mut correlator, 1, 10, 12);
    assert_eq!(issue(&mut correlator, b, 15).host_gap_ns, Some(3 * MS));
    assert_eq!(issue(&mut correlator, a, 16).host_gap_ns, None);
}

#[test]
fn waits_before_the_first_collective_open_no_host_gap() {
    let (a, _) = comms();
    let mut correlator = Correlator::default();
    assert_eq!(wait(&mut correlator, 1, 2, 9).covers, None);
    assert_eq!(issue(&mut correlator, a, 1000).host_gap_ns, None);
}

#[test]
fn overlapping_waits_of_two_threads_count_once() {
    let mut correlator = Correlator::default();
    correlator.begin_wait(1);
    correlator.begin_wait(2);
    assert_eq!(end(&mut correlator, 1, 0, 10).blocked_ns, 10 * MS);
    assert_eq!(end(&mut correlator, 2, 4, 14).blocked_ns, 4 * MS);
}

#[test]
fn a_completion_refers_to_the_last_operation_issued_before_the_wait_began() {
    let (a, b) = comms();
    let (mut correlator, mut completions) = (Correlator::default(), Completions::new(a));
    let observations = [
        correlator.issue(a, 4, all_reduce(), 1),
        correlator.issue(b, 4, all_reduce(), 2),
        correlator.begin_wait(1),
        correlator.issue(a, 4, all_reduce(), 3),
        correlator.end_wait(1, 2, 9),
    ];
    let seen: Vec<_> = observations
        .iter()
        .filter_map(|o| completions.observe(o))
        .collect();
    assert_eq!(
        seen,
        [Completion {
            seq: 0,
            return_ns: 9
        }]
    );
}

#[test]
fn the_signature_is_independent_of_the_communicator() {
    let (a, b) = comms();
    let mut correlator = Correlator::default();
    let first = issue(&mut correlator, a, 1).signature;
    assert_eq!(first, issue(&mut correlator, b, 1).signature);
    let Observation::Issued(other) = correlator.issue(a, 2, all_reduce(), 1) else {
        panic!()
    };
    assert_ne!(first, other.signature);
}

#[test]
fn an_operation_enqueued_before_a_synchronization_leaves_its_gap_to_the_next_one() {
    let mut correlator = Correlator::default();
    let (comm, _) = comms();
    issue(&mut correlator, comm, 0);
    wait(&mut correlator, 1, 2, 10);
    // Its row arrived after the return of the synchronization.
    assert_eq!(issue(&mut correlator, comm, 1).host_gap_ns, None);
    assert_eq!(issue(&mut correlator, comm, 13).host_gap_ns, Some(3 * MS));
}
