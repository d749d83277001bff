//! Injected faults: kind, target, severity and duration. A severity is the relative increase of the
//! step time.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use echo_core::model::detector_output::{CauseClass, ConditionKind};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1};

use super::mesh::{Mesh, NODE_SIZE};
use super::random::{Purpose, stream};

/// Kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The host of one rank is late.
    Host,
    /// The GPU of one rank is slow.
    Device,
    /// Transfers of one data parallel group are slow.
    Network,
    /// One pipeline stage has more work.
    Stage,
    /// A different replica has more work in every step.
    Data,
    /// Every GPU is slow.
    Uniform,
    /// The hosts of one node are late.
    Node,
    /// The host of one rank is late in one of N steps; the severity is the mean cost per step.
    Every(u32),
}

/// A fault.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// Kind.
    pub kind: FaultKind,
    /// Target: the rank, or one rank of the group, stage or node.
    pub rank: u32,
    /// Severity, as a share of the step.
    pub severity: f64,
    /// Affected steps.
    pub steps: Range<u32>,
}

/// Expected verdict about a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// One of these ranks, and the class of its cause.
    Rank(BTreeSet<u32>, CauseClass),
    /// A condition.
    Condition(ConditionKind),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            rank,
            severity,
            steps,
        } = self;
        let Range { start, end } = steps;
        write!(
            f,
            "{kind:?} of {:.0} % at rank {rank} in steps {start} to {end}",
            severity * 100.0
        )
    }
}

impl Fault {
    /// Expected verdict in a job of this layout.
    pub fn expected(&self, mesh: Mesh) -> Expected {
        let only = || BTreeSet::from([self.rank]);
        match self.kind {
            FaultKind::Host | FaultKind::Every(_) => Expected::Rank(only(), CauseClass::Host),
            FaultKind::Device => Expected::Rank(only(), CauseClass::Device),
            FaultKind::Node => {
                let first = self.rank / NODE_SIZE * NODE_SIZE;
                let ranks = first..(first + NODE_SIZE).min(mesh.n_ranks());
                Expected::Rank(ranks.collect(), CauseClass::Host)
            }
            FaultKind::Network => Expected::Condition(ConditionKind::Network),
            FaultKind::Stage => Expected::Condition(ConditionKind::StageImbalance),
            FaultKind::Data => Expected::Condition(ConditionKind::DataImbalance),
            FaultKind::Uniform => Expected::Condition(ConditionKind::UniformSlowdown),
        }
    }
}

/// Load that faults add in one step, as shares of a healthy step.
#[derive(Debug)]
pub struct Loads {
    /// Load on the host of each rank.
    pub host: Vec<f64>,
    /// Load on the GPU of each rank.
    pub device: Vec<f64>,
    /// Load on the transfers of each data parallel group.
    pub transfer: Vec<f64>,
    rng: ChaCha8Rng,
    mesh: Mesh,
}

impl Loads {
    /// Loads of a job.
    pub fn new(mesh: Mesh, seed: u64) -> Self {
        let zeros = |n: u32| (0..n).map(|_| 0.0).collect();
        Self {
            host: zeros(mesh.n_ranks()),
            device: zeros(mesh.n_ranks()),
            transfer: zeros(mesh.tp * mesh.pp),
            rng: stream(seed, Purpose::Work),
            mesh,
        }
    }

    /// Sets the loads to those that `faults` add in `step`.
    pub fn set(&mut self, faults: &[Fault], step: u32) {
        self.host.fill(0.0);
        self.device.fill(0.0);
        self.transfer.fill(0.0);
        for fault in faults.iter().filter(|fault| fault.steps.contains(&step)) {
            self.add(fault, step);
        }
    }

    fn add(&mut self, fault: &Fault, step: u32) {
        let (mesh, rank, severity) = (self.mesh, fault.rank, fault.severity);
        match fault.kind {
            FaultKind::Host => add_where(&mut self.host, severity, |at| at == rank),
            FaultKind::Device => add_where(&mut self.device, severity, |at| at == rank),
            FaultKind::Node => {
                let node = rank / NODE_SIZE;
                add_where(&mut self.host, severity, |at| at / NODE_SIZE == node);
            }
            FaultKind::Stage => {
                let stage = mesh.stage(rank);
                add_where(&mut self.device, severity, |at| mesh.stage(at) == stage);
            }
            FaultKind::Uniform => add_where(&mut self.device, severity, |_| true),
            FaultKind::Network => {
                let group = mesh.group(rank);
                add_where(&mut self.transfer, severity, |at| at == group);
            }
            FaultKind::Every(every) if step.is_multiple_of(every) => {
                let hit = severity * f64::from(every);
                add_where(&mut self.host, hit, |at| at == rank);
            }
            FaultKind::Every(_) => {}
            FaultKind::Data => self.assign_work(severity),
        }
    }

    /// Assigns random work to each replica; the largest share is `severity` on average.
    fn assign_work(&mut self, severity: f64) {
        let harmonic: f64 = (1..=self.mesh.dp).map(|n| 1.0 / f64::from(n)).sum();
        let rng = &mut self.rng;
        let draw = |_| -> f64 {
            let work: f64 = Exp1.sample(rng);
            work * severity / harmonic
        };
        let extra: Vec<f64> = (0..self.mesh.dp).map(draw).collect();
        let replica_size = (self.mesh.tp * self.mesh.pp) as usize;
        for (loads, extra) in self.device.chunks_mut(replica_size).zip(extra) {
            for load in loads {
                *load += extra;
            }
        }
    }
}

fn add_where(loads: &mut [f64], extra: f64, holds: impl Fn(u32) -> bool) {
    for (load, at) in loads.iter_mut().zip(0..) {
        if holds(at) {
            *load += extra;
        }
    }
}
