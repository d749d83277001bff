//! Operations of graphs in combination with called ones.

use fleet_proto::metric;

use crate::event::{Call, CallKind, CommInit, GpuOperation, GpuSpan, Op, Operation, Process};
use crate::pipeline::{BlockRule, Ending, Pipeline};
use crate::signal::{Source, Value};

const US: u64 = 1_000;

/// Number of operations of the graph.
const GRAPH: u64 = 16;

/// Process that issues operations, captures them and replays them.
struct Job {
    pipeline: Pipeline,
    now_ns: u64,
    /// Number of operations that ran.
    n_ran: u64,
    /// Number of operations that ran and were called.
    n_eager: u64,
}

impl Job {
    /// Creates a job whose communicator creation was seen.
    fn new() -> Self {
        let mut job = Self::late();
        job.call(CallKind::CommInit(CommInit {
            nranks: 2,
            rank: 0,
            unique_id: 9,
            comm: None,
        }));
        job
    }

    /// Creates a job that has created its communicator and captured its graphs before the agent
    /// starts.
    fn late() -> Self {
        let process = Process {
            pid: 1,
            rank: 0,
            world_size: 2,
        };
        let rule = BlockRule {
            target_ns: 1e9,
            exponent: Some(4),
        };
        Self {
            pipeline: Pipeline::new(process, rule),
            now_ns: 0,
            n_ran: 0,
            n_eager: 0,
        }
    }

    fn call(&mut self, kind: CallKind) {
        self.now_ns += 10 * US;
        self.pipeline.on_call(&Call {
            ts_ns: self.now_ns,
            dur_ns: US,
            pid: 1,
            tid: 1,
            kind,
        });
    }

    fn all_reduce(&mut self) {
        self.call(CallKind::Operation(Operation {
            op: Op::AllReduce,
            count: 8,
            datatype: 7,
            comm: 5,
            seq: None,
            peer: None,
        }));
    }

    /// Reports the row of the next operation, with the number that NCCL has reached by calls.
    fn row(&mut self) {
        let host_ns = self.now_ns;
        self.now_ns += 10 * US;
        self.pipeline.on_gpu_operation(&GpuOperation {
            ts_ns: self.now_ns,
            pid: 1,
            comm_id: 77,
            rank: 0,
            nranks: 2,
            nth: 0,
            op: Op::AllReduce,
            root: None,
            seq: self.n_ran,
            nccl_seq: Some(self.n_eager),
            count: 8,
            host_ns,
            timer: Some(GpuSpan {
                start_ns: host_ns + 2 * US,
                stop_ns: self.now_ns,
            }),
            lost: 0,
        });
        self.n_ran += 1;
    }

    /// Skips an operation that the plugin did not report.
    fn skip_row(&mut self) {
        self.n_ran += 1;
    }

    fn eager(&mut self, n: u64) {
        for _ in 0..n {
            self.all_reduce();
            self.row();
            self.n_eager += 1;
        }
    }

    fn capture(&mut self) {
        (0..GRAPH).for_each(|_| self.all_reduce());
    }

    fn replay(&mut self, times: u64) {
        (0..times * GRAPH).for_each(|_| self.row());
    }

    /// Returns the blocks of a source: first and last operation, and the number of counted
    /// operations.
    fn blocks(&mut self, metric: &str, source: Source) -> Vec<(u64, u64, u64)> {
        self.pipeline.finish(Ending::Complete);
        let points = self.pipeline.take_points();
        let own = points
            .iter()
            .filter(|point| (point.metric, point.block.source) == (metric, source));
        own.map(|point| match &point.value {
            Value::Summary { summary, .. } => {
                (point.block.seq_first, point.block.seq_last, summary.count)
            }
            other => panic!("{other:?}"),
        })
        .collect()
    }
}

/// Returns the complete blocks from one operation to another.
fn whole(from: u64, to: u64) -> Vec<(u64, u64, u64)> {
    let firsts = (from..to).step_by(16);
    firsts.map(|first| (first, first + 15, 16)).collect()
}

#[test]
fn replayed_operations_are_numbered_from_the_last_completed_one() {
    let mut job = Job::new();
    job.eager(32);
    // The second graph is captured before the first one runs.
    job.capture();
    job.capture();
    job.replay(20);
    let blocks = job.blocks(metric::ARRIVAL, Source::Host);
    assert_eq!(blocks, whole(32, 32 + 20 * GRAPH));
}

#[test]
fn every_block_of_replayed_operations_has_the_times_of_all_of_them() {
    let mut job = Job::new();
    job.capture();
    job.replay(20);
    let waits = job.blocks(metric::WAIT, Source::Device);
    assert_eq!(waits, whole(0, 20 * GRAPH));
}

#[test]
fn calls_after_a_replay_continue_its_numbers() {
    let mut job = Job::new();
    job.eager(16);
    job.capture();
    for _ in 0..10 {
        job.replay(1);
        job.eager(16);
    }
    let blocks = job.blocks(metric::ARRIVAL, Source::Host);
    assert_eq!(blocks, whole(16, 16 + 20 * GRAPH));
    assert_eq!(job.pipeline.broken_blocks(), 0);
}

#[test]
fn a_missing_row_among_replayed_operations_breaks_no_block() {
    let mut job = Job::new();
    job.capture();
    job.replay(4);
    job.row();
    job.skip_row();
    (2..GRAPH).for_each(|_| job.row());
    job.replay(3);
    let mut expected = whole(0, 8 * GRAPH);
    expected[4].2 -= 1;
    assert_eq!(job.blocks(metric::ARRIVAL, Source::Host), expected);
    assert_eq!(job.pipeline.broken_blocks(), 0);
}

#[test]
fn operations_of_a_graph_captured_before_the_agent_started_are_tracked_by_their_rows() {
    let mut job = Job::late();
    job.n_ran = 1_000 * GRAPH;
    job.replay(20);
    let blocks = job.blocks(metric::ARRIVAL, Source::Host);
    // The first row is inconclusive; the second one shows the replay, since its number did not
    // advance. Its block is incomplete.
    let from = 1_001 * GRAPH;
    let seen: Vec<_> = blocks
        .into_iter()
        .filter(|(first, ..)| *first >= from)
        .collect();
    assert_eq!(seen, whole(from, 1_020 * GRAPH));
}
