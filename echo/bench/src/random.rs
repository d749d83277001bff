//! Reproducible randomness: every purpose has its own stream, so that changing one leaves the
//! others unchanged.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Purpose of random numbers.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    /// Lateness of the host.
    Host,
    /// Lateness of the device.
    Device,
    /// Rare pauses, such as garbage collection.
    Pauses,
    /// Start and target of faults.
    Schedule,
    /// Uneven work, step by step.
    Work,
    /// Delivery of batches.
    Telemetry,
    /// Shape of a loop.
    Shape,
}

/// Returns the stream of one purpose.
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
