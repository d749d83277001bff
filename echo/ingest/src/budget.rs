//! Memory that requests may take up between their first byte and their acknowledgement, shared by senders.
//!
//! Each sender may hold at most as much as it leaves free to the others. This is the rule of dynamic thresholds (Choudhury
//! and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998). One sender alone gets half of the
//! budget; as requests are answered, `k` senders that want all of it come to a `k + 1`th part each, and as much stays free
//! for whoever comes next. Nothing is remembered of a sender that holds nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use echo_core::error::{Code, Coded};

use super::memory_account::Sender;

/// A number of bytes, and who has how many of them. Clones are the same budget.
#[derive(Debug, Clone)]
pub struct Budget {
    size: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by: HashMap<Sender, usize>,
}

/// Why a request gets no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OverBudget {
    /// Others have it.
    #[error("other requests take up the collector's memory at the moment, try again")]
    Busy,
    /// The sender has its share, with requests that are not answered yet.
    #[error(
        "requests of this sender that are not answered yet take up its share of the collector's memory, try again when they are"
    )]
    Share,
    /// Even alone, the request could not have as much.
    #[error(
        "the request takes {bytes} bytes of memory, at most {limit} are given to one; send smaller requests"
    )]
    TooLarge {
        /// What it takes.
        bytes: usize,
        /// The most that one sender can have.
        limit: usize,
    },
}

impl Coded for OverBudget {
    fn code(&self) -> Code {
        match self {
            Self::Busy => Code::Busy,
            Self::Share => Code::TooMany,
            Self::TooLarge { .. } => Code::TooLarge,
        }
    }
}

/// What one request holds of a budget, given back when this is dropped.
#[derive(Debug)]
pub struct Held {
    budget: Budget,
    sender: Sender,
    bytes: usize,
}

impl Budget {
    /// Nobody has any of it yet.
    pub fn new(size: usize) -> Self {
        Self {
            size,
            taken: Arc::default(),
        }
    }

    /// Its size in bytes.
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Bytes that are held.
    pub fn taken(&self) -> usize {
        self.lock().all
    }

    /// The most that one sender can hold, bytes.
    pub const fn most(&self) -> usize {
        self.size / 2
    }

    /// What a request of this sender holds: nothing yet.
    pub fn hold(&self, sender: &Sender) -> Held {
        Held {
            budget: self.clone(),
            sender: sender.clone(),
            bytes: 0,
        }
    }

    // No change of the numbers can panic half way.
    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Takes so many bytes more.
    pub fn grow(&mut self, bytes: usize) -> Result<(), OverBudget> {
        self.resize(self.bytes.saturating_add(bytes))
    }

    /// Holds so many bytes from now on. What cannot be had leaves it as it is.
    pub fn resize(&mut self, bytes: usize) -> Result<(), OverBudget> {
        let limit = self.budget.most();
        // What comes in pieces is refused for good where it could never fit as a whole.
        if bytes > limit {
            return Err(OverBudget::TooLarge { bytes, limit });
        }
        let mut taken = self.budget.lock();
        let others = taken.all - self.bytes;
        let held = taken.by.get(&self.sender).copied().unwrap_or(0);
        let own_others = held - self.bytes;
        if bytes > self.bytes
            && own_others + bytes > self.budget.size.saturating_sub(others + bytes)
        {
            // With nothing else of its own in flight, it is the others that are in the way.
            return Err(if own_others == 0 {
                OverBudget::Busy
            } else {
                OverBudget::Share
            });
        }
        taken.all = others + bytes;
        match (own_others + bytes, taken.by.get_mut(&self.sender)) {
            (0, _) => drop(taken.by.remove(&self.sender)),
            (held, Some(known)) => *known = held,
            (held, None) => drop(taken.by.insert(self.sender.clone(), held)),
        }
        drop(taken);
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Less can always be had.
        let _nothing = self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::{Budget, Held, OverBudget};
    use crate::memory_account::Sender;

    fn agent(number: usize) -> Sender {
        Sender::Agent(format!("agent-{number}").parse().unwrap())
    }

    fn hold(budget: &Budget, who: usize, bytes: usize) -> Result<Held, OverBudget> {
        let mut held = budget.hold(&agent(who));
        held.grow(bytes).map(|()| held)
    }

    #[test]
    fn one_sender_gets_half_and_the_next_one_gets_in() {
        let budget = Budget::new(100);
        let mut held = Vec::new();
        while let Ok(more) = hold(&budget, 0, 10) {
            held.push(more);
        }
        assert_eq!((budget.taken(), held.len()), (50, 5));
        assert_eq!(hold(&budget, 0, 1).unwrap_err(), OverBudget::Share);
        assert!(hold(&budget, 1, 25).is_ok());
        assert_eq!(hold(&budget, 1, 26).unwrap_err(), OverBudget::Busy);
    }

    #[test]
    fn a_request_that_never_fits_is_not_told_to_try_again_not_even_when_it_comes_in_pieces() {
        let budget = Budget::new(100);
        let too_large = OverBudget::TooLarge {
            bytes: 51,
            limit: 50,
        };
        assert_eq!(hold(&budget, 1, 51).unwrap_err(), too_large);
        let mut held = hold(&budget, 0, 30).unwrap();
        held.grow(20).unwrap();
        assert_eq!(held.grow(1), Err(too_large));
        drop(held);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn a_sender_whose_only_request_does_not_fit_is_not_blamed_for_its_own_beginning() {
        let budget = Budget::new(100);
        let _others = hold(&budget, 1, 50).unwrap();
        let mut first = hold(&budget, 0, 20).unwrap();
        assert_eq!(first.grow(20), Err(OverBudget::Busy));
        let _second = hold(&budget, 0, 2).unwrap();
        assert_eq!(first.grow(20), Err(OverBudget::Share));
    }

    #[test]
    fn a_request_that_needs_less_gives_the_rest_back() {
        let budget = Budget::new(100);
        let mut held = hold(&budget, 0, 50).unwrap();
        held.resize(10).unwrap();
        assert_eq!(budget.taken(), 10);
        assert!(hold(&budget, 0, 40).is_ok());
    }

    #[test]
    fn a_storm_of_several_leaves_each_the_same_part_and_one_for_the_next() {
        const GREEDY: usize = 4;
        let budget = Budget::new(1_000);
        let mut held: VecDeque<Held> = VecDeque::new();
        for turn in 0..20_000 {
            // Each tries again at once whenever anything is answered, the first of them most often.
            for who in 0..=turn % GREEDY {
                held.extend(hold(&budget, who, 10));
            }
            drop(held.pop_front());
        }
        assert!(budget.taken() <= 800, "{}", budget.taken());
        assert!(hold(&budget, GREEDY, 100).is_ok());
    }

    proptest! {
        #[test]
        fn one_greedy_sender_never_keeps_a_modest_one_out(
            sizes in prop::collection::vec((1_usize..2_000, any::<bool>()), 1..200),
        ) {
            let budget = Budget::new(10_000);
            let mut held = VecDeque::new();
            for (size, is_answered) in sizes {
                held.extend(hold(&budget, 0, size));
                // Half is left in the worst case, and half of that leaves as much free as is taken.
                prop_assert!(hold(&budget, 1, 2_500).is_ok(), "{} taken", budget.taken());
                if is_answered {
                    drop(held.pop_front());
                }
            }
        }

        #[test]
        fn nobody_holds_more_than_is_left_and_all_is_given_back(
            steps in prop::collection::vec((0_usize..8, 0_usize..400, 0_u8..4), 1..300),
        ) {
            let budget = Budget::new(1_000);
            let mut held: VecDeque<Held> = VecDeque::new();
            for (who, bytes, step) in steps {
                match (step, held.back_mut()) {
                    (0, _) => drop(held.pop_front()),
                    (1, Some(one)) => drop(one.grow(bytes)),
                    (2, Some(one)) => drop(one.resize(bytes)),
                    _ => held.extend(hold(&budget, who, bytes)),
                }
                let sum: usize = held.iter().map(|held| held.bytes).sum();
                prop_assert_eq!(budget.taken(), sum);
                prop_assert!(sum <= 1_000);
            }
            held.clear();
            prop_assert_eq!(budget.taken(), 0);
            prop_assert!(budget.lock().by.is_empty(), "nobody is remembered");
        }
    }
}
