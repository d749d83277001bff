use echo_core::ids::CommId;
use echo_core::model::event::{SeqRange, Source};
use echo_core::units::Nanos;
use proptest::prelude::{prop_assert_eq, proptest};
use proptest::test_runner::Config;

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

/// Reports of rank `rank` of a mesh of 2 x 2 about second `second`: in its row and in its column,
/// 20 operations each. From second 40 on rank 3 is late, and the job takes 1.5 times as long.
fn mesh(rank: u32, second: u64) -> [BlockSum; 2] {
    let is_slow = second >= 40;
    let end = 1_000_000_000 * second + 500_000_000 * second.saturating_sub(40);
    let (row, column) = (rank / 2, rank % 2);
    [(row, column), (2 + column, row)].map(|(comm, slot)| BlockSum {
        operation: Operation::Collective,
        member: Membership {
            comm: CommId::new(u64::from(comm)),
            size: 2,
            rank: slot,
        },
        seqs: SeqRange::new(20 * second, 20 * second + 19).expect("operations"),
        count: 20,
        // Rank 3 is in row 1 and column 1.
        sum_ms: if is_slow && rank != 3 && [1, 3].contains(&comm) {
            450.0
        } else {
            20.0
        },
        end: Nanos::new(i64::try_from(end).expect("small")),
        ..transfers(rank, 0)
    })
}

#[test]
fn the_order_in_which_the_ranks_of_a_mesh_are_received_changes_nothing() {
    let all = (0..90).flat_map(|second| (0..4).flat_map(move |rank| mesh(rank, second)));
    let incidents = |blocks: &[BlockSum]| {
        let mut detector = Detector::default();
        let received = Nanos::new(200_000_000_000);
        for block in blocks {
            detector.observe(block, received);
        }
        let reports = detector.advance(received);
        let [report] = reports.as_slice() else {
            panic!("{reports:?}");
        };
        assert_eq!(report.ranks, 4);
        report.incidents.clone()
    };
    let by_time: Vec<BlockSum> = all.collect();
    let found = incidents(&by_time);
    let [incident] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert!(
        matches!(&incident.finding, super::incident::Finding::Rank(rank) if rank.process == ProcessKey(3)),
        "{incident:?}"
    );
    // Ranks 0 and 3 have no communicator in common.
    let mut by_rank = by_time;
    by_rank.sort_by_key(|block| {
        [0, 3, 1, 2]
            .map(ProcessKey)
            .iter()
            .position(|key| *key == block.process)
    });
    assert_eq!(incidents(&by_rank), found);
}

/// Incidents of a job of four ranks, from the length of each second's work and how long each rank waits in it,
/// milliseconds.
fn incidents(
    seconds: u64,
    work: impl Fn(u64) -> (i64, [f64; 4]),
) -> Vec<super::incident::Incident> {
    let mut detector = Detector::default();
    let mut found = std::collections::BTreeMap::new();
    let mut end_ms = 0;
    for second in 0..seconds {
        let (length_ms, waits) = work(second);
        end_ms += length_ms;
        let end = Nanos::new(1_000_000 * end_ms);
        for (rank, wait_ms) in (0..4).zip(waits) {
            let block = BlockSum {
                operation: Operation::Collective,
                seqs: SeqRange::new(20 * second, 20 * second + 19).expect("operations"),
                count: 20,
                sum_ms: 20.0 + wait_ms,
                end,
                ..transfers(rank, 0)
            };
            detector.observe(&block, end);
        }
        for report in detector.advance(end) {
            let incidents = report.incidents.into_iter();
            found.extend(incidents.map(|incident| (incident.number, incident)));
        }
    }
    found.into_values().collect()
}

/// Waits for one rank.
fn waits_for(rank: usize, wait_ms: f64) -> [f64; 4] {
    std::array::from_fn(|own| if own == rank { 0.0 } else { wait_ms })
}

/// The one incident, which names rank 2.
fn of_rank_2(found: &[super::incident::Incident]) -> &super::incident::Incident {
    let [incident] = found else {
        panic!("{found:?}");
    };
    assert!(
        matches!(&incident.finding, super::incident::Finding::Rank(rank) if rank.process == ProcessKey(2)),
        "{incident:?}"
    );
    incident
}

#[test]
fn a_rank_that_was_late_from_the_first_step_on_is_named_once_the_job_is_faster_without_it() {
    let found = incidents(60, |second| match second {
        0..40 => (1_500, waits_for(2, 500.0)),
        _ => (1_000, [0.0; 4]),
    });
    let incident = of_rank_2(&found);
    assert!(incident.is_closed && incident.until < incident.known);
    // A third of a minute of four GPUs.
    assert!((incident.lost_gpu_s - 80.0).abs() < 6.0, "{incident:?}");
}

/// Three quarters of an hour, of which the past is known for 17 minutes.
#[test]
fn a_rank_that_was_named_without_a_past_is_priced_for_all_of_its_time_once_it_is_late_no_more() {
    let found = incidents(940, |second| match second {
        0..900 => (3_000, waits_for(2, 2_000.0)),
        _ => (1_000, [0.0; 4]),
    });
    let incident = of_rank_2(&found);
    assert!(incident.is_closed, "{incident:?}");
    // Two thirds of 2,700 s of four GPUs.
    let off = incident.lost_gpu_s / 7_200.0 - 1.0;
    assert!(off.abs() < 0.03, "{incident:?}");
}

#[test]
fn a_job_whose_ranks_were_all_slow_at_first_names_none_once_it_is_faster() {
    let found = incidents(60, |second| {
        let latest = (second % 4) as usize;
        let (length_ms, wait_ms) = if second < 40 {
            (1_500, 600.0)
        } else {
            (1_000, 300.0)
        };
        (length_ms, waits_for(latest, wait_ms))
    });
    assert_eq!(found, []);
}

#[test]
fn a_healthy_job_that_is_faster_for_a_while_names_no_rank() {
    // Rank 1 has a little more to do, except for a while.
    let found = incidents(400, |second| match second {
        300..312 => (800, [0.0; 4]),
        _ => (1_000, waits_for(1, 100.0)),
    });
    assert_eq!(found, []);
}

/// Report of rank `rank` of a job of four about the operation that ends in tenth `tenth` of a second.
/// From 40 s on rank 2 is late, and the job takes 1.5 times as long. Ranks see the end up to 16 ms apart.
fn jittering(rank: u32, tenth: u64) -> BlockSum {
    let end = 100_000_000 * tenth + 50_000_000 * tenth.saturating_sub(400);
    let jitter = (tenth * tenth * 7 + tenth * u64::from(rank) * 13) % 17 * 1_000_000;
    let is_late = tenth >= 400 && rank != 2;
    BlockSum {
        operation: Operation::Collective,
        seqs: SeqRange::new(tenth, tenth).expect("operations"),
        count: 1,
        sum_ms: if is_late { 45.0 } else { 2.0 },
        end: Nanos::new(i64::try_from(end + jitter).expect("small")),
        ..transfers(rank, 0)
    }
}

proptest! {
    #![proptest_config(Config::with_cases(16))]

    /// Each agent starts when it can and sends at its own pace, so each rank is received some seconds
    /// behind the others.
    #[test]
    fn how_far_agents_are_behind_each_other_changes_nothing(behind in [0_u64..60, 0..60, 0..60, 0..60]) {
        let losses = |behind: [u64; 4]| {
            let blocks = (0..900).flat_map(|tenth| {
                let ranks = (0..4).zip(behind);
                ranks.map(move |(rank, behind)| (tenth + behind, jittering(rank, tenth)))
            });
            let mut blocks: Vec<(u64, BlockSum)> = blocks.collect();
            blocks.sort_by_key(|(order, _)| *order);
            let mut detector = Detector::default();
            let mut found = Vec::new();
            for (order, block) in blocks {
                let received = Nanos::new(i64::try_from(order).expect("small") * 100_000_000);
                detector.observe(&block, received);
                let reports = detector.advance(received);
                found.extend(reports.into_iter().flat_map(|report| report.incidents));
            }
            let incident = found.pop().expect("rank 2 is late");
            // Sums are rounded by their order.
            let pieces = incident.pieces.iter().map(|piece| format!("{:.9}", piece.lost_gpu_s));
            (incident.finding, pieces.collect::<Vec<String>>())
        };
        prop_assert_eq!(losses(behind), losses([0; 4]));
    }
}
