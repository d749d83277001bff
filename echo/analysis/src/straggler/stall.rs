//! Who is behind when nothing completes any more.

use std::collections::BTreeSet;

use crate::straggler::communicator::Communicator;

/// Ranks of a job that hold up an operation and wait in no other one: they have enqueued fewer
/// operations of a communicator than another rank of it. If each of them waits elsewhere, all of
/// them; none if they are at least half of the `n` ranks, which were then not seen, rather than
/// behind.
pub(super) fn behind(comms: &[Communicator], n: usize) -> Vec<usize> {
    let (mut late, mut waiting) = (BTreeSet::new(), BTreeSet::new());
    for comm in comms {
        let most = comm.enqueued.iter().max().copied().unwrap_or(0);
        if comm.enqueued.iter().all(|own| *own == most) {
            continue;
        }
        for (enqueued, rank) in comm.enqueued.iter().zip(&comm.members) {
            let side = if *enqueued < most {
                &mut late
            } else {
                &mut waiting
            };
            side.extend(rank.map(|rank| rank as usize));
        }
    }
    let roots: Vec<usize> = late.difference(&waiting).copied().collect();
    let behind: Vec<usize> = if roots.is_empty() {
        late.into_iter().collect()
    } else {
        roots
    };
    if 2 * behind.len() < n {
        behind
    } else {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use echo_core::ids::CommId;
    use echo_core::model::event::Source;
    use echo_core::units::Nanos;

    use super::behind;
    use crate::straggler::block::Membership;
    use crate::straggler::communicator::{Communicator, Place};

    fn comm(id: u64, members: &[u32], enqueued: &[u64]) -> Communicator {
        let member = Membership {
            comm: CommId::new(id),
            size: u32::try_from(members.len()).expect("small"),
            rank: 0,
        };
        let place = Place::from_member(member, Source::Device).expect("a place");
        let mut comm = Communicator::new(place, Nanos::EARLIEST);
        comm.members = members.iter().map(|rank| Some(*rank)).collect();
        comm.enqueued = enqueued.to_vec();
        comm
    }

    #[test]
    fn a_rank_that_enqueued_less_is_behind() {
        assert_eq!(behind(&[comm(1, &[0, 1, 2], &[7, 6, 7])], 3), [1]);
        assert!(behind(&[comm(1, &[0, 1, 2], &[7, 7, 7])], 3).is_empty());
    }

    #[test]
    fn a_rank_that_waits_elsewhere_is_not_behind() {
        // Rank 3 holds up rank 2, which therefore is late for rank 0.
        let comms = [
            comm(1, &[2, 3], &[5, 4]),
            comm(2, &[0, 2], &[9, 8]),
            comm(3, &[0, 1], &[3, 3]),
        ];
        assert_eq!(behind(&comms, 4), [3]);
    }

    #[test]
    fn most_ranks_are_not_behind() {
        assert!(behind(&[comm(1, &[0, 1, 2], &[7, 6, 6])], 3).is_empty());
    }
}
