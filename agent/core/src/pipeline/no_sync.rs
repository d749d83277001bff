//! Whether a process goes on without waiting for the GPU.
//!
//! A rank that its host holds back finds the GPU done whenever it asks: it never waits as long as those that wait for it, and
//! would be the one of which nothing is known. Then its short synchronisations are all there is to compare it by.

use crate::iteration_pattern::IterationPattern;

/// Collectives without a wait that are many while nobody knows how many an iteration has.
const MAX_COLLECTIVES_UNKNOWN: f64 = 16_384.0;
/// Iterations without a wait that are many: a job that runs ahead of its GPU waits when it logs, each hundredth iteration or so, and
/// what it synchronises in between tells nothing.
const MAX_ITERATIONS: f64 = 256.0;
/// Collectives without a wait that are few: where all look alike, an iteration of several passes for several of one.
const MIN_COLLECTIVES: f64 = 1024.0;

/// Counts collectives since the last wait for the GPU.
#[derive(Debug, Default)]
pub(super) struct NoSyncDetector {
    collectives: f64,
}

impl NoSyncDetector {
    /// Takes a collective.
    pub(super) fn record_collective(&mut self) {
        self.collectives += 1.0;
    }

    /// Takes a wait for the GPU that was none of the short ones.
    pub(super) fn record_wait(&mut self) {
        self.collectives = 0.0;
    }

    /// Whether the process has not waited for longer than its iterations explain.
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
