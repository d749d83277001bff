//! Time between a rank's synchronisations and its next collective: whether a rank for which the
//! others wait has a late host. Where GPUs are not timed, nothing else tells.

use std::collections::VecDeque;

use echo_core::model::event::{Event, Reading};
use echo_core::stats::median;
use echo_core::units::Nanos;
use fleet_proto::metric;

/// Largest number of blocks kept per process, 16 bytes each: some minutes.
const MAX_BLOCKS: usize = 128;

/// Time before a fault that is compared with it, milliseconds.
const BEFORE_MS: f64 = 60_000.0;

/// Part of the waiting that the gaps of a late host must explain.
const EXPLAINED: f64 = 0.5;

/// Gaps of one process, oldest first.
#[derive(Debug, Default)]
pub(super) struct HostGaps(VecDeque<GapsOfBlock>);

#[derive(Debug, Clone, Copy)]
struct GapsOfBlock {
    end: Nanos,
    gaps_ms: f32,
    lasted_ms: f32,
}

/// Returns true for points about host gaps.
pub(in crate::detector) fn is_host_gap(event: &Event) -> bool {
    event.metric.as_str() == metric::HOST_GAP
}

impl HostGaps {
    /// Adds the gaps of a block.
    pub(super) fn add(&mut self, event: &Event) {
        let (Reading::Histogram(gaps), Some(start)) = (event.reading, event.start) else {
            return;
        };
        self.0.push_back(GapsOfBlock {
            end: event.timestamp,
            gaps_ms: single(gaps.sum),
            lasted_ms: single(event.timestamp.millis_since(start)),
        });
        if self.0.len() > MAX_BLOCKS {
            self.0.pop_front();
        }
    }

    /// Growth of the gaps in a span over those before it, as a share of the time.
    fn growth(&self, since: Nanos, until: Nanos) -> Option<f64> {
        let during = self.share(|end| since < end && end <= until)?;
        let before = |end: Nanos| end <= since && since.millis_since(end) <= BEFORE_MS;
        Some(during - self.share(before)?)
    }

    /// Gaps of the wanted blocks, as a share of the time.
    fn share(&self, is_wanted: impl Fn(Nanos) -> bool) -> Option<f64> {
        let wanted = self.0.iter().filter(|block| is_wanted(block.end));
        let (gaps_ms, lasted_ms) = wanted.fold((0.0, 0.0), |(gaps_ms, lasted_ms), block| {
            (
                gaps_ms + f64::from(block.gaps_ms),
                lasted_ms + f64::from(block.lasted_ms),
            )
        });
        (lasted_ms > 0.0).then(|| gaps_ms / lasted_ms)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a few digits of some seconds are enough"
)]
const fn single(ms: f64) -> f32 {
    ms as f32
}

/// Returns true if the gaps of a rank grew so much more than those of its peers that its host is why
/// they wait for it, `waited` as a share of the time.
pub(super) fn is_late_host(
    own: &HostGaps,
    peers: &[&HostGaps],
    (since, until): (Nanos, Nanos),
    waited: f64,
) -> bool {
    let of_peers: Vec<f64> = peers
        .iter()
        .filter_map(|gaps| gaps.growth(since, until))
        .collect();
    let beyond = own.growth(since, until).zip(median(&of_peers));
    beyond.is_some_and(|(own, of_peers)| own - of_peers >= EXPLAINED * waited)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(seconds: i64) -> Nanos {
        Nanos::new(1_790_000_000_000_000_000 + seconds * 1_000_000_000)
    }

    /// Gaps of 50 ms per second for a minute, then of so many.
    fn gaps(then_ms: f32) -> HostGaps {
        let block = |at: i64| GapsOfBlock {
            end: second(at),
            gaps_ms: if at <= 60 { 50.0 } else { then_ms },
            lasted_ms: 1_000.0,
        };
        HostGaps((1..=90).map(block).collect())
    }

    fn is_late(own_ms: f32, peers_ms: f32) -> bool {
        let peers = gaps(peers_ms);
        let span = (second(60), second(90));
        is_late_host(&gaps(own_ms), &[&peers, &peers], span, 0.3)
    }

    #[test]
    fn gaps_that_grew_by_the_waiting_are_a_late_host() {
        assert!(is_late(330.0, 50.0));
        assert!(!is_late(60.0, 50.0));
    }

    #[test]
    fn gaps_that_grew_on_all_ranks_are_none() {
        assert!(!is_late(330.0, 330.0));
    }

    #[test]
    fn without_a_past_nothing_is_known() {
        let span = (second(0), second(90));
        assert!(!is_late_host(&gaps(330.0), &[&gaps(50.0)], span, 0.3));
    }
}
