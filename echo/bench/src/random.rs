//! Reproducible randomness: every use has a stream of its own, so that a change of one leaves the others as they were.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// What numbers are drawn for.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    /// Lateness of the host.
    Host,
    /// Lateness of the device.
    Device,
    /// Rare pauses, such as garbage collection.
    Pauses,
    /// When faults begin and whom they hit.
    Schedule,
    /// Uneven work, step by step.
    Work,
    /// What happens to batches on their way.
    Telemetry,
    /// What a loop looks like.
    Shape,
}

/// The stream of one purpose.
pub fn stream(seed: u64, purpose: Purpose) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(match purpose {
        Purpose::Host => 1,
        Purpose::Device => 2,
        Purpose::Pauses => 3,
        Purpose::Schedule => 4,
        Purpose::Work => 5,
        Purpose::Telemetry => 6,
        Purpose::Shape => 7,
    });
    rng
}
