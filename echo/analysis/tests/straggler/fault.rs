//! Faults of generated jobs.

use crate::score::Truth;

/// Kind of a loop or of its fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Ddp,
    Fsdp,
    LocalSgd,
    Experts,
    Pipeline,
    Tensor,
    Reinforcement,
    Graphs,
    Halves,
    Intermittent,
    Pauses,
    FirstStep,
    Growing,
    Checkpoint,
    TwoCulprits,
    Alternating,
    Uniform,
    Network,
    /// A small loss after minutes of past.
    Small,
}

pub(crate) const KINDS: [Kind; 18] = [
    Kind::Ddp,
    Kind::Fsdp,
    Kind::LocalSgd,
    Kind::Experts,
    Kind::Pipeline,
    Kind::Tensor,
    Kind::Reinforcement,
    Kind::Graphs,
    Kind::Halves,
    Kind::Intermittent,
    Kind::Pauses,
    Kind::FirstStep,
    Kind::Growing,
    Kind::Checkpoint,
    Kind::TwoCulprits,
    Kind::Alternating,
    Kind::Uniform,
    Kind::Network,
];

impl Kind {
    /// Returns true for kinds of loops; the others are kinds of faults.
    pub(crate) fn is_loop(self) -> bool {
        LOOPS.contains(&self)
    }
}

/// Kinds of loops.
pub(crate) const LOOPS: [Kind; 8] = [
    Kind::Ddp,
    Kind::Fsdp,
    Kind::LocalSgd,
    Kind::Experts,
    Kind::Pipeline,
    Kind::Tensor,
    Kind::Reinforcement,
    Kind::Graphs,
];

/// Cause of the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The data loader is late.
    Sleep,
    /// The host is slow at everything.
    Host,
    /// The GPU is slow.
    Gpu,
}

/// Fault of a job, as it is at each time.
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) cause: Cause,
    pub(crate) ranks: Vec<usize>,
    /// Share of the healthy step that it adds.
    pub(crate) severity: f64,
    pub(crate) begin: f64,
    pub(crate) end: f64,
}

impl Fault {
    /// Excess of each rank at an instant, as a share of the step.
    pub(crate) fn excess(&self, now: f64, step: u64, rank: usize) -> f64 {
        if now < self.begin || now >= self.end {
            return 0.0;
        }
        let since = now - self.begin;
        let at = self.ranks.iter().position(|one| *one == rank);
        let Some(at) = at else {
            return 0.0;
        };
        match self.kind {
            Kind::Intermittent if since % 12.0 >= 4.0 => 0.0,
            Kind::Pauses if step % 10 != 3 => 0.0,
            Kind::Pauses => 10.0 * self.severity,
            Kind::Growing => self.severity * (since / (self.end - self.begin)),
            Kind::Alternating if (since / 3.0) as usize % self.ranks.len() != at => 0.0,
            _ => self.severity,
        }
    }
}

pub(crate) fn truth(kind: Kind, ranks: &[usize], has_fault: bool) -> Truth {
    if !has_fault {
        return Truth::Nothing;
    }
    match kind {
        Kind::Halves => Truth::Node(1),
        Kind::FirstStep => Truth::Late(ranks[0] as u32),
        Kind::Uniform | Kind::Network => Truth::Uniform,
        Kind::TwoCulprits | Kind::Alternating => {
            let ranks: Vec<u32> = ranks.iter().map(|rank| *rank as u32).collect();
            Truth::Ranks(ranks.leak())
        }
        _ => Truth::Rank(ranks[0] as u32),
    }
}
