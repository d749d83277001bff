use super::*;
use crate::correlate::{Correlator, Observation};
use crate::discover::CommTable;
use crate::event::{CommInit, Op, Operation};

/// Process with communicators of the given sizes.
struct Rank {
    table: CommTable,
    correlator: Correlator,
    iteration_pattern: IterationPattern,
    now_ns: u64,
}

impl Rank {
    fn new(sizes: &[u32]) -> Self {
        let mut table = CommTable::default();
        for (at, nranks) in (1..).zip(sizes) {
            table.record_init(
                1,
                CommInit {
                    nranks: *nranks,
                    rank: 0,
                    unique_id: at * 1000,
                    comm: None,
                },
            );
            table.find(1, at);
        }
        Self {
            table,
            correlator: Correlator::default(),
            iteration_pattern: IterationPattern::default(),
            now_ns: 0,
        }
    }

    fn issue(&mut self, comm: u64, count: u64) {
        let operation = Operation {
            op: Op::AllReduce,
            count,
            datatype: 7,
            comm,
            seq: None,
            peer: None,
        };
        let index = self.table.find(1, comm).unwrap();
        let nranks = self.table.comms()[index.position()].nranks;
        self.now_ns += 10;
        let observed = self.correlator.issue(index, nranks, operation, self.now_ns);
        let Observation::Issued(issued) = observed else {
            panic!()
        };
        self.iteration_pattern.observe(issued, self.table.comms());
    }

    /// Issues iterations of `(communicator, count)` with a pause after each.
    fn run(&mut self, iteration: &[(u64, u64)], times: usize) {
        for _ in 0..times {
            for (comm, count) in iteration {
                self.issue(*comm, *count);
            }
            self.now_ns += 1000;
        }
    }

    fn role(&self) -> Role {
        self.iteration_pattern.profile().unwrap().role
    }
}

#[test]
fn ranks_with_the_same_program_have_the_same_role_in_any_communicator() {
    let iteration = [(1, 5), (1, 6), (2, 7)];
    let (mut one, mut other) = (Rank::new(&[2, 2]), Rank::new(&[2, 2]));
    other.issue(2, 99);
    one.run(&iteration, 200);
    other.run(&iteration, 200);
    assert_eq!(one.role(), other.role());
}

#[test]
fn another_program_is_another_role() {
    let (mut one, mut other) = (Rank::new(&[2, 2]), Rank::new(&[2, 2]));
    one.run(&[(1, 5), (1, 6), (2, 7)], 200);
    other.run(&[(1, 5), (1, 6), (2, 8)], 200);
    assert_ne!(one.role(), other.role());
}

#[test]
fn operations_outside_the_iteration_do_not_change_the_role() {
    let (mut one, mut other) = (Rank::new(&[2, 4]), Rank::new(&[2, 4]));
    one.run(&[(1, 5), (1, 6)], 200);
    other.run(&[(1, 5), (1, 6)], 75);
    other.issue(2, 1);
    other.run(&[(1, 5), (1, 6)], 125);
    assert_eq!(one.role(), other.role());
}

#[test]
fn the_busiest_communicator_of_an_iteration_is_tracked() {
    let mut rank = Rank::new(&[8, 2]);
    rank.run(&[(1, 5), (2, 6), (2, 7)], 600);
    rank.iteration_pattern.reconsider();
    rank.run(&[(1, 5), (2, 6), (2, 7)], 100);
    assert_eq!(rank.iteration_pattern.primary(), rank.table.find(1, 2));
}

#[test]
fn of_equally_busy_communicators_the_largest_is_tracked() {
    let mut rank = Rank::new(&[2, 8]);
    rank.run(&[(1, 5), (2, 6)], 200);
    assert_eq!(rank.iteration_pattern.primary(), rank.table.find(1, 2));
}

#[test]
fn a_slight_majority_does_not_change_the_tracked_communicator() {
    let mut rank = Rank::new(&[4, 4]);
    rank.run(&[(1, 5), (2, 6)], 10);
    rank.issue(2, 6);
    assert!(!rank.iteration_pattern.reconsider());
}

#[test]
fn a_long_running_process_is_tracked_with_little_memory_and_a_new_program_is_still_found() {
    let mut rank = Rank::new(&[2, 2]);
    rank.run(&[(1, 5), (1, 6), (2, 7)], 10_000);
    let role = rank.role();
    assert!(rank.iteration_pattern.history.len() <= RECENT);
    assert!(rank.iteration_pattern.history.capacity() <= 2 * RECENT);
    rank.run(&[(1, 8), (1, 9), (1, 10), (2, 7)], 3_000);
    let mut fresh = Rank::new(&[2, 2]);
    fresh.run(&[(1, 8), (1, 9), (1, 10), (2, 7)], 200);
    assert_ne!(rank.role(), role);
    assert_eq!(rank.role(), fresh.role());
}

#[test]
fn an_iteration_that_was_never_counted_completely_is_unknown() {
    let mut rank = Rank::new(&[2]);
    rank.run(&[(1, 5), (1, 6)], 200);
    assert!(rank.iteration_pattern.pattern().is_some());
    // Longer than the history that is kept of a process with short iterations.
    let mut long = vec![(1, 7); 1_500];
    long.push((1, 8));
    let mut was_uncounted = false;
    for _ in 0..8 {
        for (comm, count) in &long {
            rank.issue(*comm, *count);
            let is_counted = rank.iteration_pattern.profile().is_some();
            was_uncounted |= !is_counted && rank.iteration_pattern.tracker.pattern().is_some();
            assert_eq!(rank.iteration_pattern.pattern().is_some(), is_counted);
        }
    }
    assert!(was_uncounted);
}
