use echo_core::ids::CommId;
use echo_core::model::event::{SeqRange, Source};
use echo_core::units::Nanos;

use super::Detector;
use super::block::{BlockSum, Membership, NodeKey, Operation, ProcessKey};

/// Transfers of one rank in second `second`, reported without their other end.
fn transfers(rank: u32, second: u64) -> BlockSum {
    BlockSum {
        process: ProcessKey(u64::from(rank)),
        node: NodeKey(0),
        member: Membership {
            comm: CommId::new(7),
            size: 4,
            rank,
        },
        operation: Operation::Transfer { peer: None },
        source: Source::Device,
        seqs: SeqRange::new(16 * second, 16 * second + 15).expect("operations"),
        count: 16,
        sum_ms: 100.0,
        min_ms: 1.0,
        lead: None,
        end: Nanos::new(1_000_000_000 * (1 + i64::try_from(second).expect("small"))),
    }
}

/// Reports of a pipeline of four ranks that takes twice as long from second `slow_from` on.
fn pipeline(slow_from: u64, until: u64) -> Detector {
    let mut detector = Detector::default();
    let slow = |second: u64| second.saturating_sub(slow_from);
    for second in (0..until).filter(|second| slow(*second) % 2 == 0) {
        for rank in 0..4 {
            let block = transfers(rank, second - slow(second) / 2);
            let end = transfers(rank, second).end;
            detector.observe(&BlockSum { end, ..block }, end);
        }
    }
    detector
}

#[test]
fn ranks_that_only_transfer_in_one_communicator_are_one_job() {
    let mut detector = pipeline(u64::MAX, 30);
    let reports = detector.advance(Nanos::new(31_000_000_000));
    let sizes: Vec<usize> = reports.iter().map(|report| report.ranks).collect();
    assert_eq!(sizes, [4]);
}

#[test]
fn transfers_reported_without_their_other_end_give_the_pace_and_name_no_rank() {
    let mut detector = pipeline(40, 70);
    let reports = detector.advance(Nanos::new(71_000_000_000));
    let found: Vec<_> = reports
        .iter()
        .flat_map(|report| &report.incidents)
        .collect();
    let [incident] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(incident.finding, super::incident::Finding::UniformSlowdown);
    assert!((incident.loss - 0.5).abs() < 0.05, "{incident:?}");
}
