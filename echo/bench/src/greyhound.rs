//! The injection process of Greyhound's artifact: Poisson arrivals with a mean of 240 s, durations
//! N(120, 20) s, then 60 s without faults; GPU and network faults in equal parts, of any published
//! severity.

use rand::Rng;
use rand_distr::{Distribution, Exp1, StandardNormal};

use super::fault::{Fault, FaultKind};
use super::mesh::Mesh;
use super::random::{Purpose, stream};

/// Healthy seconds before the first fault.
const WARM_UP: u32 = 360;

/// Healthy seconds after each fault.
const QUIET: u32 = 60;

/// Severities, equally likely.
const SEVERITIES: [f64; 4] = [0.05, 0.10, 0.20, 0.50];

/// Draws the faults of a job with steps of one second.
pub fn schedule(mesh: Mesh, seed: u64, n_seconds: u32) -> Vec<Fault> {
    let mut rng = stream(seed, Purpose::Schedule);
    let mut faults = Vec::new();
    let mut at = WARM_UP;
    loop {
        let pause: f64 = Exp1.sample(&mut rng);
        let length: f64 = StandardNormal.sample(&mut rng);
        let begin = at + whole(240.0 * pause);
        let end = begin + whole(length.mul_add(20.0, 120.0).max(20.0));
        if end + QUIET > n_seconds {
            return faults;
        }
        let severity = SEVERITIES
            .get(rng.random_range(0..SEVERITIES.len()))
            .copied();
        let is_compute: bool = rng.random();
        faults.push(Fault {
            kind: if is_compute {
                FaultKind::Device
            } else {
                FaultKind::Network
            },
            rank: rng.random_range(0..mesh.n_ranks()),
            severity: severity.unwrap_or(0.1),
            steps: begin..end,
        });
        at = end + QUIET;
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "seconds of a simulated day, never negative"
)]
fn whole(seconds: f64) -> u32 {
    seconds.round() as u32
}
