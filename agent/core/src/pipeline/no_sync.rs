//! Detection of processes that never wait for the GPU.
//!
//! A rank that is slowed down by its host finds the GPU idle at every synchronization: it never
//! waits as long as the ranks that wait for it, and would be the one without data. Then its short
//! synchronizations are the only basis for comparison.

use crate::iteration_pattern::IterationPattern;

/// Maximum number of collectives without a wait while the iteration is unknown.
const MAX_COLLECTIVES_UNKNOWN: f64 = 16_384.0;
/// Maximum number of iterations without a wait: a job that runs ahead of its GPU waits when it
/// logs, every hundredth iteration or so, and its synchronizations in between are meaningless.
const MAX_ITERATIONS: f64 = 256.0;
/// Minimum number of collectives without a wait: where all look alike, one iteration is mistaken
/// for several.
const MIN_COLLECTIVES: f64 = 1024.0;

/// Counter of collectives since the last wait for the GPU.
#[derive(Debug, Default)]
pub(super) struct NoSyncDetector {
    collectives: f64,
}

impl NoSyncDetector {
    /// Records a collective.
    pub(super) fn record_collective(&mut self) {
        self.collectives += 1.0;
    }

    /// Records a long wait for the GPU.
    pub(super) fn record_wait(&mut self) {
        self.collectives = 0.0;
    }

    /// Returns whether the process has not waited for longer than its iterations explain.
    pub(super) fn is_detected(&self, iteration_pattern: &IterationPattern) -> bool {
        let of_iteration = iteration_pattern
            .profile()
            .map(|profile| profile.ops.values().sum::<f64>());
        self.collectives
            > of_iteration.map_or(MAX_COLLECTIVES_UNKNOWN, |ops| {
                (MAX_ITERATIONS * ops).max(MIN_COLLECTIVES)
            })
    }
}
