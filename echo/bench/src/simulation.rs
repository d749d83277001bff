//! A case as a stream of blocks of events.

use echo_core::ids::IdError;
use echo_core::model::event::StoredEvent;

use super::agent::Agents;
use super::case::{Case, Sources};
use super::fault::Loads;
use super::job::{Engine, StepNoise};
use super::noise::{Noise, NoiseModel};
use super::random::Purpose;
use super::telemetry::Network;

/// Events that arrive with one block.
#[derive(Debug)]
pub struct Delivery {
    /// Number of steps completed by then.
    pub step: u32,
    /// Events.
    pub events: Vec<StoredEvent>,
}

/// A case in progress.
#[derive(Debug)]
pub struct Simulation<'a> {
    case: &'a Case,
    step: u32,
    engine: Engine,
    host: Noise,
    device: Noise,
    loads: Loads,
    agents: Agents,
    network: Network,
}

impl<'a> Simulation<'a> {
    /// Creates the simulation before its first step.
    pub fn new(case: &'a Case) -> Result<Self, IdError> {
        let engine = Engine::new(case.mesh, case.step_ms);
        let agents = Agents::new(case, engine.enqueue_ms())?;
        let n_ranks = case.mesh.n_ranks();
        let (host, device) = shares(case.noise, case.sources);
        Ok(Self {
            case,
            step: 0,
            engine,
            host: Noise::new(host, n_ranks, case.seed, Purpose::Host),
            device: Noise::new(device, n_ranks, case.seed, Purpose::Device),
            loads: Loads::new(case.mesh, case.seed),
            agents,
            network: Network::new(case),
        })
    }
}

impl Iterator for Simulation<'_> {
    type Item = Delivery;

    fn next(&mut self) -> Option<Delivery> {
        if self.step >= self.case.n_steps {
            return None;
        }
        for _ in 0..self.case.block_steps {
            self.loads.set(&self.case.faults, self.step);
            let noise = StepNoise {
                host: self.host.next_step(),
                device: self.device.next_step(),
            };
            let (ranks, step_ms) = self.engine.step(&self.loads, noise);
            self.agents.measure(ranks, step_ms);
            self.step += 1;
        }
        let sent = self.agents.close();
        Some(Delivery {
            step: self.step,
            events: self.network.pass(sent),
        })
    }
}

/// Splits the noise by source: all on the host, all on the device, or half of the variance on each.
fn shares(model: NoiseModel, sources: Sources) -> (NoiseModel, NoiseModel) {
    let scaled = |share: f64, pauses: f64| NoiseModel {
        cv: model.cv * share,
        bias: model.bias * share,
        pauses,
        ..model
    };
    match sources {
        Sources::Host => (model, scaled(0.0, 0.0)),
        Sources::Device => (scaled(0.0, model.pauses), scaled(1.0, 0.0)),
        Sources::Both => {
            let half = std::f64::consts::FRAC_1_SQRT_2;
            (scaled(half, model.pauses), scaled(half, 0.0))
        }
    }
}
