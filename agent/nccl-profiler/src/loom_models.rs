//! Models of the tables: loom runs each with every interleaving of its threads, and with every value
//! that the orderings of the atomics let a thread read.

use std::fmt::Debug;
use std::sync::Arc;

use loom::thread;

use crate::comms::{Comm, Comms, SeqKind};
use crate::handle::Handle;
use crate::losses::Losses;
use crate::pool::{ABANDONED_AFTER_NS, Operation, Pool};
use crate::record::Record;
use crate::sync::{AtomicU64, Ordering};

/// Time at which the operations of before are abandoned, nanoseconds.
const LATER: u64 = ABANDONED_AFTER_NS + 2;

/// Pool and counters.
#[derive(Debug)]
struct Operations {
    pool: Pool,
    losses: Losses,
}

impl Operations {
    /// Creates a pool with operations that are in flight, one per enqueue time.
    fn with_in_flight(enqueued_ns: &[u64]) -> (Arc<Self>, Vec<u64>) {
        let operations = shared(Self {
            pool: Pool::new(),
            losses: Losses::new(),
        });
        let begin = |host_ns: &u64| operations.begin(100, *host_ns, 1).unwrap();
        let handles = enqueued_ns.iter().map(begin).collect();
        (operations, handles)
    }

    fn begin(&self, seed: u32, host_ns: u64, channels: u8) -> Option<u64> {
        let operation = Operation {
            record: record(seed, host_ns),
            channels,
        };
        let handle = self.pool.begin(&operation, &self.losses);
        handle.map(Handle::to_bits)
    }

    fn run(&self, parent: u64, channel: u8, (start_ns, stop_ns): (u64, u64)) -> Option<Record> {
        let part = self.pool.started(parent, channel, start_ns)?;
        self.pool.stopped(part.to_bits(), stop_ns)
    }

    /// Ends an operation with one channel, if it is found. Its record has to be complete.
    fn end(&self, parent: u64, seed: u32, host_ns: u64) -> bool {
        let times = (u64::from(seed), u64::from(seed) + 1);
        let expected = Record {
            gpu_start_ns: times.0,
            gpu_stop_ns: times.1,
            channels: 1,
            ..record(seed, host_ns)
        };
        let ended = self.run(parent, 0, times);
        assert!(ended.is_none_or(|record| record == expected), "{ended:?}");
        ended.is_some()
    }

    /// Begins and ends an operation with one channel; returns whether a slot was free.
    fn begin_and_end(&self, seed: u32, host_ns: u64) -> bool {
        let begun = self.begin(seed, host_ns, 1);
        begun.is_some_and(|parent| {
            assert!(self.end(parent, seed, host_ns), "lost");
            true
        })
    }

    fn counts(&self) -> (u64, u64) {
        let count = |loss: &AtomicU64| loss.load(Ordering::Relaxed);
        (count(&self.losses.pool_full), count(&self.losses.abandoned))
    }
}

/// Returns a record of which each field tells the operation.
fn record(seed: u32, host_ns: u64) -> Record {
    Record {
        kind: seed,
        comm_id: seed.into(),
        seq: seed.into(),
        nccl_seq: seed.into(),
        count: seed.into(),
        host_ns,
        rank: seed,
        nranks: seed,
        function: seed,
        datatype: seed,
        peer: seed.cast_signed(),
        ..Record::default()
    }
}

/// Shares a value between threads. Formatting it creates its atomics: creation is no atomic
/// operation, so it has to happen before the threads.
fn shared<T: Debug>(value: T) -> Arc<T> {
    assert!(!format!("{value:?}").is_empty());
    Arc::new(value)
}

/// Runs a closure in another thread of the model.
fn spawn<T, R: 'static>(
    value: &Arc<T>,
    body: impl FnOnce(&T) -> R + 'static,
) -> thread::JoinHandle<R>
where
    T: 'static,
{
    let value = Arc::clone(value);
    thread::spawn(move || body(&value))
}

#[test]
fn two_threads_never_get_the_same_slot() {
    loom::model(|| {
        let (operations, _) = Operations::with_in_flight(&[1]);
        let other = spawn(&operations, |operations| operations.begin_and_end(2, 1));
        let n_ended = u64::from(operations.begin_and_end(1, 1)) + u64::from(other.join().unwrap());
        assert_eq!(
            (n_ended + operations.counts().0, operations.pool.in_flight()),
            (2, 1)
        );
    });
}

#[test]
fn a_handle_that_arrives_without_synchronisation_finds_the_whole_operation() {
    loom::model(|| {
        let operations = Operations::with_in_flight(&[]).0;
        let mailbox = shared(AtomicU64::new(0));
        let other = spawn(&mailbox, {
            let operations = Arc::clone(&operations);
            move |mailbox| operations.end(mailbox.load(Ordering::Relaxed), 1, 1)
        });
        let handle = operations.begin(1, 1, 1).unwrap();
        mailbox.store(handle, Ordering::Relaxed);
        assert!(other.join().unwrap() || operations.end(handle, 1, 1));
    });
}

#[test]
fn one_of_two_channels_returns_the_record_with_the_times_of_both() {
    loom::model(|| {
        let (operations, _) = Operations::with_in_flight(&[]);
        let parent = operations.begin(1, 1, 2).unwrap();
        let other = spawn(&operations, move |operations| {
            operations.run(parent, 1, (5, 20))
        });
        let ended = [operations.run(parent, 0, (10, 30)), other.join().unwrap()];
        let [ended] = ended.into_iter().flatten().collect::<Vec<_>>()[..] else {
            panic!("{ended:?}");
        };
        assert_eq!((ended.gpu_start_ns, ended.gpu_stop_ns), (10, 30));
    });
}

#[test]
fn an_operation_ends_or_is_counted_as_abandoned_and_never_spoils_its_replacement() {
    loom::model(|| {
        let (operations, handles) = Operations::with_in_flight(&[1, LATER]);
        let old = handles[0];
        let other = spawn(&operations, move |operations| {
            operations.run(old, 0, (1_000, 2_000)).is_some()
        });
        let n_begun = u64::from(operations.begin_and_end(1, LATER));
        let n_old = u64::from(other.join().unwrap());
        let (pool_full, abandoned) = operations.counts();
        assert_eq!((n_begun + pool_full, n_old + abandoned), (1, 1));
    });
}

#[test]
fn two_threads_replace_an_abandoned_operation_once() {
    loom::model(|| {
        let (operations, _) = Operations::with_in_flight(&[1, LATER]);
        let other = spawn(&operations, |operations| operations.begin_and_end(2, LATER));
        let begun = [operations.begin_and_end(1, LATER), other.join().unwrap()];
        let n_begun = begun.map(u64::from).iter().sum::<u64>();
        let (pool_full, abandoned) = operations.counts();
        assert_eq!((n_begun + pool_full, abandoned), (2, 1));
    });
}

#[test]
fn losses_of_two_threads_add_up() {
    loom::model(|| {
        let losses = shared(Losses::new());
        let other = spawn(&losses, |losses| Losses::increment(&losses.abandoned));
        Losses::increment(&losses.abandoned);
        Losses::increment(&losses.pool_full);
        other.join().unwrap();
        assert_eq!(losses.operations(), 3);
    });
}

fn comm(id: u64) -> Comm {
    Comm {
        id,
        rank: 1,
        nranks: 4,
        nth: 0,
    }
}

fn join(comms: &Comms, id: u64) -> u64 {
    comms.join(comm(id)).unwrap().to_bits()
}

/// Returns the communicator and the number of its next collective.
fn next(comms: &Comms, handle: u64) -> Option<(u64, u64)> {
    let (comm, seq) = comms.next_seq(handle, SeqKind::Collectives)?;
    Some((comm.id, seq))
}

#[test]
fn two_communicators_that_join_get_a_slot_and_a_number_each() {
    loom::model(|| {
        let comms = shared(Comms::new());
        let join_and_number = |comms: &Comms, id| {
            let handle = join(comms, id);
            assert_eq!(next(comms, handle), Some((id, 0)));
            comms.leave(handle).unwrap().nth
        };
        let other = spawn(&comms, move |comms| join_and_number(comms, 2));
        let mut nths = [join_and_number(&comms, 1), other.join().unwrap()];
        nths.sort_unstable();
        assert_eq!(nths, [0, 1]);
    });
}

#[test]
fn operations_of_two_threads_get_a_number_each() {
    loom::model(|| {
        let comms = shared(Comms::new());
        let handle = join(&comms, 1);
        let other = spawn(&comms, move |comms| next(comms, handle));
        let mut numbers = [next(&comms, handle), other.join().unwrap()];
        numbers.sort_unstable();
        assert_eq!(numbers, [Some((1, 0)), Some((1, 1))]);
    });
}

#[test]
fn a_stale_handle_takes_no_number_of_the_next_communicator() {
    loom::model(|| {
        let comms = shared(Comms::new());
        let old = join(&comms, 1);
        let other = spawn(&comms, move |comms| next(comms, old));
        assert!(comms.leave(old).is_some());
        let new = join(&comms, 2);
        assert_eq!(next(&comms, new), Some((2, 0)));
        assert!(matches!(other.join().unwrap(), None | Some((1, 0))));
    });
}

#[test]
fn a_communicator_that_two_threads_remove_leaves_once() {
    loom::model(|| {
        let comms = shared(Comms::new());
        let old = join(&comms, 1);
        let other = spawn(&comms, move |comms| comms.leave(old).is_some());
        let left = comms.leave(old).is_some();
        let new = join(&comms, 2);
        assert!(left != other.join().unwrap());
        assert_eq!(next(&comms, new), Some((2, 0)));
    });
}

#[test]
fn of_two_threads_that_remove_the_last_communicators_one_is_the_last() {
    loom::model(|| {
        let comms = shared(Comms::new());
        let [one, two] = [1, 2].map(|id| join(&comms, id));
        let leave = |comms: &Comms, handle| comms.leave(handle).is_some() && comms.finish_leave();
        let other = spawn(&comms, move |comms| leave(comms, two));
        assert!(leave(&comms, one) != other.join().unwrap());
    });
}
