//! Stages of a pipeline that are late together: their data-parallel peers wait for each of them alike,
//! and the transfers between the stages tell where it comes from.

use crate::straggler::culprits::Rise;
use crate::straggler::rule::Rule;
use crate::straggler::usual::UsualFlow;

/// Least growth of the transfers of the other stages, as a multiple of the source's.
const LONGER: f64 = 1.3;

/// The same below which nothing tells the stages apart.
const APART: f64 = 1.1;

/// Least waiting that each stage causes, as a share of what the stage with most of it causes.
const LATE: f64 = 0.5;

/// Largest growth of the source's transfers.
const MOST_OWN: f64 = 1.15;

/// Which of the ranks that are late together is late by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// No ranks are late together, or their transfers do not tell them apart.
    Unknown,
    /// The transfers of this rank grew least, and those of the others not much more.
    Likely(usize),
    /// The transfers of this rank did not grow, and those of all others did.
    Certain(usize),
}

impl Source {
    /// Returns false if another rank than this one is late by itself.
    pub(super) const fn allows(self, rank: usize) -> bool {
        match self {
            Self::Unknown => true,
            Self::Likely(source) | Self::Certain(source) => source == rank,
        }
    }
}

/// Finds the ranks that are late together, for some of which their peers wait for most of a loss of `loss_s`,
/// and the one of them whose transfers wait no longer than usual. `transfers` are mean durations by rank,
/// seconds; NaN if unknown.
pub(super) fn source(
    loss_s: f64,
    ranks: &[Rise],
    (transfers, usual): (&[f64], &[UsualFlow]),
    rule: &Rule,
) -> Source {
    let largest = ranks.iter().map(|rise| rise.peer).fold(0.0, f64::max);
    let is_late = |rise: &Rise| rise.peer >= LATE * largest;
    let is_apart = |rise: &Rise| is_late(rise) || rule.root * rise.peer <= LATE * largest;
    let late = ranks.iter().zip(transfers).zip(usual).enumerate();
    let late = late.filter(|(_, ((rise, _), _))| is_late(rise));
    let mut growth: Vec<(usize, f64)> = late
        .map(|(rank, ((_, now), usual))| (rank, now / usual.transfer))
        .collect();
    growth.sort_by(|a, b| a.1.total_cmp(&b.1));
    let are_known = growth.iter().all(|(_, growth)| growth.is_finite());
    let is_apart = ranks.iter().all(is_apart) && largest >= rule.explain * loss_s;
    match growth[..] {
        [(rank, own), (_, next), ..] if are_known && is_apart => {
            if own <= MOST_OWN && next >= LONGER * own {
                Source::Certain(rank)
            } else if next >= APART * own {
                Source::Likely(rank)
            } else {
                Source::Unknown
            }
        }
        _ => Source::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::{Source, source};
    use crate::straggler::culprits::Rise;
    use crate::straggler::rule::Rule;
    use crate::straggler::usual::UsualFlow;

    /// Of four ranks, by what their peers wait and how much longer their transfers last; one second is
    /// lost.
    fn of(peers: [f64; 4], growth: [f64; 4]) -> Source {
        let rise = |peer: f64| Rise {
            peer,
            ..Rise::default()
        };
        let usual = [UsualFlow {
            transfer: 0.002,
            ..UsualFlow::default()
        }; 4];
        let transfers = growth.map(|growth| 0.002 * growth);
        source(
            1.0,
            &peers.map(rise),
            (&transfers, &usual),
            &Rule::default(),
        )
    }

    #[test]
    fn of_the_stages_that_are_late_together_the_one_whose_transfers_did_not_grow_is_the_source() {
        let late = [0.1, 0.9, 0.0, 0.95];
        assert_eq!(of(late, [1.0, 3.0, 1.0, 0.9]), Source::Certain(3));
        assert_eq!(of(late, [1.0, 1.1, 1.0, 0.95]), Source::Likely(3));
        assert_eq!(of(late, [1.0, 1.001, 1.0, 1.0]), Source::Unknown);
        // The transfers of rank 3 grew as well, so it may wait for another rank.
        assert_eq!(of(late, [1.0, 3.0, 1.0, 1.6]), Source::Likely(3));
    }

    #[test]
    fn nothing_is_known_of_one_late_rank_of_those_without_transfers_and_where_all_are_somewhat_late()
     {
        assert_eq!(
            of([0.1, 0.9, 0.0, 0.2], [1.0, 3.0, 1.0, 0.9]),
            Source::Unknown
        );
        let late = [0.1, 0.9, 0.0, 0.95];
        assert_eq!(of(late, [1.0, 3.0, 1.0, f64::NAN]), Source::Unknown);
        assert_eq!(
            of([0.4, 0.9, 0.0, 0.95], [1.0, 3.0, 1.0, 0.9]),
            Source::Unknown
        );
    }
}
