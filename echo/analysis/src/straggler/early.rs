//! Reports of a job whose ranks are expected to begin.

use std::collections::BTreeMap;

use echo_core::units::Nanos;

use crate::straggler::block::{BlockSum, ProcessKey};
use crate::straggler::communicator::Place;

/// Largest number of reports that are kept, 150 bytes each.
const MAX_REPORTS: usize = 500_000;

/// Reports with their places and the instants at which they were received. Each agent sends as fast as
/// it can, so they are in no order.
#[derive(Debug, Default)]
pub(super) struct Early(Vec<(BlockSum, Place, Nanos)>);

impl Early {
    /// Returns true if no more are kept.
    pub(super) const fn is_full(&self) -> bool {
        self.0.len() >= MAX_REPORTS
    }

    /// Adds a report.
    pub(super) fn push(&mut self, block: BlockSum, place: Place, received: Nanos) {
        self.0.push((block, place, received));
    }

    /// All reports.
    pub(super) fn iter(&self) -> impl Iterator<Item = &(BlockSum, Place, Nanos)> {
        self.0.iter()
    }

    /// Ranks with their ends of the first operations of each communicator that most of them have
    /// reported, each on its own clock. Not of later ones, of which there are more the later a rank is
    /// received.
    pub(super) fn common_ends(
        &self,
        rank: impl Fn(ProcessKey) -> Option<usize>,
        end: impl Fn(&BlockSum) -> f64,
    ) -> Vec<Vec<(usize, f64)>> {
        let mut ends: BTreeMap<_, Vec<(usize, f64)>> = BTreeMap::new();
        for (block, place, _) in &self.0 {
            if let Some(rank) = rank(block.process) {
                let operations = (place.key, block.seqs.first(), block.seqs.last());
                ends.entry(operations).or_default().push((rank, end(block)));
            }
        }
        let mut first: BTreeMap<_, Vec<(usize, f64)>> = BTreeMap::new();
        for ((comm, ..), ends) in ends {
            let known = first.entry(comm).or_default();
            if ends.len() > known.len() {
                *known = ends;
            }
        }
        first.into_values().filter(|ends| ends.len() > 1).collect()
    }

    /// The reports in the order of their ends.
    pub(super) fn in_order(self, end: impl Fn(&BlockSum) -> f64) -> Vec<(BlockSum, Place)> {
        let ends = self.0.iter().map(|(block, _, _)| end(block));
        let ends: Vec<f64> = ends.collect();
        let mut reports: Vec<_> = ends.into_iter().zip(self.0).collect();
        reports.sort_by(|(a, (_, one, _)), (b, (_, other, _))| {
            let by_place = (one.key, one.slot).cmp(&(other.key, other.slot));
            a.total_cmp(b).then(by_place)
        });
        let reports = reports.into_iter();
        reports
            .map(|(_, (block, place, _))| (block, place))
            .collect()
    }
}
