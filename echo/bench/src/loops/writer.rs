//! Writes one step of one rank.

use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Normal};

use super::kind::Shape;
use super::step::{Action, Function, Operation};

/// Writes one step of one rank.
#[derive(Debug)]
pub struct Writer<'a> {
    /// The loop.
    pub shape: &'a Shape,
    /// The rank.
    pub rank: u32,
    step: u32,
    slow: f64,
    rng: &'a mut ChaCha8Rng,
    /// Actions in order.
    pub(super) actions: Vec<Action>,
}

impl<'a> Writer<'a> {
    /// Starts a step of a rank.
    pub(super) fn new(shape: &'a Shape, rng: &'a mut ChaCha8Rng, rank: u32, step: u32) -> Self {
        let warm = f64::from(shape.warm_up.saturating_sub(step)) / f64::from(shape.warm_up.max(1));
        Self {
            shape,
            rank,
            step,
            slow: 1.0 + warm,
            rng,
            actions: Vec::new(),
        }
    }

    fn noise(&mut self) -> f64 {
        let normal = Normal::new(0.0, self.shape.noise).ok();
        normal.map_or(1.0, |normal| normal.sample(self.rng).exp())
    }

    /// Varies the speed of a host that is the bottleneck; the host whose turn it is gets slower.
    pub(super) fn take_turn(&mut self, has_turn: bool) {
        let normal = Normal::new(0.0_f64, 0.15).ok();
        let jitter = normal.map_or(1.0, |normal| normal.sample(self.rng).exp());
        let turn = if has_turn { self.shape.turns } else { 0.0 };
        self.slow *= jitter * (1.0 + turn);
    }

    /// True when this step is the last of `every` steps; never for 0.
    pub(super) fn is_every(&self, every: u32) -> bool {
        every > 0 && (self.step + 1).is_multiple_of(every)
    }

    /// Adds work of the host, as a share of a step.
    pub fn host(&mut self, share: f64) {
        let ms = share * self.shape.step_ms * self.slow * self.noise();
        self.actions.push(Action::Host(ms));
    }

    /// Adds loading a batch, as a share of a step.
    pub fn load(&mut self, share: f64) {
        let ms = share * self.shape.step_ms * self.slow * self.noise();
        self.actions.push(Action::Load(ms));
    }

    /// Adds a kernel, as a share of a step.
    pub fn kernel(&mut self, share: f64) {
        let ms = share * self.shape.step_ms * self.noise();
        self.actions.push(Action::Kernel(ms));
    }

    /// Adds an operation of all ranks after the kernels enqueued so far.
    pub fn exchange(&mut self, function: Function, count: u64, share: f64) {
        self.operation(function, count, share, true);
    }

    /// Adds an operation of all ranks, after the kernels enqueued so far or beside them.
    pub(super) fn operation(
        &mut self,
        function: Function,
        count: u64,
        share: f64,
        after_kernels: bool,
    ) {
        let transfer_ms = (share * self.shape.step_ms).max(0.01);
        let op = Operation {
            function,
            count,
            peer: 0,
            transfer_ms,
        };
        self.push(Action::Exchange {
            ops: vec![op],
            after_kernels,
        });
    }

    /// Adds an action.
    pub fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Draws the relative sequence length of this step; its mean is 1.
    pub(super) fn length(&mut self) -> f64 {
        let normal = Normal::new(-0.03_f64, 0.25).ok();
        normal.map_or(1.0, |normal| normal.sample(self.rng).exp())
    }
}
