//! Which batches were stored lately, so that one that is sent again is recognised.
//!
//! The numbers of an agent come almost in order, so they are kept as ranges: one per agent when nothing is missing.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use crate::ids::AgentInstance;
use crate::model::event::BatchKey;
use crate::units::Nanos;

/// Hashes kept at most; the oldest goes first. About 50 MB.
const MAX_CONTENTS: usize = 1_000_000;

/// Ranges kept at most of one agent; the lowest goes first. Only an agent that leaves gaps has more than one.
const MAX_RANGES: usize = 1_000;

/// Batches stored lately.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    agents: HashMap<AgentInstance, Numbers>,
    contents: HashSet<u128>,
    oldest_first: VecDeque<(Nanos, u128)>,
}

/// A part of the ledger as it is written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    /// Batches of one agent process.
    Numbers {
        /// The process.
        agent: AgentInstance,
        /// First number.
        first: u64,
        /// Last number, inclusive.
        last: u64,
    },
    /// One batch without number.
    Content(u128),
}

#[derive(Debug)]
struct Numbers {
    /// Last number by first number, inclusive; ranges neither overlap nor touch.
    ranges: BTreeMap<u64, u64>,
    received: Nanos,
}

impl Entry {
    /// The entry of one batch.
    pub(super) fn of(key: &BatchKey) -> Self {
        match key {
            BatchKey::Numbered { agent, number } => Self::Numbers {
                agent: agent.clone(),
                first: *number,
                last: *number,
            },
            BatchKey::Content(hash) => Self::Content(*hash),
        }
    }
}

impl Ledger {
    /// Whether a batch with this key was stored.
    pub(super) fn contains(&self, key: &BatchKey) -> bool {
        match key {
            BatchKey::Numbered { agent, number } => self
                .agents
                .get(agent)
                .and_then(|numbers| numbers.ranges.range(..=number).next_back())
                .is_some_and(|(_, last)| number <= last),
            BatchKey::Content(hash) => self.contents.contains(hash),
        }
    }

    /// Adds what was stored.
    pub(super) fn insert(&mut self, entry: Entry, received: Nanos) {
        match entry {
            Entry::Numbers { agent, first, last } => {
                let numbers = self.agents.entry(agent).or_insert_with(|| Numbers {
                    ranges: BTreeMap::new(),
                    received,
                });
                numbers.insert(first, last);
                numbers.received = numbers.received.max(received);
            }
            Entry::Content(hash) => {
                if self.contents.insert(hash) {
                    self.oldest_first.push_back((received, hash));
                }
                if self.oldest_first.len() > MAX_CONTENTS {
                    self.forget_oldest();
                }
            }
        }
    }

    /// Forgets agents that sent nothing since `cutoff`, and contents received before it.
    pub(super) fn forget_before(&mut self, cutoff: Nanos) {
        self.agents.retain(|_, numbers| numbers.received >= cutoff);
        while self.oldest().is_some_and(|received| received < cutoff) {
            self.forget_oldest();
        }
    }

    /// When the oldest content that is kept was received.
    pub(super) fn oldest(&self) -> Option<Nanos> {
        self.oldest_first.front().map(|(received, _)| *received)
    }

    /// When the last batch that is kept was received.
    pub(super) fn newest(&self) -> Option<Nanos> {
        let numbered = self.agents.values().map(|numbers| numbers.received).max();
        numbered.max(self.oldest_first.back().map(|(received, _)| *received))
    }

    /// All ranges of numbers, each with the time at which its agent was last heard of.
    pub(super) fn numbers(&self) -> impl Iterator<Item = (Entry, Nanos)> {
        self.agents.iter().flat_map(|(agent, numbers)| {
            let ranges = numbers.ranges.iter();
            ranges.map(|(first, last)| {
                let agent = agent.clone();
                let (first, last) = (*first, *last);
                (Entry::Numbers { agent, first, last }, numbers.received)
            })
        })
    }

    fn forget_oldest(&mut self) {
        if let Some((_, hash)) = self.oldest_first.pop_front() {
            self.contents.remove(&hash);
        }
    }
}

impl Numbers {
    /// Adds `first..=last` and joins it with the ranges that it overlaps or touches.
    fn insert(&mut self, mut first: u64, mut last: u64) {
        let reach = last.saturating_add(1);
        while let Some((&lower, &upper)) = self.ranges.range(..=reach).next_back() {
            if upper.saturating_add(1) < first {
                break;
            }
            self.ranges.remove(&lower);
            first = first.min(lower);
            last = last.max(upper);
        }
        self.ranges.insert(first, last);
        if self.ranges.len() > MAX_RANGES {
            self.ranges.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::{Strategy, proptest};
    use proptest::{collection, prop_assert_eq};

    use super::{Entry, Ledger};
    use crate::model::event::BatchKey;
    use crate::units::Nanos;

    fn numbered(number: u64) -> BatchKey {
        BatchKey::Numbered {
            agent: "agent-1".parse().unwrap(),
            number,
        }
    }

    fn ranges(ledger: &Ledger) -> Vec<(u64, u64)> {
        let ends = ledger.numbers().map(|(entry, _)| match entry {
            Entry::Numbers { first, last, .. } => (first, last),
            Entry::Content(_) => panic!("a content among the numbers"),
        });
        ends.collect()
    }

    fn near_the_ends() -> impl Strategy<Value = u64> {
        (0..40_u64, proptest::bool::ANY)
            .prop_map(|(number, high)| if high { u64::MAX - number } else { number })
    }

    #[test]
    fn numbers_in_order_are_one_range() {
        let mut ledger = Ledger::default();
        for number in [1, 2, 4, 3, 5] {
            ledger.insert(Entry::of(&numbered(number)), Nanos::new(0));
        }
        assert_eq!(ranges(&ledger), [(1, 5)]);
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let mut ledger = Ledger::default();
        ledger.insert(Entry::of(&numbered(1)), Nanos::new(10));
        ledger.insert(Entry::Content(7), Nanos::new(10));
        ledger.insert(Entry::Content(8), Nanos::new(20));
        ledger.forget_before(Nanos::new(20));
        assert!(!ledger.contains(&numbered(1)));
        assert!(!ledger.contains(&BatchKey::Content(7)));
        assert!(ledger.contains(&BatchKey::Content(8)));
        assert_eq!(ledger.oldest(), Some(Nanos::new(20)));
    }

    proptest! {
        #[test]
        fn ranges_remember_exactly_what_was_inserted(
            numbers in collection::vec(near_the_ends(), 0..60)
        ) {
            let mut ledger = Ledger::default();
            let mut expected = BTreeSet::new();
            for number in numbers {
                prop_assert_eq!(ledger.contains(&numbered(number)), !expected.insert(number));
                ledger.insert(Entry::of(&numbered(number)), Nanos::new(0));
            }
            let found: BTreeSet<u64> = ranges(&ledger)
                .into_iter()
                .flat_map(|(first, last)| first..=last)
                .collect();
            prop_assert_eq!(found, expected);
        }
    }
}
