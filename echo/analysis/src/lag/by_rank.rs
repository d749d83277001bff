//! Values by rank, collected block by block.

use echo_core::ids::Rank;

/// One value per rank, in the order of the ranks.
///
/// Blocks list their ranks in this order, so that a block is added in one pass; a tree would search
/// for each rank of each block.
#[derive(Debug)]
pub(super) struct ByRank<V>(Vec<(Rank, V)>);

impl<V> Default for ByRank<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<V> ByRank<V> {
    /// Begins a pass over the ranks of a block.
    pub(super) const fn pass(&mut self) -> Pass<'_, V> {
        Pass {
            values: &mut self.0,
            next: 0,
        }
    }

    /// Returns the value of a rank.
    pub(super) fn get(&self, rank: Rank) -> Option<&V> {
        let found = self.0.binary_search_by_key(&rank, |(rank, _)| *rank);
        self.0.get(found.ok()?).map(|(_, value)| value)
    }

    /// Returns the ranks and their values, in the order of the ranks.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Rank, &V)> {
        self.0.iter().map(|(rank, value)| (*rank, value))
    }

    /// Returns the values, in the order of their ranks.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }
}

impl<V> IntoIterator for ByRank<V> {
    type Item = (Rank, V);
    type IntoIter = std::vec::IntoIter<(Rank, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Collects values whose ranks are already in order.
impl<V> FromIterator<(Rank, V)> for ByRank<V> {
    fn from_iter<I: IntoIterator<Item = (Rank, V)>>(iter: I) -> Self {
        let values: Vec<(Rank, V)> = iter.into_iter().collect();
        debug_assert!(values.is_sorted_by(|a, b| a.0 < b.0), "ranks in order");
        Self(values)
    }
}

/// Position within the ranks.
#[derive(Debug)]
pub(super) struct Pass<'v, V> {
    values: &'v mut Vec<(Rank, V)>,
    next: usize,
}

impl<V> Pass<'_, V> {
    /// Returns the value of a rank, which is `first` if the rank is new. Ranks may come in any
    /// order; in ascending order they are found without a search.
    #[expect(
        clippy::indexing_slicing,
        reason = "a value was found at the index, or has been inserted there"
    )]
    pub(super) fn entry(&mut self, rank: Rank, first: impl FnOnce() -> V) -> &mut V {
        let is_next = self
            .values
            .get(self.next)
            .is_some_and(|(at, _)| *at == rank);
        let index = if is_next {
            self.next
        } else {
            let search = self.values.binary_search_by_key(&rank, |(rank, _)| *rank);
            search.unwrap_or_else(|index| {
                self.values.insert(index, (rank, first()));
                index
            })
        };
        self.next = index + 1;
        &mut self.values[index].1
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn values_are_those_of_a_map_whatever_the_order_of_the_ranks(
            blocks in proptest::collection::vec(proptest::collection::vec((0_u32..40, 1_u64..100), 0..40), 0..8)
        ) {
            let mut sums = ByRank::default();
            let mut expected: BTreeMap<Rank, u64> = BTreeMap::new();
            for block in &blocks {
                let mut pass = sums.pass();
                for (rank, number) in block {
                    *pass.entry(Rank::new(*rank), || 0) += number;
                    *expected.entry(Rank::new(*rank)).or_default() += number;
                }
            }
            for (rank, sum) in &expected {
                prop_assert_eq!(sums.get(*rank), Some(sum));
            }
            prop_assert!(sums.values().eq(expected.values()));
            prop_assert!(sums.into_iter().eq(expected));
        }
    }
}
