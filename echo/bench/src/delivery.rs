//! Events in the order in which they arrive at the detector.

use std::time::Duration;

use echo_core::model::event::StoredEvent;
use echo_core::units::Nanos;

/// Beginning of recorded and generated jobs.
pub const EPOCH: Nanos = Nanos::new(1_790_000_000_000_000_000);

/// Events that arrive at one time.
#[derive(Debug)]
pub struct Delivery {
    /// Number of steps completed by then; 0 where it is not known.
    pub step: u32,
    /// Events.
    pub events: Vec<StoredEvent>,
}

/// Milliseconds as whole nanoseconds.
pub fn nanos(ms: f64) -> i64 {
    let magnitude = Duration::from_secs_f64(ms.abs() / 1e3).as_nanos();
    let magnitude = i64::try_from(magnitude).unwrap_or(i64::MAX);
    if ms < 0.0 { -magnitude } else { magnitude }
}
