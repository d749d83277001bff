//! A job of 10,240 ranks in three communicators each. Run with `/usr/bin/time -v` for its memory.

use echo_analysis::straggler::Detector;
use echo_analysis::straggler::block::{BlockSum, Lead, Membership, NodeKey, Operation, ProcessKey};
use echo_analysis::straggler::rule::Rule;
use echo_core::ids::CommId;
use echo_core::model::event::{SeqRange, Source};

use crate::recording::at;

const RANKS: u32 = 10_240;

/// Sizes of the communicators: tensor, pipeline, data.
const SIZES: [u32; 3] = [8, 16, RANKS];

fn block(rank: u32, size: u32, second: u32) -> BlockSum {
    let late = rank == 17 && second > 60;
    BlockSum {
        process: ProcessKey(u64::from(rank)),
        node: NodeKey(u64::from(rank / 8)),
        member: Membership {
            comm: CommId::new((u64::from(size) << 32) | u64::from(rank / size)),
            size,
            rank: rank % size,
        },
        operation: Operation::Collective,
        source: Source::Device,
        seqs: SeqRange::new(u64::from(second) * 64, u64::from(second) * 64 + 63).unwrap(),
        count: 64,
        sum_ms: if late { 50.0 } else { 500.0 },
        min_ms: 0.5,
        lead: Some(Lead {
            sum_ms: 64.0,
            min_ms: 0.5,
        }),
        end: at(f64::from(second) * if second > 60 { 1.4 } else { 1.0 }),
    }
}

#[test]
#[ignore = "a measurement"]
fn a_job_of_ten_thousand_ranks() {
    let mut detector = Detector::new(Rule::default());
    let mut blocks = 0_u64;
    for second in 0..120 {
        for rank in 0..RANKS {
            for size in SIZES {
                let block = block(rank, size, second);
                detector.observe(&block, block.end);
                blocks += 1;
            }
        }
        let reports = detector.advance(at(f64::from(second)));
        let incidents: usize = reports.iter().map(|report| report.incidents.len()).sum();
        if second % 20 == 19 {
            println!(
                "{second} s, {blocks} blocks, {} jobs, {incidents} incidents",
                reports.len()
            );
        }
    }
}
