//! What is usual for a process: the shares of its time that it lost to each cause in its own past.

use std::collections::{BTreeMap, VecDeque};

use crate::explain::cause::Cause;
use crate::explain::observation::Observation;
use crate::statistics::median;

/// Number of periods that are remembered.
const REMEMBERED: usize = 30;
/// Number of periods without which the past is no reference.
const ENOUGH: usize = 3;

/// Shares of a process's time in past periods in which nothing stood out.
#[derive(Debug, Clone, Default)]
pub(super) struct Past(BTreeMap<Cause, VecDeque<f64>>);

impl Past {
    /// Adds the share of a period of which this was seen. Before a process calls its GPU it has no past of
    /// calls.
    pub(super) fn add_seen(&mut self, cause: Cause, share: f64, seen: &Observation) {
        if !cause.is_call() || !seen.calls.is_empty() {
            self.add(cause, share);
        }
    }

    /// Adds the share of a period in which the cause did not stand out.
    pub(super) fn add(&mut self, cause: Cause, share: f64) {
        let shares = self.0.entry(cause).or_default();
        if shares.len() == REMEMBERED {
            shares.pop_front();
        }
        shares.push_back(share);
    }

    /// Returns the usual share; `None` while too few periods are known.
    pub(super) fn usual(&self, cause: Cause) -> Option<f64> {
        let shares = self.0.get(&cause).filter(|shares| shares.len() >= ENOUGH)?;
        median(shares.iter().copied())
    }
}
