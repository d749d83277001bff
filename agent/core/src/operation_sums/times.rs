//! Times of operations of a block.

use std::collections::BTreeMap;

use crate::signal::{Lead, Summary};

/// Largest ratio of the numbers of operations of two roots: shards have parameters of different size.
const MOST_TURNS: u64 = 4;

/// Durations of operations, and how long before their start they were enqueued.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    pub(super) durations: Summary,
    pub(super) lead: Option<Lead>,
}

impl Times {
    /// Adds an operation.
    pub(super) fn add(&mut self, duration_ms: f64, lead_ms: f64) {
        self.durations.add(duration_ms);
        self.add_lead(lead_ms);
    }

    /// Adds the lead of one operation, milliseconds.
    pub(super) fn add_lead(&mut self, lead_ms: f64) {
        self.merge_lead(Lead {
            sum_ms: lead_ms,
            min_ms: lead_ms,
        });
    }

    fn merge_lead(&mut self, other: Lead) {
        let lead = self.lead.get_or_insert(Lead {
            sum_ms: 0.0,
            min_ms: other.min_ms,
        });
        lead.sum_ms += other.sum_ms;
        lead.min_ms = lead.min_ms.min(other.min_ms);
    }

    /// Times of both.
    pub(super) fn with(mut self, other: &Self) -> Self {
        self.durations.merge(&other.durations);
        if let Some(lead) = other.lead {
            self.merge_lead(lead);
        }
        self
    }
}

/// Times of operations with a root, which does not wait as the others do, or they not as it does.
#[derive(Debug, Clone, Default)]
pub(super) struct RootedTimes {
    times: Times,
    /// Number of operations by rank that was the root.
    roots: BTreeMap<u32, u64>,
}

impl RootedTimes {
    /// Adds an operation.
    pub(super) fn add(&mut self, root: u32, duration_ms: f64, lead_ms: f64) {
        *self.roots.entry(root).or_default() += 1;
        self.times.add(duration_ms, lead_ms);
    }

    /// Returns the times if the `size` ranks took turns as the root, as with sharded optimizers: then all have
    /// about the same advantage, and their times can be compared. None otherwise.
    pub(super) fn of_turns(&self, size: u32) -> Times {
        let turns = || self.roots.values().copied();
        let (least, most) = (turns().min().unwrap_or(0), turns().max().unwrap_or(0));
        if self.roots.len() as u64 == u64::from(size) && most <= MOST_TURNS.saturating_mul(least) {
            self.times
        } else {
            Times::default()
        }
    }
}
