//! CPU time of the calling thread, so that a busy machine does not pass for a slow detector.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU seconds of the calling thread so far.
pub fn seconds() -> f64 {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(spent).map_or(0.0, |spent| spent.as_secs_f64())
}
