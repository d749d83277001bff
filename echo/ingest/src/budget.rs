//! Memory budget of requests between their first byte and their acknowledgement, shared by senders.
//! Each sender may hold at most as much as remains free. This is the rule of dynamic thresholds
//! (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches",
//! 1998). A single sender gets half of the budget; with `k` senders that request all of it, each
//! converges to a share of `1 / (k + 1)`, and the same share stays free for the next sender. No
//! state is kept for a sender without reservations.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use echo_core::error::{Code, Coded};

use super::memory_account::MemoryAccount;

/// Budget in bytes, with the usage by account. Clones share the budget.
#[derive(Debug, Clone)]
pub struct Budget {
    size: usize,
    usage: Arc<Mutex<Usage>>,
}

#[derive(Debug, Default)]
struct Usage {
    total: usize,
    by_account: HashMap<MemoryAccount, usize>,
}

/// Error from reserving memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OverBudget {
    /// Other senders use the budget.
    #[error("the memory of the collector is used by other requests; retry")]
    Busy,
    /// The sender uses its share, with requests in flight.
    #[error(
        "the requests of this sender in flight use its share of the memory of the collector; retry when they are answered"
    )]
    Share,
    /// The request exceeds the maximum share of one sender.
    #[error(
        "the request needs {bytes} bytes of memory, above the limit of {limit} per sender; send smaller requests"
    )]
    TooLarge {
        /// Needed memory, bytes.
        bytes: usize,
        /// Maximum per sender, bytes.
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

/// Memory reserved by one request; released on drop.
#[derive(Debug)]
pub struct Reservation {
    budget: Budget,
    account: MemoryAccount,
    bytes: usize,
}

impl Budget {
    /// Creates an unused budget of `size` bytes.
    pub fn new(size: usize) -> Self {
        Self {
            size,
            usage: Arc::default(),
        }
    }

    /// Returns the size in bytes.
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Returns the reserved bytes.
    pub fn used(&self) -> usize {
        self.lock().total
    }

    /// Returns the maximum that one sender can reserve, bytes.
    pub const fn max_per_account(&self) -> usize {
        self.size / 2
    }

    /// Returns an empty reservation for a request of this account.
    pub fn reserve(&self, account: &MemoryAccount) -> Reservation {
        Reservation {
            budget: self.clone(),
            account: account.clone(),
            bytes: 0,
        }
    }

    // Updates cannot panic midway, so a poisoned lock is consistent.
    fn lock(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    /// Reserves `bytes` more.
    pub fn grow(&mut self, bytes: usize) -> Result<(), OverBudget> {
        self.resize(self.bytes.saturating_add(bytes))
    }

    /// Changes the reservation to `bytes`. An error leaves it unchanged.
    pub fn resize(&mut self, bytes: usize) -> Result<(), OverBudget> {
        let limit = self.budget.max_per_account();
        // Not retryable: a request that arrives in pieces could never fit as a whole.
        if bytes > limit {
            return Err(OverBudget::TooLarge { bytes, limit });
        }
        let mut usage = self.budget.lock();
        let others = usage.total - self.bytes;
        let reserved = usage.by_account.get(&self.account).copied().unwrap_or(0);
        let own_others = reserved - self.bytes;
        if bytes > self.bytes
            && own_others + bytes > self.budget.size.saturating_sub(others + bytes)
        {
            // Without other requests of this sender in flight, other senders use the budget.
            return Err(if own_others == 0 {
                OverBudget::Busy
            } else {
                OverBudget::Share
            });
        }
        usage.total = others + bytes;
        match (own_others + bytes, usage.by_account.get_mut(&self.account)) {
            (0, _) => drop(usage.by_account.remove(&self.account)),
            (reserved, Some(known)) => *known = reserved,
            (reserved, None) => drop(usage.by_account.insert(self.account.clone(), reserved)),
        }
        drop(usage);
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // Shrinking always succeeds.
        let _nothing = self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::{Budget, OverBudget, Reservation};
    use crate::memory_account::MemoryAccount;

    fn agent(number: usize) -> MemoryAccount {
        MemoryAccount::Agent(format!("agent-{number}").parse().unwrap())
    }

    fn reserve(budget: &Budget, who: usize, bytes: usize) -> Result<Reservation, OverBudget> {
        let mut reserved = budget.reserve(&agent(who));
        reserved.grow(bytes).map(|()| reserved)
    }

    #[test]
    fn one_sender_gets_half_and_the_next_sender_is_admitted() {
        let budget = Budget::new(100);
        let mut reserved = Vec::new();
        while let Ok(more) = reserve(&budget, 0, 10) {
            reserved.push(more);
        }
        assert_eq!((budget.used(), reserved.len()), (50, 5));
        assert_eq!(reserve(&budget, 0, 1).unwrap_err(), OverBudget::Share);
        assert!(reserve(&budget, 1, 25).is_ok());
        assert_eq!(reserve(&budget, 1, 26).unwrap_err(), OverBudget::Busy);
    }

    #[test]
    fn a_request_that_can_never_fit_is_not_retryable_even_if_it_arrives_in_pieces() {
        let budget = Budget::new(100);
        let too_large = OverBudget::TooLarge {
            bytes: 51,
            limit: 50,
        };
        assert_eq!(reserve(&budget, 1, 51).unwrap_err(), too_large);
        let mut reserved = reserve(&budget, 0, 30).unwrap();
        reserved.grow(20).unwrap();
        assert_eq!(reserved.grow(1), Err(too_large));
        drop(reserved);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn the_first_part_of_a_request_does_not_count_as_another_request_in_flight() {
        let budget = Budget::new(100);
        let _others = reserve(&budget, 1, 50).unwrap();
        let mut first = reserve(&budget, 0, 20).unwrap();
        assert_eq!(first.grow(20), Err(OverBudget::Busy));
        let _second = reserve(&budget, 0, 2).unwrap();
        assert_eq!(first.grow(20), Err(OverBudget::Share));
    }

    #[test]
    fn shrinking_a_reservation_releases_memory() {
        let budget = Budget::new(100);
        let mut reserved = reserve(&budget, 0, 50).unwrap();
        reserved.resize(10).unwrap();
        assert_eq!(budget.used(), 10);
        assert!(reserve(&budget, 0, 40).is_ok());
    }

    #[test]
    fn several_greedy_senders_get_equal_shares_and_leave_one_free() {
        const GREEDY: usize = 4;
        let budget = Budget::new(1_000);
        let mut reserved: VecDeque<Reservation> = VecDeque::new();
        for turn in 0..20_000 {
            // Each sender retries at once after every response, the first one most often.
            for who in 0..=turn % GREEDY {
                reserved.extend(reserve(&budget, who, 10));
            }
            drop(reserved.pop_front());
        }
        assert!(budget.used() <= 800, "{}", budget.used());
        assert!(reserve(&budget, GREEDY, 100).is_ok());
    }

    proptest! {
        #[test]
        fn one_greedy_sender_never_blocks_a_modest_one(
            sizes in prop::collection::vec((1_usize..2_000, any::<bool>()), 1..200),
        ) {
            let budget = Budget::new(10_000);
            let mut reserved = VecDeque::new();
            for (size, is_answered) in sizes {
                reserved.extend(reserve(&budget, 0, size));
                // At least half is free, and a sender may reserve half of that.
                prop_assert!(reserve(&budget, 1, 2_500).is_ok(), "{} used", budget.used());
                if is_answered {
                    drop(reserved.pop_front());
                }
            }
        }

        #[test]
        fn reservations_stay_within_the_budget_and_are_released(
            steps in prop::collection::vec((0_usize..8, 0_usize..400, 0_u8..4), 1..300),
        ) {
            let budget = Budget::new(1_000);
            let mut reserved: VecDeque<Reservation> = VecDeque::new();
            for (who, bytes, step) in steps {
                match (step, reserved.back_mut()) {
                    (0, _) => drop(reserved.pop_front()),
                    (1, Some(one)) => drop(one.grow(bytes)),
                    (2, Some(one)) => drop(one.resize(bytes)),
                    _ => reserved.extend(reserve(&budget, who, bytes)),
                }
                let sum: usize = reserved.iter().map(|reserved| reserved.bytes).sum();
                prop_assert_eq!(budget.used(), sum);
                prop_assert!(sum <= 1_000);
            }
            reserved.clear();
            prop_assert_eq!(budget.used(), 0);
            prop_assert!(budget.lock().by_account.is_empty(), "no account is kept");
        }
    }
}
