//! Production jobs of `ByteDance`: one row per operation of each pipeline worker (source: `testdata/README.md`).
//!
//! A worker (replica, stage) becomes a rank. Its rows become the events that an agent with GPU
//! timestamps would send, one block per step. The trace holds a sample of the job's steps, which
//! are laid end to end. Waits are the durations of the data parallel operations and of the
//! mixed-role embedding operation; time blocked is the union of all communication of the worker.

use std::path::Path;
use std::sync::Arc;

use duckdb::{Connection, Row};
use echo_core::ids::{CommId, RankInJob, RoleId};
use echo_core::model::event::{
    Block, Event, OpSample, Origin, Reading, SeqRange, Source, StoredEvent,
};
use echo_core::units::Nanos;
use fleet_proto::metric;

use super::agent::EPOCH;
use super::simulation::Delivery;
use super::tally::{Tally, is_sampled, nanos};

/// Operations of a data parallel communicator in a step: an all-gather and a reduce-scatter.
const DP_OPS: u64 = 2;

/// Sampling of single operations: one in this many.
const SAMPLE_MOD: u32 = 8;

/// One row per step and worker, milliseconds; `$path` is the file.
const WORKERS: &str = "
WITH ops AS (
  SELECT dense_rank() OVER (ORDER BY step) - 1 AS step, dp_rank, stage, optype,
         start_ts * 1000.0 AS begins, (start_ts + duration) * 1000.0 AS ends
  FROM read_parquet($path)
), waits AS (
  SELECT *, max(ends) OVER (PARTITION BY step, dp_rank, stage ORDER BY begins, ends
                            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS covered
  FROM ops
  WHERE optype NOT IN ('forward-compute', 'backward-compute', 'optimizer', 'gc')
), busy AS (
  SELECT step, dp_rank, stage, sum(ends - begins) AS busy_ms
  FROM ops
  WHERE optype IN ('forward-compute', 'backward-compute')
  GROUP BY step, dp_rank, stage
), steps AS (
  SELECT step, max(ends) AS step_ms FROM ops GROUP BY step
)
SELECT step::UINTEGER, dp_rank::UINTEGER, stage::UINTEGER,
       any_value(step_ms)::DOUBLE,
       sum(greatest(0, ends - greatest(begins, coalesce(covered, begins))))::DOUBLE,
       coalesce(sum(ends - begins) FILTER (optype = 'params-all-gather'), 0)::DOUBLE,
       coalesce(sum(ends - begins) FILTER (optype = 'grads-reduce-scatter'), 0)::DOUBLE,
       (sum(ends - begins) FILTER (optype = 'embedding-grads-all-reduce'))::DOUBLE,
       any_value(busy_ms)::DOUBLE
FROM waits JOIN steps USING (step) JOIN busy USING (step, dp_rank, stage)
GROUP BY step, dp_rank, stage
ORDER BY step, dp_rank, stage";

/// One worker in one step.
#[derive(Debug, Clone, Copy)]
struct Worker {
    step: u32,
    replica: u32,
    stage: u32,
    step_ms: f64,
    blocked_ms: f64,
    gather_ms: f64,
    scatter_ms: f64,
    /// Embedding operation of the first and the last stage.
    embedding_ms: Option<f64>,
    busy_ms: f64,
}

impl Worker {
    fn read(row: &Row<'_>) -> duckdb::Result<Self> {
        Ok(Self {
            step: row.get(0)?,
            replica: row.get(1)?,
            stage: row.get(2)?,
            step_ms: row.get(3)?,
            blocked_ms: row.get(4)?,
            gather_ms: row.get(5)?,
            scatter_ms: row.get(6)?,
            embedding_ms: row.get(7)?,
            busy_ms: row.get(8)?,
        })
    }
}

/// Reads the trace as deliveries, step by step.
pub fn read(path: &Path) -> anyhow::Result<Vec<Delivery>> {
    #[expect(
        clippy::disallowed_methods,
        reason = "reads a file of test data, not Echo's database"
    )]
    let database = Connection::open_in_memory()?;
    let path = path.to_string_lossy();
    let mut query = database.prepare(WORKERS)?;
    let rows = query.query_map([path.as_ref()], Worker::read)?;
    let workers: Vec<Worker> = rows.collect::<Result<_, _>>()?;
    let count = |of: fn(&Worker) -> u32| workers.iter().map(of).max().map_or(0, |last| last + 1);
    let stages = count(|worker| worker.stage);
    let n_ranks = stages * count(|worker| worker.replica);
    let mut begin_ms = 0.0;
    let mut deliveries = Vec::new();
    for step in workers.chunk_by(|one, next| one.step == next.step) {
        let step_ms = step.first().map_or(0.0, |worker| worker.step_ms);
        let mut events = Vec::new();
        for worker in step {
            let rank = worker.replica * stages + worker.stage;
            let origin = origin(rank, n_ranks)?;
            events.extend(points(worker, &Arc::new(origin), begin_ms)?);
        }
        begin_ms += step_ms;
        let received = EPOCH.offset(nanos(begin_ms));
        let stored = events.into_iter().map(|event| StoredEvent {
            id: 0,
            received,
            event,
        });
        let step = step.first().map_or(0, |worker| worker.step + 1);
        deliveries.push(Delivery {
            step,
            events: stored.collect(),
        });
    }
    Ok(deliveries)
}

fn origin(rank: u32, n_ranks: u32) -> anyhow::Result<Origin> {
    Ok(Origin {
        cluster: "bytedance".parse()?,
        node: format!("node-{rank}").parse()?,
        rank: Some(RankInJob::new(i64::from(rank), Some(i64::from(n_ranks)))?),
        job: Some("job".parse()?),
        gpu_model: None,
        gpu_uuid: None,
        namespace: None,
        pod: None,
    })
}

/// Fields shared by the points of one worker about one step.
struct Step<'a> {
    worker: &'a Worker,
    origin: &'a Arc<Origin>,
    begin: Nanos,
    end: Nanos,
}

/// Events of the agent of one worker about a step that began `begin_ms` after the first.
fn points(worker: &Worker, origin: &Arc<Origin>, begin_ms: f64) -> anyhow::Result<Vec<Event>> {
    let (begin, end) = (nanos(begin_ms), nanos(begin_ms + worker.step_ms));
    let (begin, end) = (EPOCH.offset(begin), EPOCH.offset(end));
    let step = Step {
        worker,
        origin,
        begin,
        end,
    };
    let number = u64::from(worker.step);
    let dp = CommId::new(0x0d00_0000_0000 + u64::from(worker.stage));
    let primary = step.block(dp, "ReduceScatter", DP_OPS)?;
    let gather = step.block(dp, "AllGather", DP_OPS)?;
    let mut points = vec![
        step.wait(gather, number * DP_OPS, worker.gather_ms)?,
        step.wait(primary.clone(), number * DP_OPS + 1, worker.scatter_ms)?,
    ];
    if let Some(embedding_ms) = worker.embedding_ms {
        let comm = CommId::new(0xe000_0000_0000 + u64::from(worker.replica));
        points.push(step.wait(step.block(comm, "AllReduce", 1)?, number, embedding_ms)?);
    }
    points.push(step.point(metric::BLOCKED, one(worker.blocked_ms), primary.clone())?);
    points.push(step.point(metric::BUSY, one(worker.busy_ms), primary.clone())?);
    points.push(step.point(
        metric::PERIOD,
        Reading::Double(worker.step_ms),
        primary.clone(),
    )?);
    points.push(step.point(metric::ARRIVAL, Tally::default().reading(), primary)?);
    Ok(points)
}

impl Step<'_> {
    fn block(&self, comm: CommId, op: &str, ops: u64) -> anyhow::Result<Block> {
        let step = u64::from(self.worker.step);
        Ok(Block {
            comm,
            op: Some(op.parse()?),
            seqs: SeqRange::new(step * ops, (step + 1) * ops - 1),
            role: Some(RoleId::new(7 + u64::from(self.worker.stage))),
            iterations: Some(1.0),
            anchor: None,
            source: Source::Device,
        })
    }

    fn point(&self, name: &str, reading: Reading, about: Block) -> anyhow::Result<Event> {
        Ok(Event {
            timestamp: self.end,
            start: Some(self.begin),
            origin: Arc::clone(self.origin),
            metric: name.parse()?,
            unit: Arc::from("ms"),
            reading,
            block: Some(about),
            attrs: Arc::from("{}"),
            samples: Vec::new(),
        })
    }

    fn wait(&self, about: Block, seq: u64, value: f64) -> anyhow::Result<Event> {
        let timestamp = self.end;
        let sample = OpSample {
            seq,
            value,
            timestamp,
        };
        let samples = is_sampled(about.comm, seq, SAMPLE_MOD).then_some(sample);
        let event = self.point(metric::WAIT, one(value), about)?;
        Ok(Event {
            samples: samples.into_iter().collect(),
            ..event
        })
    }
}

/// A histogram of one sample.
fn one(value: f64) -> Reading {
    let mut tally = Tally::default();
    tally.add(value);
    tally.reading()
}
