//! Spans of operations of about the same length, with the waits of the ranks in them.

use std::collections::{BTreeMap, VecDeque};

use echo_core::ids::Rank;
use echo_core::model::event::Source;

use super::work::Work;
use crate::assembly::Member;
use crate::mix::Mix;

/// Minimum number of windows after the first, and the weight of one more.
const LEAST_WINDOWS: f64 = 0.8;
const DOUBT: f64 = 2.5;

/// A span of operations.
#[derive(Debug, Clone, Default)]
pub(super) struct Tick {
    /// Iterations of the cohort before it.
    pub(super) begin: f64,
    pub(super) elapsed_ms: f64,
    pub(super) mix: Mix,
    pub(super) waits: BTreeMap<Rank, Waits>,
}

/// Wait of one rank in a span, milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Waits {
    pub(super) device: Option<f64>,
    pub(super) host: Option<f64>,
}

impl Tick {
    /// Ratio of its duration to the healthy one.
    pub(super) fn ratio(&self, work: &Work) -> f64 {
        self.elapsed_ms / work.predict(&self.mix).max(f64::MIN_POSITIVE)
    }
}

impl Waits {
    /// Adds the wait of a rank in one block.
    pub(super) fn add(&mut self, member: &Member) {
        let by_device = member.blocked_source == Some(Source::Device);
        let device = member.blocked.filter(|_| by_device);
        let sum = |known: Option<f64>, more: f64| Some(known.unwrap_or(0.0) + more);
        if let Some(inside) = device {
            self.device = sum(self.device, inside.sum);
        }
        // A rank that was never blocked does not report it.
        self.host = sum(
            self.host,
            member.host_blocked.map_or(0.0, |blocked| blocked.sum),
        );
    }
}

/// Sliding windows of consecutive spans, one beginning at each span; a single one of all spans if
/// they do not fill a window.
pub(super) fn windows(ticks: &VecDeque<Tick>, window_ms: f64) -> Vec<Vec<&Tick>> {
    let mut windows = Vec::new();
    for first in 0..ticks.len() {
        let mut lasted_ms = 0.0;
        let mut window = Vec::new();
        for tick in ticks.iter().skip(first) {
            window.push(tick);
            lasted_ms += tick.elapsed_ms;
            if lasted_ms >= window_ms {
                break;
            }
        }
        if lasted_ms >= window_ms || first == 0 {
            windows.push(window);
        }
    }
    windows
}

/// Factor from the scatter seen in few windows to the largest plausible one: few windows show only
/// a part of it.
#[expect(clippy::cast_precision_loss, reason = "windows are few")]
pub(super) fn small_sample_factor(past: &VecDeque<Tick>, window_ms: f64) -> f64 {
    let windows = windows(past, window_ms);
    let of_windows = windows.iter().flatten().map(|tick| tick.elapsed_ms);
    let mean_ms = of_windows.sum::<f64>() / windows.len().max(1) as f64;
    let known_ms: f64 = past.iter().map(|tick| tick.elapsed_ms).sum();
    let independent = (known_ms / mean_ms.max(window_ms) - 1.0).max(LEAST_WINDOWS);
    1.0 + DOUBT / (independent * independent)
}

/// Square root of the mean of the squares.
#[expect(clippy::cast_precision_loss, reason = "windows are few")]
pub(super) fn root_mean_square(values: impl Iterator<Item = f64>) -> f64 {
    let squares: Vec<f64> = values.map(|value| value * value).collect();
    let n = squares.len().max(1) as f64;
    (squares.into_iter().sum::<f64>() / n).sqrt()
}
