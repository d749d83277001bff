//! Report of one rank about one block, and merging of the parts of a block.

use echo_core::model::event::{Event, SeqRange, Summary};
use echo_core::units::Nanos;

use super::MeanArrival;

/// Report of one rank about one block.
#[derive(Debug, Clone)]
pub(super) struct Report {
    pub(super) start: Nanos,
    pub(super) end: Nanos,
    pub(super) iterations: Option<f64>,
    pub(super) gap: Option<Summary>,
    pub(super) host_blocked: Option<Summary>,
    pub(super) device_blocked: Option<Summary>,
    pub(super) arrival: Option<MeanArrival>,
}

impl Report {
    /// Creates an empty report from its first point.
    pub(super) fn from_event(event: &Event) -> Self {
        Self {
            start: event.start.unwrap_or(event.timestamp),
            end: event.timestamp,
            iterations: None,
            gap: None,
            host_blocked: None,
            device_blocked: None,
            arrival: None,
        }
    }

    /// Times blocked. The GPU's measurement is preferred, because it is more accurate than the
    /// host's.
    pub(super) fn blocked(&self) -> Option<Summary> {
        self.device_blocked.or(self.host_blocked)
    }
}

/// Merges the reports of consecutive parts into one of all operations `seqs`; `None` if a part is
/// missing.
pub(super) fn merged(seqs: SeqRange, parts: Vec<(SeqRange, Report)>) -> Option<Report> {
    // A hostile sender may send parts that overlap or that are arbitrarily long.
    let length = |seqs: SeqRange| u128::from(seqs.last() - seqs.first()) + 1;
    let reported: u128 = parts.iter().map(|(part, _)| length(*part)).sum();
    if reported != length(seqs) {
        return None;
    }
    parts
        .into_iter()
        .map(|(_, report)| report)
        .reduce(|sum, next| Report {
            start: sum.start,
            end: sum.end.max(next.end),
            iterations: add(sum.iterations, next.iterations, |a, b| a + b),
            gap: add(sum.gap, next.gap, total),
            host_blocked: add(sum.host_blocked, next.host_blocked, total),
            device_blocked: add(sum.device_blocked, next.device_blocked, total),
            // Arrivals are relative to the beginning of each part.
            arrival: None,
        })
}

fn add<T>(one: Option<T>, next: Option<T>, sum: impl Fn(T, T) -> T) -> Option<T> {
    match (one, next) {
        (Some(one), Some(next)) => Some(sum(one, next)),
        (one, next) => one.or(next),
    }
}

/// Merges the distributions of two sets of samples.
pub(super) fn total(one: Summary, next: Summary) -> Summary {
    Summary {
        count: one.count.saturating_add(next.count),
        sum: one.sum + next.sum,
        min: add(one.min, next.min, f64::min),
        max: add(one.max, next.max, f64::max),
    }
}
