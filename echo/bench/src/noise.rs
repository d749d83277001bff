//! Noise of healthy ranks: lateness that is skewed, correlated in time and different per rank, and
//! occasional pauses.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, StandardNormal};
use statrs::distribution::{ContinuousCDF, Normal};

use super::random::{Purpose, stream};

/// Mean length of a pause, as a share of the step.
const PAUSE_SHARE: f64 = 0.2;

/// Noise of one kind of job. All values are shares of the step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NoiseModel {
    /// Coefficient of variation of the lognormal lateness of a rank in a step.
    pub cv: f64,
    /// Correlation of that lateness from step to step.
    pub rho: f64,
    /// Standard deviation of the constant offsets of the ranks.
    pub bias: f64,
    /// Share of the steps of a rank that hold a pause.
    pub pauses: f64,
}

impl NoiseModel {
    /// Mean distance of the last of `n` healthy ranks from the typical one, as a share of the step:
    /// the expected maximum of `n` normal values (Blom 1958), whose deviation combines that from
    /// step to step and from rank to rank, plus the pauses of the steps that have any.
    pub fn usual_skew(&self, n: u32) -> f64 {
        let n = f64::from(n.max(2));
        let largest = Normal::standard().inverse_cdf((n - 0.375) / (n + 0.25));
        let any_pause = 1.0 - (1.0 - self.pauses).powf(n);
        self.cv
            .hypot(self.bias)
            .mul_add(largest, any_pause * PAUSE_SHARE)
    }
}

/// The noise of all ranks, step by step.
#[derive(Debug)]
pub struct Noise {
    model: NoiseModel,
    /// Standard deviation of the logarithm.
    sigma: f64,
    rng: ChaCha8Rng,
    pauses: ChaCha8Rng,
    states: Vec<f64>,
    biases: Vec<f64>,
    values: Vec<f64>,
}

impl Noise {
    /// Creates the noise of `n_ranks` ranks.
    pub fn new(model: NoiseModel, n_ranks: u32, seed: u64, purpose: Purpose) -> Self {
        let mut rng = stream(seed, purpose);
        let mut normal = |scale: f64| -> f64 {
            let z: f64 = StandardNormal.sample(&mut rng);
            z * scale
        };
        let biases = (0..n_ranks).map(|_| normal(model.bias)).collect();
        let states = (0..n_ranks).map(|_| normal(1.0)).collect();
        Self {
            model,
            sigma: (model.cv * model.cv).ln_1p().sqrt(),
            rng,
            pauses: stream(seed, Purpose::Pauses),
            states,
            biases,
            values: Vec::new(),
        }
    }

    /// Returns the lateness of each rank in the next step.
    pub fn next_step(&mut self) -> &[f64] {
        let rho = self.model.rho;
        let fresh = rho.mul_add(-rho, 1.0).sqrt();
        self.values.clear();
        for (state, bias) in self.states.iter_mut().zip(&self.biases) {
            let z: f64 = StandardNormal.sample(&mut self.rng);
            *state = rho.mul_add(*state, fresh * z);
            let wobble = self
                .sigma
                .mul_add(*state, -self.sigma * self.sigma / 2.0)
                .exp_m1();
            let mut late = bias + wobble;
            if self.model.pauses > 0.0 && self.pauses.random::<f64>() < self.model.pauses {
                let length: f64 = Exp1.sample(&mut self.pauses);
                late += length * PAUSE_SHARE;
            }
            self.values.push(late);
        }
        &self.values
    }
}
