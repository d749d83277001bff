//! Steps of a job: when each rank issues its work and when its GPU completes it.

#![expect(
    clippy::suboptimal_flops,
    reason = "formulas as they are written on paper"
)]

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, StandardNormal};

use crate::job::fault::{Fault, Load};
use crate::job::layout::{CommKind, Layout, Mesh};

/// Host gap of a healthy rank, as a share of the step.
const HOST_GAP: f64 = 0.15;
/// Time to enqueue the work of a step, as a share of the step.
const ENQUEUE: f64 = 0.05;
/// Transfer of one tensor parallel operation, as a share of the step.
const TENSOR_TRANSFER: f64 = 0.005;
/// Transfers of the data parallel communicator in a step, as a share of the step.
const DATA_TRANSFER: f64 = 0.08;
/// Transfer of the operation of all ranks, as a share of the step.
const JOB_TRANSFER: f64 = 0.01;
/// Microbatches per stage that each stage of a pipeline processes in a step.
const MICROBATCHES: u32 = 4;

/// Times of one rank in one step, milliseconds since the start of the job.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RankStep {
    /// The rank sees that its GPU has completed the previous step.
    pub begin_ms: f64,
    /// The rank issues its first collective.
    pub issue_ms: f64,
    /// The rank has issued everything and starts to wait for its GPU.
    pub wait_ms: f64,
    /// The GPU has completed the step.
    pub end_ms: f64,
}

/// Parameters of a job without faults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JobParams {
    /// Length of a step, milliseconds.
    pub step_ms: f64,
    /// Coefficient of variation of a rank's own work.
    pub noise: f64,
    /// Seed of the noise; the same seed generates the same job.
    pub seed: u64,
}

/// Job, simulated step by step.
#[derive(Debug)]
pub struct Job {
    layout: Layout,
    params: JobParams,
    faults: Vec<Fault>,
    rng: ChaCha8Rng,
    /// Host gap and computation of a healthy rank, milliseconds.
    work_ms: (f64, f64),
    ranks: Vec<RankStep>,
    loads: Vec<Load>,
    /// Time until which each GPU is busy in this step, milliseconds.
    gpu_ms: Vec<f64>,
    latest_ms: Vec<f64>,
}

impl Job {
    /// Creates a job that starts at 0.
    pub fn new(layout: Layout, params: JobParams, faults: Vec<Fault>) -> Self {
        let n_ranks = layout.n_ranks as usize;
        Self {
            layout,
            params,
            faults,
            rng: ChaCha8Rng::seed_from_u64(params.seed),
            work_ms: work_ms(&layout, params.step_ms),
            ranks: vec![RankStep::default(); n_ranks],
            loads: vec![Load::default(); n_ranks],
            gpu_ms: vec![0.0; n_ranks],
            latest_ms: Vec::new(),
        }
    }

    /// Simulates the next step of all ranks.
    pub fn next_step(&mut self) -> &[RankStep] {
        self.run_hosts();
        self.compute();
        self.run_pipeline();
        let step_ms = self.params.step_ms;
        self.synchronize(CommKind::Data, |load| {
            step_ms * (DATA_TRANSFER + load.transfer)
        });
        self.synchronize(CommKind::Job, |_| step_ms * JOB_TRANSFER);
        for (rank, gpu_ms) in self.ranks.iter_mut().zip(&self.gpu_ms) {
            rank.end_ms = gpu_ms.max(rank.wait_ms);
        }
        &self.ranks
    }

    /// Hosts prepare and enqueue their work.
    fn run_hosts(&mut self) {
        let JobParams { step_ms, noise, .. } = self.params;
        let (gap_ms, _) = self.work_ms;
        let ranks = self.ranks.iter_mut().zip(&mut self.loads);
        for ((rank, load), number) in ranks.zip(0..) {
            let begin_ms = rank.end_ms;
            *load = Load::default();
            for fault in &self.faults {
                fault.add_to(load, &self.layout, number, begin_ms);
            }
            let z: f64 = StandardNormal.sample(&mut self.rng);
            let gap_ms = gap_ms * vary(noise, z) + step_ms * load.host;
            rank.begin_ms = begin_ms;
            rank.issue_ms = (begin_ms + gap_ms).max(load.hangs_until_ms);
            rank.wait_ms = rank.issue_ms + step_ms * ENQUEUE;
        }
    }

    /// GPUs compute; tensor parallel ranks synchronize after each part.
    fn compute(&mut self) {
        let JobParams { step_ms, noise, .. } = self.params;
        let parts = f64::from(CommKind::Tensor.ops());
        let (_, compute_ms) = self.work_ms;
        for ((gpu_ms, rank), load) in self.gpu_ms.iter_mut().zip(&self.ranks).zip(&mut self.loads) {
            let z: f64 = StandardNormal.sample(&mut self.rng);
            *gpu_ms = rank.issue_ms;
            // From here on, the time that the GPU needs for one part.
            load.device = (compute_ms * vary(noise, z) + step_ms * load.device) / parts;
        }
        for _ in 0..CommKind::Tensor.ops() {
            for (gpu_ms, load) in self.gpu_ms.iter_mut().zip(&self.loads) {
                *gpu_ms += load.device;
            }
            self.synchronize(CommKind::Tensor, |_| step_ms * TENSOR_TRANSFER);
        }
    }

    /// Microbatches pass the stages of each replica in the order of the backward pass, last stage
    /// first. A stage starts the next microbatch when it has completed the previous one.
    fn run_pipeline(&mut self) {
        let Mesh { tp, pp, .. } = self.layout.mesh;
        if pp == 1 {
            return;
        }
        let (lanes, stages) = (tp as usize, pp as usize);
        let microbatches = MICROBATCHES * pp;
        let replicas = self.gpu_ms.chunks_mut(lanes * stages);
        for (gpu_ms, ranks) in replicas.zip(self.ranks.chunks(lanes * stages)) {
            let per_batch_ms: Vec<f64> = gpu_ms
                .iter()
                .zip(ranks)
                .map(|(gpu_ms, rank)| (gpu_ms - rank.issue_ms) / f64::from(microbatches))
                .collect();
            for (gpu_ms, rank) in gpu_ms.iter_mut().zip(ranks) {
                *gpu_ms = rank.issue_ms;
            }
            for _ in 0..microbatches {
                let mut passed_on_ms = vec![0.0_f64; lanes];
                for (stage, batch_ms) in gpu_ms
                    .chunks_mut(lanes)
                    .zip(per_batch_ms.chunks(lanes))
                    .rev()
                {
                    let each = stage.iter_mut().zip(batch_ms).zip(&mut passed_on_ms);
                    for ((gpu_ms, batch_ms), passed_on_ms) in each {
                        *gpu_ms = gpu_ms.max(*passed_on_ms) + batch_ms;
                        *passed_on_ms = *gpu_ms;
                    }
                }
            }
        }
    }

    /// Synchronizes the ranks of each communicator: they wait for their last rank, and for the
    /// slowest transfer.
    fn synchronize(&mut self, kind: CommKind, transfer_ms: impl Fn(&Load) -> f64) {
        if !self.layout.uses(kind) {
            return;
        }
        let mesh = self.layout.mesh;
        let groups = self.layout.n_ranks / kind.size(mesh);
        self.latest_ms.clear();
        self.latest_ms.resize(groups as usize, 0.0);
        // Slow transfers affect all ranks of a communicator alike, so adding them before the
        // comparison is equivalent.
        for ((gpu_ms, load), rank) in self.gpu_ms.iter().zip(&self.loads).zip(0..) {
            let (group, _) = kind.position(mesh, rank);
            if let Some(latest_ms) = self.latest_ms.get_mut(group as usize) {
                *latest_ms = latest_ms.max(gpu_ms + transfer_ms(load));
            }
        }
        for (gpu_ms, rank) in self.gpu_ms.iter_mut().zip(0..) {
            let (group, _) = kind.position(mesh, rank);
            if let Some(latest_ms) = self.latest_ms.get(group as usize) {
                *gpu_ms = *latest_ms;
            }
        }
    }
}

/// Host gap and computation with which a healthy step lasts `step_ms`.
fn work_ms(layout: &Layout, step_ms: f64) -> (f64, f64) {
    let share = |kind, share| if layout.uses(kind) { share } else { 0.0 };
    let layers = share(
        CommKind::Tensor,
        TENSOR_TRANSFER * f64::from(CommKind::Tensor.ops()),
    );
    let transfers = share(CommKind::Data, DATA_TRANSFER) + share(CommKind::Job, JOB_TRANSFER);
    let stages = f64::from(layout.mesh.pp);
    let microbatches = f64::from(MICROBATCHES) * stages;
    // A stage is idle until it receives the first microbatch and after it has passed on the last
    // one.
    let busy = microbatches / (microbatches + stages - 1.0);
    let compute = (1.0 - HOST_GAP - transfers) * busy - layers;
    (step_ms * HOST_GAP, step_ms * compute)
}

/// Lognormal factor with mean 1.
fn vary(noise: f64, z: f64) -> f64 {
    let variance = (noise * noise).ln_1p();
    variance.sqrt().mul_add(z, -variance / 2.0).exp()
}

#[cfg(test)]
mod tests;
