//! Which communicator a pointer in a traced process stands for.

use std::collections::HashMap;

use crate::event::CommInit;
use crate::signal::CommId;

/// Most pointers that are told apart in one process: far more than a job has communicators.
const MAX_POINTERS: usize = 65_536;

/// Most channels that are followed in one process: a rank of a pipeline has a few.
const MAX_CHANNELS: usize = 64;

/// Index of a communicator within its process, in the order in which the process made them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommIndex(usize);

impl CommIndex {
    /// Position in per-communicator tables.
    pub fn position(self) -> usize {
        self.0
    }

    /// The communicators of such a table with their index.
    pub fn numbered(comms: &[Comm]) -> impl Iterator<Item = (Self, &Comm)> {
        let numbered = comms.iter().enumerate();
        numbered.map(|(position, comm)| (Self(position), comm))
    }
}

/// A communicator as one of its ranks sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comm {
    /// Identity, equal on all its ranks.
    pub id: CommId,
    /// The process's rank within it.
    pub rank: u32,
    /// Its ranks.
    pub nranks: u32,
    /// The communicator of which this is a channel, if it is one.
    pub parent: Option<CommIndex>,
}

/// The communicators of one process.
#[derive(Debug, Default)]
pub struct CommTable {
    comms: Vec<Comm>,
    by_pointer: HashMap<u64, Place>,
    pending: Vec<Pending>,
    channels: HashMap<(CommIndex, u32, u32), CommIndex>,
    unknown: u64,
}

/// What a pointer stands for.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// A communicator that was seen being made.
    Known(CommIndex),
    /// A communicator of one rank.
    Alone,
    /// A communicator made before tracing began.
    ///
    /// How many operations it had seen by then nobody can tell, so its operations have no sequence numbers and no
    /// equals on other ranks: they are counted and left out, until the program makes a new communicator. The
    /// pointer is remembered, or the next communicator that is made would be taken for it.
    Unknown,
}

#[derive(Debug)]
struct Pending {
    tid: u32,
    comm: Option<CommIndex>,
}

impl CommTable {
    /// Notes that a communicator was made; the next new pointer belongs to it, unless the source knows which.
    ///
    /// Communicators of one rank are matched to their pointer too, so that the next one is not
    /// taken for them, but nothing is reported about them.
    pub fn made(&mut self, tid: u32, init: CommInit) {
        let comm = (init.nranks > 1 && init.rank < init.nranks).then(|| {
            let id = CommId::new(init.unique_id);
            self.comms.push(Comm {
                id,
                rank: init.rank,
                nranks: init.nranks,
                parent: None,
            });
            CommIndex(self.comms.len() - 1)
        });
        match init.comm {
            Some(pointer) => self.point(pointer, comm.map_or(Place::Alone, Place::Known)),
            None => self.pending.push(Pending { tid, comm }),
        }
    }

    /// The channel on which a communicator's rank `from` sends to its rank `to`, one of which is this process. Both ends number its
    /// transfers alike, so it is followed as a communicator of two.
    pub fn channel(&mut self, parent: CommIndex, (from, to): (u32, u32)) -> Option<CommIndex> {
        let key = (parent, from, to);
        if let Some(known) = self.channels.get(&key) {
            return Some(*known);
        }
        let comm = *self.comms.get(parent.position())?;
        let is_possible = from != to && from.max(to) < comm.nranks;
        if !is_possible || self.channels.len() >= MAX_CHANNELS {
            return None;
        }
        let mut bytes = comm.id.to_bits().to_le_bytes().to_vec();
        bytes.extend_from_slice(&from.to_le_bytes());
        bytes.extend_from_slice(&to.to_le_bytes());
        self.comms.push(Comm {
            id: CommId::new(xxhash_rust::xxh64::xxh64(&bytes, 0)),
            rank: u32::from(comm.rank == to),
            nranks: 2,
            parent: Some(parent),
        });
        let index = CommIndex(self.comms.len() - 1);
        self.channels.insert(key, index);
        Some(index)
    }

    /// Forgets a pointer, which may be used again for another communicator; the one that is gone, if it is known.
    pub fn gone(&mut self, pointer: u64) -> Option<CommIndex> {
        match self.by_pointer.remove(&pointer)? {
            Place::Known(index) => Some(index),
            Place::Alone | Place::Unknown => None,
        }
    }

    /// The communicator behind a pointer that a thread just used.
    pub fn find(&mut self, tid: u32, pointer: u64) -> Option<CommIndex> {
        let place = match self.by_pointer.get(&pointer) {
            Some(known) => *known,
            None => self.place(tid, pointer),
        };
        match place {
            Place::Known(index) => Some(index),
            Place::Alone => None,
            Place::Unknown => {
                self.unknown += 1;
                None
            }
        }
    }

    fn place(&mut self, tid: u32, pointer: u64) -> Place {
        let place = match self.take_pending(tid) {
            Some(pending) => pending.comm.map_or(Place::Alone, Place::Known),
            None => Place::Unknown,
        };
        self.point(pointer, place);
        place
    }

    fn point(&mut self, pointer: u64, place: Place) {
        if self.by_pointer.len() < MAX_POINTERS || self.by_pointer.contains_key(&pointer) {
            self.by_pointer.insert(pointer, place);
        }
    }

    /// The communicators with their index.
    pub fn indexed(&self) -> impl Iterator<Item = (CommIndex, &Comm)> {
        CommIndex::numbered(&self.comms)
    }

    /// The communicators, by index.
    pub fn comms(&self) -> &[Comm] {
        &self.comms
    }

    /// Operations whose communicator was made before tracing began.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    // Frameworks make most communicators just before their first operation on the same thread, so
    // the thread tells more than the order.
    fn take_pending(&mut self, tid: u32) -> Option<Pending> {
        if self.pending.is_empty() {
            return None;
        }
        let at = self
            .pending
            .iter()
            .position(|pending| pending.tid == tid)
            .unwrap_or(0);
        Some(self.pending.remove(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn init(nranks: u32, unique_id: u64) -> CommInit {
        CommInit {
            nranks,
            rank: 0,
            unique_id,
            comm: None,
        }
    }

    fn id_of(table: &mut CommTable, tid: u32, pointer: u64) -> Option<u64> {
        let index = table.find(tid, pointer)?;
        Some(table.comms()[index.position()].id.to_bits())
    }

    #[test]
    fn pointers_are_matched_in_the_order_of_the_inits() {
        let mut table = CommTable::default();
        table.made(1, init(4, 10));
        table.made(1, init(2, 20));
        assert_eq!(id_of(&mut table, 1, 0xa), Some(10));
        assert_eq!(id_of(&mut table, 1, 0xb), Some(20));
        assert_eq!(id_of(&mut table, 9, 0xa), Some(10));
    }

    #[test]
    fn a_pointer_first_used_by_the_thread_of_an_init_belongs_to_it() {
        let mut table = CommTable::default();
        table.made(1, init(4, 10));
        table.made(2, init(2, 20));
        assert_eq!(id_of(&mut table, 2, 0xb), Some(20));
        assert_eq!(id_of(&mut table, 2, 0xa), Some(10));
    }

    #[test]
    fn a_communicator_of_one_rank_takes_its_pointer_and_is_ignored() {
        let mut table = CommTable::default();
        table.made(1, init(1, 10));
        table.made(1, init(2, 20));
        assert_eq!(id_of(&mut table, 1, 0xa), None);
        assert_eq!(id_of(&mut table, 1, 0xb), Some(20));
        assert_eq!(table.unknown(), 0);
    }

    #[test]
    fn a_pointer_without_an_init_is_counted() {
        let mut table = CommTable::default();
        assert_eq!(table.find(1, 0xa), None);
        assert_eq!(table.unknown(), 1);
    }

    #[test]
    fn a_new_communicator_is_not_taken_for_one_made_before_tracing_began() {
        let mut table = CommTable::default();
        assert_eq!(table.find(1, 0xa), None);
        table.made(1, init(4, 20));
        assert_eq!(table.find(1, 0xa), None);
        assert_eq!(id_of(&mut table, 1, 0xb), Some(20));
        assert_eq!(table.unknown(), 2);
    }

    #[test]
    fn a_source_that_knows_the_pointer_is_believed() {
        let mut table = CommTable::default();
        let known = |unique_id, pointer| CommInit {
            comm: Some(pointer),
            ..init(4, unique_id)
        };
        table.made(1, known(10, 0xa));
        table.made(1, known(20, 0xb));
        assert_eq!(id_of(&mut table, 1, 0xb), Some(20));
        assert_eq!(id_of(&mut table, 1, 0xa), Some(10));
        // The pointer was used again, and nobody saw the end of the first communicator.
        table.made(1, known(30, 0xa));
        assert_eq!(id_of(&mut table, 1, 0xa), Some(30));
    }

    #[test]
    fn a_pointer_can_be_used_again_after_its_communicator_is_gone() {
        let mut table = CommTable::default();
        table.made(1, init(4, 10));
        assert_eq!(id_of(&mut table, 1, 0xa), Some(10));
        table.gone(0xa);
        table.made(1, init(4, 20));
        assert_eq!(id_of(&mut table, 1, 0xa), Some(20));
    }
}
