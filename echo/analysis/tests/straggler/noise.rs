//! Noise of healthy jobs: of GPUs, of hosts, of the whole job, and what is done every so many steps.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// Noise of all ranks.
pub(crate) struct Noise {
    pub(crate) cv: f64,
    pub(crate) rho: f64,
    states: Vec<f64>,
    biases: Vec<f64>,
    /// Wander of the whole job: standard deviation, time constant in seconds, state.
    pub(crate) wander: (f64, f64, f64),
    pauses: f64,
    /// Wander of each host: standard deviation, time constant in seconds, states. Where hosts set the
    /// pace, ranks are last by turns.
    turns: (f64, f64, Vec<f64>),
    /// Every so many steps all ranks do something else, for so many steps: logging, evaluation.
    pub(crate) extra: (u64, f64),
}

fn normal(rng: &mut ChaCha8Rng) -> f64 {
    StandardNormal.sample(rng)
}

impl Noise {
    pub(crate) fn new(n: usize, rng: &mut ChaCha8Rng) -> Self {
        let bias = rng.random_range(0.003..0.01);
        Self {
            cv: rng.random_range(0.005..0.03),
            rho: rng.random_range(0.0..0.9),
            states: (0..n).map(|_| normal(rng)).collect(),
            biases: (0..n).map(|_| bias * normal(rng)).collect(),
            wander: (
                rng.random_range(0.0..0.02),
                rng.random_range(5.0..30.0),
                0.0,
            ),
            pauses: rng.random_range(0.0..0.005),
            turns: (
                rng.random_range(0.0..0.06),
                rng.random_range(2.0..12.0),
                (0..n).map(|_| normal(rng)).collect(),
            ),
            extra: (rng.random_range(50..400), rng.random_range(0.0..3.0)),
        }
    }

    /// Factor of each host in a step of this length.
    pub(crate) fn hosts(&mut self, seconds: f64, rng: &mut ChaCha8Rng) -> Vec<f64> {
        let (sd, tau, states) = &mut self.turns;
        let keep = (-seconds / *tau).exp();
        let sd = *sd;
        let states = states.iter_mut();
        states
            .map(|state| {
                *state = keep * *state + (1.0 - keep * keep).sqrt() * normal(rng);
                (sd * *state).exp()
            })
            .collect()
    }

    /// Factor of each rank in a step of this length.
    pub(crate) fn step(&mut self, seconds: f64, rng: &mut ChaCha8Rng) -> Vec<f64> {
        let (sd, tau, state) = &mut self.wander;
        let keep = (-seconds / *tau).exp();
        *state = keep * *state + (1.0 - keep * keep).sqrt() * normal(rng);
        let common = *sd * *state;
        let (rho, cv, pauses) = (self.rho, self.cv, self.pauses);
        let ranks = self.states.iter_mut().zip(&self.biases);
        ranks
            .map(|(state, bias)| {
                *state = rho * *state + (1.0 - rho * rho).sqrt() * normal(rng);
                let pause = if rng.random_bool(pauses) {
                    rng.random_range(0.0..0.4)
                } else {
                    0.0
                };
                (common + bias + cv * *state).exp() + pause
            })
            .collect()
    }
}
