//! Room that senders share: each may hold at most as much as it leaves free to the others.
//!
//! This is the rule of dynamic thresholds (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet
//! switches", 1998). One sender alone gets half of the room; as requests are answered, `k` senders that want all of it come
//! to a `k + 1`th part each, and as much stays free for whoever comes next. Nothing is remembered of a sender that holds
//! nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::sender::Sender;

/// Room of a size, and who has how much of it. Clones are the same room.
#[derive(Debug, Clone)]
pub(super) struct Room {
    size: u64,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    all: u64,
    by: HashMap<Sender, u64>,
}

/// Why there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// Even alone, the sender could not have as much.
    Never {
        /// The most that it can have.
        most: u64,
    },
    /// Others have it.
    Full,
    /// The sender has its share.
    Share,
}

/// A part of a room that is given back when this is dropped.
#[derive(Debug)]
pub struct Part {
    room: Room,
    sender: Sender,
    amount: u64,
}

impl Room {
    /// Nobody has any of it yet.
    pub(super) fn new(size: u64) -> Self {
        Self {
            size,
            taken: Arc::default(),
        }
    }

    /// How much is taken.
    pub(super) fn taken(&self) -> u64 {
        self.lock().all
    }

    /// The most that one sender can hold.
    const fn most(&self) -> u64 {
        self.size / 2
    }

    /// Takes up room for the sender.
    pub(super) fn take(&self, sender: &Sender, amount: u64) -> Result<Part, NoRoom> {
        self.charge(sender, (0, amount))?;
        Ok(Part {
            room: self.clone(),
            sender: sender.clone(),
            amount,
        })
    }

    /// Notes that the sender has asked for something elsewhere, which is no more than `most` altogether unless it is the
    /// only thing.
    pub(super) fn note(&self, sender: &Sender, amount: u64, most: u64) -> Result<Part, NoRoom> {
        let mut taken = self.lock();
        let held = taken.by.get(sender).copied().unwrap_or(0);
        if held > 0 && held + amount > most {
            return Err(NoRoom::Share);
        }
        taken.all += amount;
        taken.by.insert(sender.clone(), held + amount);
        drop(taken);
        Ok(Part {
            room: self.clone(),
            sender: sender.clone(),
            amount,
        })
    }

    /// A part that may grow.
    pub(super) fn nothing(&self, sender: &Sender) -> Part {
        Part {
            room: self.clone(),
            sender: sender.clone(),
            amount: 0,
        }
    }

    /// Takes up `amount` for something of the sender that has `before` already.
    fn charge(&self, sender: &Sender, (before, amount): (u64, u64)) -> Result<(), NoRoom> {
        let most = self.most();
        if amount > most {
            return Err(NoRoom::Never { most });
        }
        if amount == 0 {
            return Ok(());
        }
        let mut taken = self.lock();
        let held = taken.by.get(sender).copied().unwrap_or(0);
        let left = (self.size - taken.all).saturating_sub(amount);
        if held + amount > left {
            // With nothing else of its own in flight, it is the others that are in the way.
            return Err(if held == before {
                NoRoom::Full
            } else {
                NoRoom::Share
            });
        }
        taken.all += amount;
        taken.by.insert(sender.clone(), held + amount);
        drop(taken);
        Ok(())
    }

    fn give_back(&self, sender: &Sender, amount: u64) {
        let mut taken = self.lock();
        taken.all = taken.all.saturating_sub(amount);
        if let Some(held) = taken.by.get_mut(sender) {
            *held = held.saturating_sub(amount);
            if *held == 0 {
                taken.by.remove(sender);
            }
        }
    }

    // No change of the numbers can panic half way.
    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Part {
    /// Takes up room for `amount` more.
    pub(super) fn grow(&mut self, amount: u64) -> Result<(), NoRoom> {
        // What came in pieces is refused for good where it could never fit as a whole.
        let most = self.room.most();
        if self.amount.saturating_add(amount) > most {
            return Err(NoRoom::Never { most });
        }
        self.room.charge(&self.sender, (self.amount, amount))?;
        self.amount += amount;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.room.give_back(&self.sender, self.amount);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::{NoRoom, Part, Room};
    use crate::sender::Sender;

    fn agent(number: usize) -> Sender {
        Sender::Agent(format!("agent-{number}").parse().unwrap())
    }

    #[test]
    fn one_sender_gets_half_and_the_next_one_gets_in() {
        let room = Room::new(100);
        let mut held = Vec::new();
        while let Ok(part) = room.take(&agent(0), 10) {
            held.push(part);
        }
        assert_eq!((room.taken(), held.len()), (50, 5));
        assert_eq!(room.take(&agent(0), 1).unwrap_err(), NoRoom::Share);
        assert!(room.take(&agent(1), 25).is_ok());
        assert_eq!(room.take(&agent(1), 26).unwrap_err(), NoRoom::Full);
        let never = room.take(&agent(1), 51).unwrap_err();
        assert_eq!(never, NoRoom::Never { most: 50 });
    }

    #[test]
    fn what_comes_in_pieces_is_told_at_half_that_it_never_fits() {
        let room = Room::new(100);
        let mut part = room.take(&Sender::Unknown, 30).unwrap();
        part.grow(20).unwrap();
        assert_eq!(part.grow(1), Err(NoRoom::Never { most: 50 }));
        drop(part);
        assert_eq!(room.taken(), 0);
    }

    #[test]
    fn a_sender_whose_only_body_does_not_fit_is_not_blamed_for_its_own_beginning() {
        let room = Room::new(100);
        let _others = room.take(&agent(1), 50).unwrap();
        let mut body = room.take(&agent(0), 20).unwrap();
        assert_eq!(body.grow(20), Err(NoRoom::Full));
        let _more = room.take(&agent(0), 2).unwrap();
        assert_eq!(body.grow(20), Err(NoRoom::Share));
    }

    #[test]
    fn a_storm_of_several_leaves_each_the_same_part_and_one_for_the_next() {
        const GREEDY: usize = 4;
        let room = Room::new(1_000);
        let mut held: VecDeque<Part> = VecDeque::new();
        for turn in 0..20_000 {
            // Each tries again at once whenever anything is answered, the first of them most often.
            for who in 0..=turn % GREEDY {
                held.extend(room.take(&agent(who), 10));
            }
            drop(held.pop_front());
        }
        assert!(room.taken() <= 800, "{}", room.taken());
        assert!(room.take(&agent(GREEDY), 100).is_ok());
    }

    proptest! {
        #[test]
        fn one_greedy_sender_never_keeps_a_modest_one_out(
            sizes in prop::collection::vec((1_u64..2_000, any::<bool>()), 1..200),
        ) {
            let room = Room::new(10_000);
            let mut held = VecDeque::new();
            for (size, is_answered) in sizes {
                held.extend(room.take(&agent(0), size));
                // Half is left in the worst case, and half of that leaves as much free as is taken.
                prop_assert!(room.take(&agent(1), 2_500).is_ok(), "{} taken", room.taken());
                if is_answered {
                    drop(held.pop_front());
                }
            }
        }

        #[test]
        fn nobody_holds_more_than_is_left_and_all_room_is_given_back(
            steps in prop::collection::vec((0_usize..8, 0_u64..400, any::<bool>(), any::<bool>()), 1..300),
        ) {
            let room = Room::new(1_000);
            let mut held: VecDeque<Part> = VecDeque::new();
            for (who, amount, is_first_to_go, goes) in steps {
                if goes {
                    let gone = if is_first_to_go { held.pop_front() } else { held.pop_back() };
                    drop(gone);
                } else if let Some(part) = held.back_mut().filter(|_| is_first_to_go) {
                    let _full = part.grow(amount);
                } else {
                    held.extend(room.take(&agent(who), amount));
                }
                let sum: u64 = held.iter().map(|part| part.amount).sum();
                prop_assert_eq!(room.taken(), sum);
                prop_assert!(sum <= 1_000);
            }
            held.clear();
            prop_assert_eq!(room.taken(), 0);
            prop_assert!(room.lock().by.is_empty(), "nobody is remembered");
        }
    }
}
