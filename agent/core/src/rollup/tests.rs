use super::*;
use crate::correlate::{Correlator, OpRef};
use crate::discover::CommTable;
use crate::event::{CommInit, Op, Operation};
use crate::exemplar::DEFAULT_MODULUS;
use crate::signal::Summary;

pub(super) const MS: u64 = 1_000_000;

/// Process with two communicators, of which the first is the busiest.
pub(super) struct Rank {
    table: CommTable,
    correlator: Correlator,
    iteration_pattern: IterationPattern,
    rollup: Rollup,
}

impl Rank {
    pub(super) fn new(exponent: u32) -> Self {
        let mut table = CommTable::default();
        for unique_id in [1, 2] {
            table.record_init(
                1,
                CommInit {
                    nranks: 4,
                    rank: 3,
                    unique_id,
                    comm: None,
                },
            );
        }
        let primary = table.find(1, 1).unwrap();
        table.find(1, 2).unwrap();
        let rollup = Rollup::new(primary, BTreeMap::from([(primary, exponent)]), u64::MAX);
        Self {
            table,
            correlator: Correlator::default(),
            iteration_pattern: IterationPattern::default(),
            rollup,
        }
    }

    pub(super) fn feed(&mut self, observation: Observation) {
        if let Observation::Issued(issued) = observation {
            self.iteration_pattern.observe(issued, self.table.comms());
        }
        let view = View {
            comms: self.table.comms(),
            iteration_pattern: &self.iteration_pattern,
            sample_mod: DEFAULT_MODULUS,
        };
        self.rollup.observe(&observation, view);
    }

    pub(super) fn issue(&mut self, comm: u64, at_ms: u64) -> OpRef {
        self.issue_op(comm, at_ms, Op::AllReduce)
    }

    fn issue_op(&mut self, comm: u64, at_ms: u64, op: Op) -> OpRef {
        let index = self.table.find(1, comm).unwrap();
        let operation = Operation {
            op,
            count: 8,
            datatype: 7,
            comm,
            seq: None,
            peer: None,
        };
        let observation = self.correlator.issue(index, 4, operation, at_ms * MS);
        self.feed(observation);
        let Observation::Issued(issued) = observation else {
            panic!()
        };
        issued.at
    }

    fn wait(&mut self, from_ms: u64, to_ms: u64) {
        let began = self.correlator.begin_wait(1);
        self.feed(began);
        let ended = self.correlator.end_wait(1, from_ms * MS, to_ms * MS);
        self.feed(ended);
    }

    pub(super) fn sample(&mut self, sample: &Sample) {
        self.rollup.add_sample(sample);
    }

    /// Marks the open blocks as broken.
    pub(super) fn lose(&mut self) {
        self.rollup.on_loss();
    }

    /// Returns the points since the last call.
    pub(super) fn points(&mut self) -> Vec<Point> {
        self.rollup.take_points()
    }

    pub(super) fn finish(mut self) -> Vec<Point> {
        let view = View {
            comms: self.table.comms(),
            iteration_pattern: &self.iteration_pattern,
            sample_mod: DEFAULT_MODULUS,
        };
        self.rollup.finish(view);
        self.rollup.take_points()
    }
}

pub(super) fn ranges(points: &[Point], metric: &str) -> Vec<(u64, u64)> {
    let of_metric = points.iter().filter(|point| point.metric == metric);
    of_metric
        .map(|point| (point.block.seq_first, point.block.seq_last))
        .collect()
}

pub(super) fn samples(points: &[Point], metric: &str) -> Vec<(u64, Summary)> {
    let of_metric = points.iter().filter(|point| point.metric == metric);
    let samples = of_metric.map(|point| match &point.value {
        Value::Summary { summary, .. } => (point.block.seq_first, *summary),
        _ => panic!("only a summary has samples"),
    });
    samples.collect()
}

#[test]
fn blocks_end_at_multiples_of_their_size_and_the_last_one_at_the_end() {
    let mut rank = Rank::new(2);
    for at_ms in 0..10 {
        rank.issue(1, at_ms);
    }
    assert_eq!(
        ranges(&rank.finish(), metric::ARRIVAL),
        [(0, 3), (4, 7), (8, 9)]
    );
}

#[test]
fn a_gap_counts_in_the_block_of_its_collective_and_a_wait_in_the_block_of_its_return() {
    let mut rank = Rank::new(1);
    rank.issue(1, 0);
    rank.issue(1, 1);
    rank.wait(2, 10);
    rank.issue(1, 13);
    let points = rank.finish();
    assert_eq!(samples(&points, metric::BLOCKED), [(0, one(8.0))]);
    assert_eq!(samples(&points, metric::HOST_GAP), [(2, one(3.0))]);
    assert_eq!(samples(&points, metric::WAIT), [(0, one(8.0))]);
}

#[test]
fn a_gap_that_ends_at_another_communicator_counts_in_the_open_block() {
    let mut rank = Rank::new(1);
    rank.issue(1, 0);
    rank.wait(2, 10);
    rank.issue(2, 14);
    assert_eq!(samples(&rank.finish(), metric::HOST_GAP), [(0, one(4.0))]);
}

#[test]
fn arrivals_are_relative_to_the_first_operation_and_anchored_to_the_last_completion() {
    let mut rank = Rank::new(1);
    rank.issue(1, 0);
    rank.wait(2, 10);
    rank.issue(1, 12);
    rank.issue(1, 15);
    rank.issue(1, 18);
    let points = rank.finish();
    let anchors: Vec<Option<Anchor>> = points
        .iter()
        .filter_map(|point| match &point.value {
            Value::Summary { anchor, .. } if point.metric == metric::ARRIVAL => Some(*anchor),
            _ => None,
        })
        .collect();
    assert_eq!(
        anchors,
        [
            None,
            Some(Anchor {
                seq: 0,
                offset_ms: 5.0
            })
        ]
    );
    let [_, (2, second)] = samples(&points, metric::ARRIVAL)[..] else {
        panic!()
    };
    assert_eq!((second.count, second.sum_ms, second.max_ms), (2, 3.0, 3.0));
}

#[test]
fn waits_are_reported_by_communicator_and_operation() {
    let mut rank = Rank::new(3);
    rank.issue(1, 0);
    rank.wait(1, 3);
    rank.issue_op(1, 4, Op::Broadcast);
    rank.wait(5, 9);
    rank.issue(2, 10);
    rank.wait(11, 12);
    let points = rank.finish();
    let mut waits: Vec<(u64, Op, f64)> = points
        .iter()
        .filter(|point| point.metric == metric::WAIT)
        .map(|point| match &point.value {
            Value::Summary { summary, .. } => {
                (point.block.comm.to_bits(), point.block.op, summary.sum_ms)
            }
            _ => panic!(),
        })
        .collect();
    waits.sort_by_key(|(comm, op, _)| (*comm, *op));
    let (reduce, broadcast) = (Op::AllReduce, Op::Broadcast);
    assert_eq!(
        waits,
        [(1, reduce, 2.0), (1, broadcast, 4.0), (2, reduce, 1.0)]
    );
}

#[test]
fn the_period_is_the_mean_between_the_last_completions_of_two_blocks() {
    let mut rank = Rank::new(4);
    // One operation and one wait per iteration of 7 ms; the pattern is known after 128 iterations.
    for at in 0..160 {
        rank.issue(1, at * 7);
        rank.wait(at * 7 + 1, at * 7 + 5);
    }
    let points = rank.finish();
    let periods: Vec<&Point> = points
        .iter()
        .filter(|point| point.metric == metric::PERIOD)
        .collect();
    // Blocks closed before the pattern was known have none.
    let [first, ..] = periods[..] else {
        panic!("{periods:?}")
    };
    assert_eq!(first.value, Value::Gauge(7.0));
    assert_eq!((first.block.seq_first, first.block.seq_last), (112, 127));
    assert_eq!(first.block.iterations, Some(16.0));
    assert_eq!(
        (first.start_ns, first.time_ns),
        ((111 * 7 + 5) * MS, (127 * 7 + 5) * MS)
    );
}

#[test]
fn a_block_identifies_its_communicator_and_rank() {
    let mut rank = Rank::new(1);
    rank.issue(1, 5);
    rank.issue(1, 6);
    let points = rank.finish();
    let [point] = &points[..] else {
        panic!("{points:?}")
    };
    assert_eq!((point.start_ns, point.time_ns), (5 * MS, 6 * MS));
    assert_eq!((point.block.comm_rank, point.block.comm_nranks), (3, 4));
    assert_eq!((point.block.iterations, point.block.role), (None, None));
}

fn one(sample_ms: f64) -> Summary {
    Summary {
        count: 1,
        sum_ms: sample_ms,
        min_ms: sample_ms,
        max_ms: sample_ms,
    }
}
