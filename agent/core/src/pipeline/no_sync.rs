//! Whether a process goes on without waiting for the GPU.
//!
//! A rank that its host holds back finds the GPU done whenever it asks: it never waits as long as those that wait for it, and
//! would be the one of which nothing is known. Then its short synchronisations are all there is to compare it by.

use crate::iteration_pattern::Rhythm;

/// Collectives without a wait that are many while nobody knows how many an iteration has.
const MANY: f64 = 16_384.0;
/// Iterations without a wait that are many: a job that runs ahead of its GPU waits when it logs, each hundredth iteration or so, and
/// what it synchronises in between tells nothing.
const ITERATIONS: f64 = 256.0;
/// Collectives without a wait that are few: where all look alike, an iteration of several passes for several of one.
const FEW: f64 = 1024.0;

/// Counts collectives since the last wait for the GPU.
#[derive(Debug, Default)]
pub(super) struct Unwaited {
    collectives: f64,
}

impl Unwaited {
    /// Takes a collective.
    pub(super) fn issued(&mut self) {
        self.collectives += 1.0;
    }

    /// Takes a wait for the GPU that was none of the short ones.
    pub(super) fn waited(&mut self) {
        self.collectives = 0.0;
    }

    /// Whether the process has not waited for longer than its iterations explain.
    pub(super) fn is_long(&self, rhythm: &Rhythm) -> bool {
        let of_iteration = rhythm
            .profile()
            .map(|profile| profile.ops.values().sum::<f64>());
        self.collectives > of_iteration.map_or(MANY, |ops| (ITERATIONS * ops).max(FEW))
    }
}
