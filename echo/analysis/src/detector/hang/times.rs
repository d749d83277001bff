//! Times in which jobs hung.

use std::collections::{BTreeMap, VecDeque};

use echo_core::units::Window;

use crate::detector::JobKey;

/// Maximum number of times kept for a job.
const MAX_TIMES: usize = 16;

/// Latest times in which each job hung, on the clock of a rank that waited.
#[derive(Debug, Default)]
pub(super) struct HungTimes(BTreeMap<JobKey, VecDeque<Window>>);

impl HungTimes {
    /// Adds a time, which continues the last one if it begins before its end.
    pub(super) fn add(&mut self, job: &JobKey, time: Window) {
        let times = self.0.entry(job.clone()).or_default();
        let continued = times.pop_back_if(|last| last.to() >= time.from());
        let from = continued.unwrap_or(time).from();
        times.extend(Window::new(from, time.to()));
        if times.len() > MAX_TIMES {
            times.pop_front();
        }
    }

    /// Times of a job.
    pub(super) fn of(&self, job: &JobKey) -> Vec<Window> {
        let times = self.0.get(job).into_iter().flatten();
        times.copied().collect()
    }

    /// Forgets a job.
    pub(super) fn remove(&mut self, job: &JobKey) {
        self.0.remove(job);
    }
}
