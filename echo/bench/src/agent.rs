//! Simulated agents of a job: events as in the wire contract, block by block.

use std::sync::Arc;

use echo_core::ids::{CommId, IdError, MetricName, Op, RankInJob};
use echo_core::model::event::{
    Anchor, Block, Event, OpSample, Origin, Reading, SeqRange, Source, StoredEvent,
};
use echo_core::units::Nanos;
use fleet_proto::metric;

use super::case::{Case, Sources};
use super::job::{DP_OPS, RankStep, TP_OPS};
use super::mesh::{Mesh, NODE_SIZE};
use super::tally::{Tally, is_sampled, nanos};

/// Instant at which every simulated job begins.
pub const EPOCH: Nanos = Nanos::new(1_790_000_000_000_000_000);

/// Sampling of single operations: one in this many.
const SAMPLE_MOD: u32 = 8;

/// Names of metrics and operations, created once.
#[derive(Debug)]
struct Names {
    gap: MetricName,
    blocked: MetricName,
    period: MetricName,
    wait: MetricName,
    queue: MetricName,
    busy: MetricName,
    arrival: MetricName,
    dp_op: Op,
    tp_op: Op,
    unit: Arc<str>,
    attrs: Arc<str>,
}

impl Names {
    fn new() -> Result<Self, IdError> {
        Ok(Self {
            gap: metric::HOST_GAP.parse()?,
            blocked: metric::BLOCKED.parse()?,
            period: metric::PERIOD.parse()?,
            wait: metric::WAIT.parse()?,
            queue: metric::QUEUE.parse()?,
            busy: metric::BUSY.parse()?,
            arrival: metric::ARRIVAL.parse()?,
            dp_op: "AllReduce".parse()?,
            tp_op: "AllGather".parse()?,
            unit: Arc::from("ms"),
            attrs: Arc::from("{}"),
        })
    }
}

/// Measurements of one rank in the open block.
#[derive(Debug, Default)]
struct RankBlock {
    gap: Tally,
    host_blocked: Tally,
    device_blocked: Tally,
    queue: Tally,
    busy: Tally,
    arrival: Tally,
    tp: Tally,
    dp: Tally,
    first_gap: Option<f64>,
    tp_samples: Vec<OpSample>,
    dp_samples: Vec<OpSample>,
}

/// The agents of all nodes.
#[derive(Debug)]
pub struct Agents {
    mesh: Mesh,
    sources: Sources,
    one_in: u32,
    attached: bool,
    enqueue_ms: f64,
    names: Names,
    origins: Vec<Arc<Origin>>,
    skews: Vec<i64>,
    ranks: Vec<RankBlock>,
    /// First step of the open block.
    first_step: u32,
    steps: u32,
    begin_ms: f64,
    now_ms: f64,
    next_id: u64,
}

impl Agents {
    /// Creates the agents of a job that needs `enqueue_ms` to enqueue the work of a step.
    pub fn new(case: &Case, enqueue_ms: f64) -> Result<Self, IdError> {
        let n_ranks = case.mesh.n_ranks();
        let origin = |rank: u32| {
            Ok(Arc::new(Origin {
                cluster: "bench".parse()?,
                node: format!("node-{}", rank / NODE_SIZE).parse()?,
                rank: Some(RankInJob::new(i64::from(rank), Some(i64::from(n_ranks)))?),
                job: Some("job".parse()?),
                gpu_model: Some(Arc::from("NVIDIA H200")),
                gpu_uuid: None,
                namespace: None,
                pod: None,
            }))
        };
        let skew = |rank: u32| {
            // Spread in both directions, the same in every run.
            let share = f64::from((rank / NODE_SIZE.min(n_ranks / 2).max(1) * 7) % 11) / 5.0 - 1.0;
            nanos(case.telemetry.skew_ms * share)
        };
        Ok(Self {
            mesh: case.mesh,
            sources: case.sources,
            one_in: case.telemetry.one_in,
            attached: case.telemetry.attached,
            enqueue_ms,
            names: Names::new()?,
            origins: (0..n_ranks).map(origin).collect::<Result<_, IdError>>()?,
            skews: (0..n_ranks).map(skew).collect(),
            ranks: (0..n_ranks).map(|_| RankBlock::default()).collect(),
            first_step: 0,
            steps: 0,
            begin_ms: 0.0,
            now_ms: 0.0,
            next_id: 0,
        })
    }

    /// Records the measurements of a step that lasted `step_ms`.
    pub fn measure(&mut self, ranks: &[RankStep], step_ms: f64) {
        let end = EPOCH.offset(nanos(self.now_ms + step_ms));
        let since_begin = self.now_ms - self.begin_ms;
        let (mesh, step) = (self.mesh, self.first_step + self.steps);
        for ((block, seen), rank) in self.ranks.iter_mut().zip(ranks).zip(0..) {
            block.gap.add(seen.gap);
            block.host_blocked.add(seen.host_blocked);
            block.device_blocked.add(seen.device_blocked);
            block.queue.add(seen.queue);
            block.busy.add(seen.compute);
            let first = *block.first_gap.get_or_insert(seen.gap);
            if self.sources.has_host() {
                let entry = since_begin + seen.gap - first;
                block
                    .arrival
                    .add_evenly(entry, self.enqueue_ms, primary_ops(mesh));
            }
            if !self.sources.has_device() {
                continue;
            }
            let dp = Sampling {
                comm: mesh.dp_comm(rank),
                first_seq: u64::from(step) * DP_OPS as u64,
                one_in: self.one_in,
                timestamp: end,
            };
            dp.add(&seen.dp, &mut block.dp, &mut block.dp_samples);
            if mesh.tp > 1 {
                let tp = Sampling {
                    comm: mesh.tp_comm(rank),
                    first_seq: u64::from(step) * TP_OPS as u64,
                    ..dp
                };
                tp.add(&seen.tp, &mut block.tp, &mut block.tp_samples);
            }
        }
        self.steps += 1;
        self.now_ms += step_ms;
    }

    /// Closes the block on all ranks and returns its events.
    pub fn close(&mut self) -> Vec<StoredEvent> {
        let mut events = Vec::with_capacity(self.ranks.len() * 8);
        let ranks = std::mem::take(&mut self.ranks);
        for (block, rank) in ranks.iter().zip(0..) {
            self.report(rank, block, &mut events);
        }
        self.ranks = ranks.iter().map(|_| RankBlock::default()).collect();
        self.first_step += self.steps;
        self.steps = 0;
        self.begin_ms = self.now_ms;
        let received = EPOCH.offset(nanos(self.now_ms + 5.0));
        let stored = events.into_iter().map(|event| {
            self.next_id += 1;
            StoredEvent {
                id: self.next_id,
                received,
                event,
            }
        });
        stored.collect()
    }

    /// Adds the points of one rank in the order of an agent: arrivals last.
    fn report(&self, rank: u32, block: &RankBlock, events: &mut Vec<Event>) {
        let begin = events.len();
        let mut send = |metric: &MetricName, reading: Reading, about: Block| {
            events.extend(self.event(rank, metric, reading, about));
        };
        let (names, mesh) = (&self.names, self.mesh);
        let host = self.primary(rank, Source::Host);
        let device = self.primary(rank, Source::Device);
        let period_ms = (self.now_ms - self.begin_ms) / f64::from(self.steps.max(1));
        if self.sources.has_host() {
            send(&names.gap, block.gap.reading(), host.clone());
            send(&names.blocked, block.host_blocked.reading(), host.clone());
            send(&names.period, Reading::Double(period_ms), host.clone());
        }
        if self.sources.has_device() {
            let comm = mesh.dp_comm(rank);
            let dp = self.about(comm, &names.dp_op, rank, Source::Device);
            if mesh.tp > 1 {
                send(&names.wait, block.tp.reading(), device.clone());
            }
            send(&names.wait, block.dp.reading(), dp);
            send(
                &names.blocked,
                block.device_blocked.reading(),
                device.clone(),
            );
            send(&names.queue, block.queue.reading(), device.clone());
            send(&names.busy, block.busy.reading(), device.clone());
            if !self.sources.has_host() {
                send(&names.period, Reading::Double(period_ms), device.clone());
            }
        }
        let last = if self.sources.has_host() {
            host
        } else {
            device
        };
        let anchor = last
            .seqs
            .filter(|_| self.sources.has_host())
            .map(|seqs| Anchor {
                seq: seqs.first().saturating_sub(1),
                offset_ms: block.first_gap.unwrap_or(0.0),
            });
        send(
            &names.arrival,
            block.arrival.reading(),
            Block { anchor, ..last },
        );
        let (_, own) = events.split_at_mut(begin);
        self.attach_samples(rank, block, own);
    }

    /// Attaches sampled operations to the waits of their communicator.
    fn attach_samples(&self, rank: u32, block: &RankBlock, own: &mut [Event]) {
        for event in own
            .iter_mut()
            .filter(|event| event.metric == self.names.wait)
        {
            let comm = event.block.as_ref().map(|about| about.comm);
            event.samples = if comm == Some(self.mesh.dp_comm(rank)) {
                block.dp_samples.clone()
            } else {
                block.tp_samples.clone()
            };
        }
    }

    /// Block covered by the points about the busiest communicator of the rank.
    fn primary(&self, rank: u32, source: Source) -> Block {
        let (comm, op) = if self.mesh.tp > 1 {
            (self.mesh.tp_comm(rank), &self.names.tp_op)
        } else {
            (self.mesh.dp_comm(rank), &self.names.dp_op)
        };
        self.about(comm, op, rank, source)
    }

    fn about(&self, comm: CommId, op: &Op, rank: u32, source: Source) -> Block {
        let ops = if *op == self.names.tp_op {
            TP_OPS
        } else {
            DP_OPS
        } as u64;
        let first = u64::from(self.first_step) * ops;
        let knows_numbers = !(self.attached && rank == 1);
        let seqs = SeqRange::new(first, first + u64::from(self.steps) * ops - 1);
        Block {
            comm,
            op: Some(op.clone()),
            seqs: seqs.filter(|_| knows_numbers),
            role: Some(self.mesh.role(rank)),
            iterations: Some(f64::from(self.steps)),
            anchor: None,
            source,
        }
    }

    fn event(
        &self,
        rank: u32,
        metric: &MetricName,
        reading: Reading,
        about: Block,
    ) -> Option<Event> {
        let index = rank as usize;
        let skew = self.skews.get(index).copied()?;
        let instant = |ms: f64| EPOCH.offset(nanos(ms)).offset(skew);
        Some(Event {
            timestamp: instant(self.now_ms),
            start: Some(instant(self.begin_ms)),
            origin: Arc::clone(self.origins.get(index)?),
            metric: metric.clone(),
            unit: Arc::clone(&self.names.unit),
            reading,
            block: Some(about),
            attrs: Arc::clone(&self.names.attrs),
            samples: Vec::new(),
        })
    }
}

/// Operations of the busiest communicator in a step.
const fn primary_ops(mesh: Mesh) -> u64 {
    if mesh.tp > 1 {
        TP_OPS as u64
    } else {
        DP_OPS as u64
    }
}

/// Sampling of the operations of one communicator in a step.
#[derive(Debug, Clone, Copy)]
struct Sampling {
    comm: CommId,
    first_seq: u64,
    one_in: u32,
    timestamp: Nanos,
}

impl Sampling {
    /// Adds the operations that the agent observes, and picks the sampled ones.
    fn add(self, waits: &[f64], tally: &mut Tally, samples: &mut Vec<OpSample>) {
        for (value, seq) in waits.iter().zip(self.first_seq..) {
            if !is_sampled(self.comm, seq, self.one_in) {
                continue;
            }
            tally.add(*value);
            if is_sampled(self.comm, seq, SAMPLE_MOD) {
                samples.push(OpSample {
                    seq,
                    value: *value,
                    timestamp: self.timestamp,
                });
            }
        }
    }
}
