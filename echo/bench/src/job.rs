//! Timing model of a job: computes the waits of all ranks from the work of each rank.
//!
//! All ranks begin a step together. Each host needs its gap before it enqueues work; the GPUs then
//! compute. Tensor parallel peers synchronise at every layer, a replica's stages follow one
//! another as in 1F1B with four microbatches per stage, and the data parallel groups synchronise in
//! their last operations, which overlap with the backward pass. The step lasts as long as its
//! slowest rank. A late worker delays others: the other stages of its replica enter their data
//! parallel operations late too.

#![expect(
    clippy::suboptimal_flops,
    reason = "formulas as they are written on paper"
)]

use super::fault::Loads;
use super::mesh::Mesh;

/// Tensor parallel operations of a rank in a step.
pub const TP_OPS: usize = 8;

/// Data parallel operations of a rank in a step.
pub const DP_OPS: usize = 4;

/// Host gap of a healthy rank, as a share of its own work.
const GAP: f64 = 0.2;

/// Transfers of the data parallel group in a step, as a share of the step.
const TRANSFER: f64 = 0.1;

/// Transfer of one tensor parallel operation, as a share of the step.
const TP_TRANSFER: f64 = 0.005;

/// Time to enqueue the work of a step, as a share of the step.
pub const ENQUEUE: f64 = 0.05;

/// Backward pass as a share of a microbatch.
const BACKWARD: f64 = 2.0 / 3.0;

/// Measurements of one rank in one step, milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct RankStep {
    /// Host gap.
    pub gap: f64,
    /// Time inside each tensor parallel operation.
    pub tp: [f64; TP_OPS],
    /// Time inside each data parallel operation.
    pub dp: [f64; DP_OPS],
    /// Time from enqueueing the first operation of the busiest communicator to its start on the GPU.
    pub queue: f64,
    /// Time that the host waits for its GPU.
    pub host_blocked: f64,
    /// Time that the GPU waits in communication of any kind.
    pub device_blocked: f64,
    /// Time that the GPU computes.
    pub compute: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Worker {
    work: f64,
    compute: f64,
    arrival: f64,
}

/// The job, step by step.
#[derive(Debug)]
pub struct Engine {
    mesh: Mesh,
    step_ms: f64,
    /// Own work of a healthy worker in a step, milliseconds.
    work_ms: f64,
    microbatches: f64,
    workers: Vec<Worker>,
    ranks: Vec<RankStep>,
}

/// Noise of one step, shares of the step per rank.
#[derive(Debug, Clone, Copy)]
pub struct StepNoise<'a> {
    /// Noise of the hosts.
    pub host: &'a [f64],
    /// Noise of the devices.
    pub device: &'a [f64],
}

impl Engine {
    /// Creates a job whose healthy step lasts `step_ms` without noise.
    pub fn new(mesh: Mesh, step_ms: f64) -> Self {
        let n_workers = (mesh.pp * mesh.dp) as usize;
        let stages = f64::from(mesh.pp);
        let microbatches = if mesh.pp > 1 { 4.0 * stages } else { 1.0 };
        let busy = (1.0 - TRANSFER) * microbatches / (microbatches + stages - 1.0);
        Self {
            mesh,
            step_ms,
            work_ms: step_ms * busy,
            microbatches,
            workers: vec![Worker::default(); n_workers],
            ranks: vec![RankStep::default(); mesh.n_ranks() as usize],
        }
    }

    /// Time to enqueue the work of a step, milliseconds.
    pub fn enqueue_ms(&self) -> f64 {
        self.step_ms * ENQUEUE
    }

    /// Simulates a step: returns the measurements of each rank and the duration of the step,
    /// milliseconds.
    pub fn step(&mut self, loads: &Loads, noise: StepNoise<'_>) -> (&[RankStep], f64) {
        self.work(loads, noise);
        self.tensor_parallel();
        self.pipeline();
        let last = self.data_parallel(&loads.transfer);
        let enqueue = self.enqueue_ms();
        let step_ms = last.iter().copied().fold(0.0, f64::max);
        for (rank, leave) in self.ranks.iter_mut().zip(last.iter().cycle()) {
            rank.host_blocked = (step_ms - rank.gap - enqueue).max(0.0);
            rank.device_blocked += step_ms - leave;
        }
        (&self.ranks, step_ms)
    }

    fn work(&mut self, loads: &Loads, noise: StepNoise<'_>) {
        let layers = if self.mesh.tp > 1 {
            8.0 * TP_TRANSFER * self.step_ms
        } else {
            0.0
        };
        let (gap, compute) = (self.work_ms * GAP, self.work_ms * (1.0 - GAP) - layers);
        let host = loads.host.iter().zip(noise.host);
        let device = loads.device.iter().zip(noise.device);
        for (rank, (host, device)) in self.ranks.iter_mut().zip(host.zip(device)) {
            rank.gap = (gap + self.step_ms * (host.0 + host.1)).max(0.0);
            rank.compute = (compute + self.step_ms * (device.0 + device.1)).max(0.0);
            rank.device_blocked = 0.0;
        }
    }

    /// Synchronises peers at every layer: a worker is as late as its latest rank.
    fn tensor_parallel(&mut self) {
        let transfer = TP_TRANSFER * self.step_ms;
        let enqueue = self.enqueue_ms() / 8.0;
        let tp = self.mesh.tp as usize;
        for (worker, peers) in self.workers.iter_mut().zip(self.ranks.chunks_mut(tp)) {
            let latest = |of: fn(&RankStep) -> f64| peers.iter().map(of).fold(0.0, f64::max);
            worker.compute = latest(|rank| rank.compute);
            if tp == 1 {
                worker.work = latest(|rank| rank.gap + rank.compute);
                continue;
            }
            let first = latest(|rank| rank.gap + rank.compute / 8.0);
            worker.work = first + worker.compute * 7.0 / 8.0 + 8.0 * transfer;
            for rank in peers {
                let arrival = rank.gap + rank.compute / 8.0;
                rank.tp = [(worker.compute - rank.compute) / 8.0 + transfer; TP_OPS];
                rank.tp[0] = first - arrival + transfer;
                rank.queue = (arrival - rank.gap - enqueue).max(0.0);
                rank.device_blocked = rank.tp.iter().sum();
            }
        }
    }

    /// Runs all microbatches through the stages of each replica.
    fn pipeline(&mut self) {
        let stages = self.mesh.pp as usize;
        let tp = self.mesh.tp as usize;
        let replicas = self.workers.chunks_mut(stages);
        for (workers, ranks) in replicas.zip(self.ranks.chunks_mut(stages * tp)) {
            let micro = |work: f64| work / self.microbatches;
            let sum: f64 = workers.iter().map(|worker| micro(worker.work)).sum();
            let largest = workers
                .iter()
                .map(|worker| micro(worker.work))
                .fold(0.0, f64::max);
            let mut arrival = sum + (self.microbatches - 1.0) * largest;
            for (worker, peers) in workers.iter_mut().zip(ranks.chunks_mut(tp)) {
                worker.arrival = arrival;
                arrival -= BACKWARD * micro(worker.work);
                let sends_ms = worker.arrival - worker.work;
                for rank in peers {
                    rank.device_blocked += sends_ms;
                }
            }
        }
    }

    /// Runs the last operations of every data parallel group; returns when each group leaves them.
    fn data_parallel(&mut self, loads: &[f64]) -> Vec<f64> {
        let (tp, pp) = (self.mesh.tp as usize, self.mesh.pp as usize);
        let tail = if pp > 1 {
            BACKWARD / self.microbatches
        } else {
            1.0
        };
        let enqueue = self.enqueue_ms() / 4.0;
        let mut last = Vec::with_capacity(tp * pp);
        for (group, load) in loads.iter().enumerate() {
            let transfer = self.step_ms * (TRANSFER + load) / 4.0;
            let members = || self.workers.iter().skip(group / tp).step_by(pp);
            let arrival =
                |worker: &Worker, left: f64| worker.arrival - left / 4.0 * tail * worker.compute;
            let mut leave = 0.0_f64;
            for (op, left) in [3.0, 2.0, 1.0, 0.0].into_iter().enumerate() {
                let before = leave;
                let latest = members()
                    .map(|worker| arrival(worker, left))
                    .fold(before, f64::max);
                leave = latest + transfer;
                let ranks = self.ranks.iter_mut().skip(group).step_by(pp * tp);
                for (rank, worker) in ranks.zip(members()) {
                    let start = arrival(worker, left).max(before);
                    if let Some(slot) = rank.dp.get_mut(op) {
                        *slot = leave - start;
                    }
                    rank.device_blocked += leave - start;
                    if op == 0 && tp == 1 {
                        rank.queue = (start - rank.gap - enqueue).max(0.0);
                    }
                }
            }
            last.push(leave);
        }
        last
    }
}
