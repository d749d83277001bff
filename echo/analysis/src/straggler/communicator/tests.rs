use super::*;
use crate::straggler::matched_block::length;

fn comm() -> Communicator {
    let member = Membership {
        comm: CommId::new(7),
        size: 2,
        rank: 0,
    };
    let place = Place::from_member(member, Source::Device).expect("a place");
    Communicator::new(place, Nanos::EARLIEST)
}

/// Adds operations `first` to `last` of 1 ms each, and returns what it closes: first and last
/// operation, and the sums of the ranks in milliseconds.
fn add(comm: &mut Communicator, slot: usize, first: u64, last: u64) -> Vec<(u64, u64, Vec<f32>)> {
    let seqs = SeqRange::new(first, last).expect("operations");
    let count = u32::try_from(length(seqs)).expect("few");
    let row = Row {
        covered: length(seqs),
        count,
        sum: 1e-3 * count as f32,
        least: 1e-3,
        lead: 0.0,
        least_lead: 0.0,
        end: last as f64,
    };
    let closed = comm.add(slot, seqs, (&row, row.end));
    let of_block = |block: &MatchedBlock| {
        let sums = block.rows().map(|(_, row)| (1e3 * row.sum).round());
        (block.seqs.first(), block.seqs.last(), sums.collect())
    };
    closed.iter().map(of_block).collect()
}

#[test]
fn blocks_that_two_ranks_cut_differently_are_compared_as_one() {
    let mut comm = comm();
    assert_eq!(add(&mut comm, 0, 0, 7), []);
    assert_eq!(add(&mut comm, 1, 0, 3), []);
    assert_eq!(add(&mut comm, 1, 4, 7), [(0, 7, vec![8.0, 8.0])]);
    for (slot, first, last) in [(0, 8, 9), (0, 10, 11), (1, 8, 8)] {
        assert_eq!(add(&mut comm, slot, first, last), []);
    }
    assert_eq!(add(&mut comm, 1, 9, 11), [(8, 11, vec![4.0, 4.0])]);
}

#[test]
fn a_report_that_comes_twice_counts_once() {
    let mut comm = comm();
    assert_eq!(add(&mut comm, 0, 0, 7), []);
    assert_eq!(add(&mut comm, 0, 0, 7), []);
    assert_eq!(add(&mut comm, 1, 0, 7), [(0, 7, vec![8.0, 8.0])]);
}

#[test]
fn a_block_that_no_peer_ever_completes_makes_room_for_later_ones() {
    let mut comm = comm();
    let blocks = 0..=comm.max_open() as u64;
    let closed: Vec<_> = blocks
        .flat_map(|at| add(&mut comm, 0, 8 * at, 8 * at + 7))
        .collect();
    assert_eq!(closed, [(0, 7, vec![8.0])]);
}
