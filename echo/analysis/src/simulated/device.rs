//! Simulated job whose GPUs report waits: several communicators, several roles.

use echo_core::ids::{CommId, RoleId};
use echo_core::model::event::{Event, OpSample, Reading, SeqRange, Source, StoredEvent, Summary};
use fleet_proto::metric;

use super::{Job, OPS_PER_BLOCK, OPS_PER_ITERATION, instant};

/// One communicator of the job.
#[derive(Debug, Clone)]
pub struct Ring {
    /// Hash of its identifier.
    pub comm: u64,
    /// The ranks that belong to it.
    pub ranks: Vec<u32>,
}

/// A job with a GPU for each rank.
#[derive(Debug, Clone)]
pub struct Gpus {
    /// Role of each rank.
    pub roles: Vec<u64>,
    /// Communicators; the first that a rank is in is its busiest.
    pub rings: Vec<Ring>,
}

/// Measurements of one rank in one block of four iterations with ten operations each.
#[derive(Debug, Clone, Copy)]
pub struct Gpu {
    /// Time inside each operation of the busiest communicator, milliseconds.
    pub inside_ms: f64,
    /// Time inside the longest operation of the busiest communicator in each iteration,
    /// milliseconds; `None` if all take equally long.
    pub longest_ms: Option<f64>,
    /// Time inside each operation of another kind on the busiest communicator, milliseconds; `None`
    /// when there is one kind.
    pub second_ms: Option<f64>,
    /// Time inside each operation of the other communicators, milliseconds.
    pub elsewhere_ms: f64,
    /// Time blocked in each iteration, milliseconds.
    pub blocked_ms: Option<f64>,
    /// Host gap of each iteration, milliseconds.
    pub gap_ms: Option<f64>,
    /// Time that work waits in the queue, milliseconds.
    pub queue_ms: Option<f64>,
    /// Time that the GPU computes in each iteration, milliseconds.
    pub busy_ms: Option<f64>,
    /// Time inside the first operation of an iteration, by the iteration's number; `None` when none
    /// is sampled.
    pub sampled_ms: Option<fn(u64, u32) -> f64>,
    /// Duration of an iteration, milliseconds.
    pub period_ms: f64,
}

impl Gpu {
    /// A healthy rank of a job with iterations of 50 ms.
    pub const HEALTHY: Self = Self {
        inside_ms: 3.0,
        longest_ms: None,
        second_ms: None,
        elsewhere_ms: 3.0,
        blocked_ms: Some(30.0),
        gap_ms: None,
        queue_ms: None,
        busy_ms: None,
        sampled_ms: None,
        period_ms: 50.0,
    };

    /// A late rank for which its peers wait by `lag_ms` per iteration.
    pub fn late_by(self, lag_ms: f64) -> Self {
        Self {
            inside_ms: self.inside_ms - lag_ms / OPS_PER_ITERATION as f64,
            blocked_ms: self.blocked_ms.map(|ms| ms - lag_ms),
            ..self
        }
    }
}

impl Gpus {
    /// Ranks of one role on one communicator.
    pub fn alike(n_ranks: u32) -> Self {
        let rank_count = usize::try_from(n_ranks).unwrap();
        Self {
            roles: vec![7; rank_count],
            rings: vec![Ring {
                comm: 1,
                ranks: (0..n_ranks).collect(),
            }],
        }
    }

    /// Stages of a pipeline with replicas; the replicas of a stage share a communicator and a role.
    pub fn pipeline(n_stages: u32, n_replicas: u32) -> Self {
        let of_stage = |stage: u32| (stage * n_replicas..(stage + 1) * n_replicas).collect();
        Self {
            roles: (0..n_stages * n_replicas)
                .map(|rank| u64::from(rank / n_replicas))
                .collect(),
            rings: (0..n_stages)
                .map(|stage| Ring {
                    comm: 10 + u64::from(stage),
                    ranks: of_stage(stage),
                })
                .collect(),
        }
    }

    /// Pairs that share each layer, and two communicators: one over the first members of the pairs,
    /// one over the second.
    pub fn pairs(n_pairs: u32) -> Self {
        let across = (0..2).map(|side| Ring {
            comm: 20 + u64::from(side),
            ranks: (0..n_pairs).map(|pair| 2 * pair + side).collect(),
        });
        let within = (0..n_pairs).map(|pair| Ring {
            comm: 30 + u64::from(pair),
            ranks: vec![2 * pair, 2 * pair + 1],
        });
        Self {
            roles: vec![7; usize::try_from(2 * n_pairs).unwrap()],
            rings: across.chain(within).collect(),
        }
    }

    /// All events of blocks `0..n_blocks`, numbered, block by block and rank by rank.
    pub fn events(&self, n_blocks: u64, measure: impl Fn(u64, u32) -> Gpu) -> Vec<StoredEvent> {
        let n_ranks = u32::try_from(self.roles.len()).unwrap();
        let blocks = (0..n_blocks).flat_map(|block| (0..n_ranks).map(move |rank| (block, rank)));
        let events = blocks.flat_map(|(block, rank)| self.block(block, rank, measure(block, rank)));
        super::numbered(events)
    }

    fn block(&self, block: u64, rank: u32, gpu: Gpu) -> Vec<Event> {
        let own = self.rings.iter().filter(|ring| ring.ranks.contains(&rank));
        let mut events: Vec<Event> = own
            .clone()
            .zip(0..)
            .map(|(ring, index)| self.wait((block, rank), ring.comm, index == 0, gpu))
            .collect();
        let comm = own.clone().next().unwrap().comm;
        if let Some(inside_ms) = gpu.second_ms {
            let second = Gpu { inside_ms, ..gpu };
            let mut wait = self.wait((block, rank), comm, true, second);
            wait.block.as_mut().unwrap().op = Some("ReduceScatter".parse().unwrap());
            events.push(wait);
        }
        let parts = [
            (metric::HOST_GAP, gpu.gap_ms, Source::Host),
            (metric::BLOCKED, gpu.blocked_ms, Source::Device),
            (metric::BUSY, gpu.busy_ms, Source::Device),
            (metric::QUEUE, gpu.queue_ms, Source::Device),
        ];
        for (name, ms, source) in parts {
            if let Some(ms) = ms {
                let reading = Reading::Histogram(even(ms, OPS_PER_BLOCK / OPS_PER_ITERATION));
                events.push(self.point((block, rank), (name, reading), comm, source));
            }
        }
        let period = Reading::Double(gpu.period_ms);
        events.push(self.point(
            (block, rank),
            (metric::PERIOD, period),
            comm,
            Source::Device,
        ));
        let arrivals = Reading::Histogram(even(80.0, OPS_PER_BLOCK));
        events.push(self.point(
            (block, rank),
            (metric::ARRIVAL, arrivals),
            comm,
            Source::Host,
        ));
        events
    }

    fn wait(&self, (block, rank): (u64, u32), comm: u64, is_busiest: bool, gpu: Gpu) -> Event {
        let ms = if is_busiest {
            gpu.inside_ms
        } else {
            gpu.elsewhere_ms
        };
        let mut summary = even(ms, OPS_PER_BLOCK);
        if let Some(longest_ms) = gpu.longest_ms.filter(|_| is_busiest) {
            let iterations = OPS_PER_BLOCK / OPS_PER_ITERATION;
            summary.sum += (longest_ms - ms) * iterations as f64;
            summary.max = Some(longest_ms);
        }
        let reading = Reading::Histogram(summary);
        let mut wait = self.point((block, rank), (metric::WAIT, reading), comm, Source::Device);
        if let Some(sampled) = gpu.sampled_ms {
            let iterations = OPS_PER_BLOCK / OPS_PER_ITERATION;
            wait.samples = (block * iterations..(block + 1) * iterations)
                .map(|iteration| OpSample {
                    seq: iteration * OPS_PER_ITERATION,
                    value: sampled(iteration, rank),
                    timestamp: instant(0.0),
                })
                .collect();
        }
        wait
    }

    fn point(
        &self,
        (block, rank): (u64, u32),
        what: (&str, Reading),
        comm: u64,
        source: Source,
    ) -> Event {
        let job = Job::with_ranks(u32::try_from(self.roles.len()).unwrap());
        let begin_ms = block as f64 * 200.0;
        let seqs = SeqRange::new(block * OPS_PER_BLOCK, (block + 1) * OPS_PER_BLOCK - 1);
        let mut event = job.event(rank, what, seqs, (begin_ms, begin_ms + 199.0));
        let known = event.block.as_mut().unwrap();
        known.comm = CommId::new(comm);
        known.role = Some(RoleId::new(self.roles[rank as usize]));
        known.source = source;
        event
    }
}

/// Summary of equal samples.
pub fn even(value: f64, count: u64) -> Summary {
    Summary {
        count,
        sum: value * count as f64,
        min: Some(value),
        max: Some(value),
    }
}
