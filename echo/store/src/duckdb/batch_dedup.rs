//! Keys of recently stored batches, to recognize batches that are sent again.
//!
//! The batch numbers of an agent arrive almost in order, so they are kept as ranges: one per agent
//! unless some are missing.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use echo_core::ids::AgentInstance;
use echo_core::model::event::BatchKey;
use echo_core::units::Nanos;

/// Maximum number of content hashes; the oldest is evicted first. About 50 MB.
const MAX_CONTENTS: usize = 1_000_000;

/// Maximum number of agent processes; the longest idle are evicted first. About 50 MB, enough for
/// twenty restarts of each of ten thousand agents within a day.
const MAX_AGENTS: usize = 200_000;

/// Maximum number of ranges per agent; the lowest is evicted first. Only an agent that leaves gaps
/// has more than one.
const MAX_RANGES: usize = 1_000;

/// Longest idle period that counts towards expiry, nanoseconds.
const SILENCE: i64 = 3_600 * 1_000_000_000;

/// Recently stored batches.
#[derive(Debug, Default)]
pub(super) struct BatchDedup {
    agents: HashMap<AgentInstance, Numbers>,
    contents: HashSet<u128>,
    oldest_first: VecDeque<(Nanos, u128)>,
}

/// Record of the deduplication table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    /// Batches of one agent process.
    Numbers {
        /// Agent process.
        agent: AgentInstance,
        /// First number.
        first: u64,
        /// Last number, inclusive.
        last: u64,
    },
    /// Content hash of one batch without a number.
    Content(u128),
}

#[derive(Debug)]
struct Numbers {
    /// Last number by first number, inclusive; ranges neither overlap nor touch.
    ranges: BTreeMap<u64, u64>,
    received: Nanos,
}

impl Entry {
    /// Entry of one batch.
    pub(super) fn from_key(key: &BatchKey) -> Self {
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

impl BatchDedup {
    /// Returns true if a batch with this key was stored.
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

    /// Adds stored batches.
    pub(super) fn insert(&mut self, entry: Entry, received: Nanos) {
        match entry {
            Entry::Numbers { agent, first, last } => {
                if self.agents.len() >= MAX_AGENTS && !self.agents.contains_key(&agent) {
                    self.evict_idle_agents();
                }
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
                    self.evict_oldest_content();
                }
            }
        }
    }

    /// Removes agents that sent nothing since `cutoff`, and contents received before it.
    pub(super) fn forget_before(&mut self, cutoff: Nanos) {
        self.agents.retain(|_, numbers| numbers.received >= cutoff);
        let contents = &mut self.contents;
        self.oldest_first.retain(|(received, hash)| {
            let is_kept = *received >= cutoff;
            if !is_kept {
                contents.remove(hash);
            }
            is_kept
        });
    }

    /// Time at which the oldest remembered content was received. If the clock goes back, this may
    /// be a later one.
    pub(super) fn oldest(&self) -> Option<Nanos> {
        self.oldest_first
            .iter()
            .map(|(received, _)| *received)
            .min()
    }

    /// Time at which the last remembered batch was received.
    pub(super) fn newest(&self) -> Option<Nanos> {
        let numbered = self.agents.values().map(|numbers| numbers.received);
        let contents = self.oldest_first.iter().map(|(received, _)| *received);
        numbered.chain(contents).max()
    }

    /// Time before which entries expire when the clock shows `now`: `remembered` nanoseconds before
    /// the last batch received before `now`. Idle time counts for at most an hour, so that a clock
    /// that jumps ahead, by however much, does not expire recent batches.
    pub(super) fn cutoff(&self, now: Nanos, remembered: i64) -> Nanos {
        let numbered = self.agents.values().map(|numbers| numbers.received);
        let contents = self.oldest_first.iter().map(|(received, _)| *received);
        let mut times: Vec<_> = numbered
            .chain(contents)
            .filter(|time| *time <= now)
            .collect();
        times.sort_unstable();
        let (mut reached, mut left) = (times.last().copied().unwrap_or(now), remembered);
        for time in times.into_iter().rev() {
            let passed = reached.value().saturating_sub(time.value()).min(SILENCE);
            if passed >= left {
                break;
            }
            left -= passed;
            reached = time;
        }
        reached.offset(-left)
    }

    /// All number ranges, each with the time at which its agent last sent a batch.
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

    /// Removes a tenth of the agents, to amortize the search.
    fn evict_idle_agents(&mut self) {
        let mut times: Vec<_> = self.agents.values().map(|agent| agent.received).collect();
        let mut surplus = times.len() / 10 + 1;
        let (_, last, _) = times.select_nth_unstable(surplus - 1);
        self.agents.retain(|_, numbers| {
            let is_evicted = surplus > 0 && numbers.received <= *last;
            surplus -= usize::from(is_evicted);
            !is_evicted
        });
    }

    fn evict_oldest_content(&mut self) {
        if let Some((_, hash)) = self.oldest_first.pop_front() {
            self.contents.remove(&hash);
        }
    }
}

impl Numbers {
    /// Adds `first..=last` and merges it with ranges that it overlaps or touches.
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

    use echo_core::model::event::BatchKey;
    use echo_core::units::Nanos;
    use proptest::prelude::{Strategy, proptest};
    use proptest::{collection, prop_assert_eq};

    use super::{BatchDedup, Entry, MAX_AGENTS};

    fn numbered(number: u64) -> BatchKey {
        BatchKey::Numbered {
            agent: "agent-1".parse().unwrap(),
            number,
        }
    }

    fn ranges(ledger: &BatchDedup) -> Vec<(u64, u64)> {
        let ends = ledger.numbers().map(|(entry, _)| match entry {
            Entry::Numbers { first, last, .. } => (first, last),
            Entry::Content(_) => panic!("a content among the numbers"),
        });
        ends.collect()
    }

    fn near_the_bounds() -> impl Strategy<Value = u64> {
        (0..40_u64, proptest::bool::ANY)
            .prop_map(|(number, high)| if high { u64::MAX - number } else { number })
    }

    #[test]
    fn numbers_in_order_are_one_range() {
        let mut ledger = BatchDedup::default();
        for number in [1, 2, 4, 3, 5] {
            ledger.insert(Entry::from_key(&numbered(number)), Nanos::new(0));
        }
        assert_eq!(ranges(&ledger), [(1, 5)]);
    }

    #[test]
    fn the_longest_idle_agents_are_evicted_first() {
        let mut ledger = BatchDedup::default();
        let key = |n: usize| BatchKey::Numbered {
            agent: format!("agent-{n}").parse().unwrap(),
            number: 1,
        };
        for n in 0..=MAX_AGENTS {
            let received = Nanos::new(i64::try_from(n).unwrap());
            ledger.insert(Entry::from_key(&key(n)), received);
        }
        assert!(ledger.agents.len() <= MAX_AGENTS);
        assert!(!ledger.contains(&key(0)));
        assert!(ledger.contains(&key(MAX_AGENTS / 5)));
        assert!(ledger.contains(&key(MAX_AGENTS)));
    }

    #[test]
    fn old_entries_expire() {
        let mut ledger = BatchDedup::default();
        ledger.insert(Entry::from_key(&numbered(1)), Nanos::new(10));
        ledger.insert(Entry::Content(7), Nanos::new(10));
        ledger.insert(Entry::Content(8), Nanos::new(20));
        ledger.forget_before(Nanos::new(20));
        assert!(!ledger.contains(&numbered(1)));
        assert!(!ledger.contains(&BatchKey::Content(7)));
        assert!(ledger.contains(&BatchKey::Content(8)));
        assert_eq!(ledger.oldest(), Some(Nanos::new(20)));
    }

    #[test]
    fn a_clock_jump_does_not_expire_recent_batches() {
        const HOUR: i64 = 3_600 * 1_000_000_000;
        let cutoff = |hours: &[i64], now: i64| {
            let mut ledger = BatchDedup::default();
            for hour in hours {
                let content = Entry::Content(u128::from(hour.unsigned_abs()));
                ledger.insert(content, Nanos::new(hour * HOUR));
            }
            ledger.cutoff(Nanos::new(now * HOUR), 3 * HOUR).value() / HOUR
        };
        assert_eq!(cutoff(&[], 10), 7);
        assert_eq!(cutoff(&[1, 2, 3, 4, 5, 6], 6), 3);
        assert_eq!(cutoff(&[1, 2, 3, 4, 5, 6], 9_000), 3, "nothing came since");
        assert_eq!(cutoff(&[1, 2, 3, 4, 5, 6, 9_000], 9_000), 4);
        assert_eq!(
            cutoff(&[1, 2, 3, 9_000, 9_001], 5),
            0,
            "the clock is right again"
        );
    }

    #[test]
    fn the_oldest_content_is_found_despite_one_dated_by_a_wrong_clock() {
        let mut ledger = BatchDedup::default();
        ledger.insert(Entry::Content(7), Nanos::new(9_000));
        ledger.insert(Entry::Content(8), Nanos::new(20));
        assert_eq!(ledger.oldest(), Some(Nanos::new(20)));
        ledger.forget_before(Nanos::new(30));
        assert!(!ledger.contains(&BatchKey::Content(8)));
        assert!(ledger.contains(&BatchKey::Content(7)));
    }

    proptest! {
        #[test]
        fn ranges_remember_exactly_what_was_inserted(
            numbers in collection::vec(near_the_bounds(), 0..60)
        ) {
            let mut ledger = BatchDedup::default();
            let mut expected = BTreeSet::new();
            for number in numbers {
                prop_assert_eq!(ledger.contains(&numbered(number)), !expected.insert(number));
                ledger.insert(Entry::from_key(&numbered(number)), Nanos::new(0));
            }
            let found: BTreeSet<u64> = ranges(&ledger)
                .into_iter()
                .flat_map(|(first, last)| first..=last)
                .collect();
            prop_assert_eq!(found, expected);
        }
    }
}
