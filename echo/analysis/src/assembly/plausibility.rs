//! Plausibility checks for points. Senders may send any finite number, and sums of absurd numbers
//! would overflow.

use echo_core::model::event::{Event, Reading};
use fleet_proto::metric;

/// Longest plausible duration, milliseconds: thirty years.
const LONGEST_MS: f64 = 1e12;

/// Shortest plausible iteration, milliseconds. Effects are shares of it.
const SHORTEST_MS: f64 = 1e-6;

/// Smallest and largest plausible number of iterations in one block.
const ITERATIONS: std::ops::RangeInclusive<f64> = 1e-9..=1e12;

/// Returns true if the durations and the iterations of a point are plausible.
pub(super) fn is_plausible(event: &Event) -> bool {
    let is_period = [metric::PERIOD, metric::ELAPSED].contains(&event.metric.as_str());
    let is_duration = |ms: f64| ms.abs() <= LONGEST_MS;
    let reading = match event.reading {
        Reading::Double(ms) => is_duration(ms) && !(is_period && ms < SHORTEST_MS),
        Reading::Int(_) => true,
        Reading::Histogram(summary) => {
            let all = [Some(summary.sum), summary.min, summary.max];
            all.into_iter().flatten().all(is_duration)
        }
    };
    let block = event.block.as_ref().is_none_or(|block| {
        let offset = block.anchor.map(|anchor| anchor.offset_ms);
        offset.is_none_or(is_duration) && block.iterations.is_none_or(|n| ITERATIONS.contains(&n))
    });
    reading && block && event.samples.iter().all(|sample| is_duration(sample.value))
}
