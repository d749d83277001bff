//! What is usual for a process in its own past.

use std::collections::{BTreeMap, VecDeque};

use crate::explain::cause::Cause;
use crate::explain::observation::Observation;
use crate::statistics::median;

/// Number of periods that are remembered.
const REMEMBERED: usize = 30;
/// Number of periods without which the past is no reference.
const ENOUGH: usize = 3;

/// Values of past periods in which nothing stood out.
#[derive(Debug, Clone, Default)]
pub(super) struct Series(VecDeque<f64>);

impl Series {
    /// Adds the value of a period.
    pub(super) fn add(&mut self, value: f64) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(value);
    }

    /// Returns the median; `None` while too few periods are known.
    pub(super) fn usual(&self) -> Option<f64> {
        if self.0.len() < ENOUGH {
            return None;
        }
        median(self.0.iter().copied())
    }
}

/// Shares of a process's time that it lost to each cause in past periods in which it did not stand out.
#[derive(Debug, Clone, Default)]
pub(super) struct Past(BTreeMap<Cause, Series>);

impl Past {
    /// Adds the share of a period of which this was seen. Before a process calls its GPU it has no past of
    /// calls.
    pub(super) fn add_seen(&mut self, cause: Cause, share: f64, seen: &Observation) {
        if !cause.is_call() || !seen.calls.is_empty() {
            self.add(cause, share);
        }
    }

    /// Adds the share of a period.
    pub(super) fn add(&mut self, cause: Cause, share: f64) {
        self.0.entry(cause).or_default().add(share);
    }

    /// Returns the usual share; `None` while too few periods are known.
    pub(super) fn usual(&self, cause: Cause) -> Option<f64> {
        self.0.get(&cause)?.usual()
    }
}
