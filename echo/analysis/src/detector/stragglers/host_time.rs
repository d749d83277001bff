//! Time that hosts spend outside of synchronisations with their GPUs: whether a rank for which the
//! others wait has a late host. Where GPUs are not timed, nothing else tells. A host that waits for
//! its own late GPU is blocked as long as its peers, who wait for the rank.

use std::collections::VecDeque;

use echo_core::model::event::{Event, Reading};
use echo_core::stats::median;
use echo_core::units::Nanos;
use fleet_proto::metric;

/// Largest number of blocks kept per process, 16 bytes each: some minutes.
const MAX_BLOCKS: usize = 256;

/// Time before a fault that is compared with it, milliseconds.
const BEFORE_MS: f64 = 60_000.0;

/// Part of the waiting that the time outside of synchronisations must explain.
const EXPLAINED: f64 = 0.5;

/// Blocks of one process in which its host was blocked, oldest first.
#[derive(Debug, Default)]
pub(super) struct HostTime(VecDeque<Blocked>);

#[derive(Debug, Clone, Copy)]
struct Blocked {
    end: Nanos,
    ms: f64,
}

/// Returns true for points about the time that a host was blocked.
pub(in crate::detector) fn is_blocked_time(event: &Event) -> bool {
    event.metric.as_str() == metric::BLOCKED
}

impl HostTime {
    /// Adds a block.
    pub(super) fn add(&mut self, event: &Event) {
        let Reading::Histogram(blocked) = event.reading else {
            return;
        };
        self.0.push_back(Blocked {
            end: event.timestamp,
            ms: blocked.sum,
        });
        if self.0.len() > MAX_BLOCKS {
            self.0.pop_front();
        }
    }

    /// Growth of the time outside of synchronisations in a span over that before it, as a share of the
    /// time.
    fn growth(&self, since: Nanos, until: Nanos) -> Option<f64> {
        let blocked_during = self.blocked_share(|end| since <= end && end <= until)?;
        let before = |end: Nanos| end <= since && since.millis_since(end) <= BEFORE_MS;
        Some(self.blocked_share(before)? - blocked_during)
    }

    /// Time blocked between the first and the last of the wanted blocks, as a share of the time.
    fn blocked_share(&self, is_wanted: impl Fn(Nanos) -> bool) -> Option<f64> {
        let mut wanted = self.0.iter().filter(|block| is_wanted(block.end));
        let first = wanted.next()?.end;
        let (last, blocked_ms) = wanted.fold((first, 0.0), |(last, ms), block| {
            (last.max(block.end), ms + block.ms)
        });
        (last > first).then(|| blocked_ms / last.millis_since(first))
    }
}

/// Returns true if a rank's host spends so much more time outside of synchronisations than those of
/// its peers that it is why they wait for it, `waited` as a share of the time.
pub(super) fn is_late_host(
    own: &HostTime,
    peers: &[&HostTime],
    (since, until): (Nanos, Nanos),
    waited: f64,
) -> bool {
    let of_peers: Vec<f64> = peers
        .iter()
        .filter_map(|time| time.growth(since, until))
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

    /// A host that is blocked for 400 ms per second for a minute, then for so many.
    fn blocked(then_ms: f64) -> HostTime {
        let block = |at: i64| Blocked {
            end: second(at),
            ms: if at <= 60 { 400.0 } else { then_ms },
        };
        HostTime((1..=90).map(block).collect())
    }

    fn is_late(own_ms: f64, peers_ms: f64) -> bool {
        let peers = blocked(peers_ms);
        let span = (second(60), second(90));
        is_late_host(&blocked(own_ms), &[&peers, &peers], span, 0.3)
    }

    #[test]
    fn a_host_that_is_not_blocked_while_its_peers_wait_for_it_is_late() {
        assert!(is_late(300.0, 600.0));
    }

    #[test]
    fn a_host_that_is_blocked_by_its_own_gpu_is_not_late() {
        assert!(!is_late(600.0, 600.0));
        assert!(!is_late(550.0, 600.0));
    }

    #[test]
    fn without_a_past_nothing_is_known() {
        let span = (second(0), second(90));
        assert!(!is_late_host(
            &blocked(300.0),
            &[&blocked(600.0)],
            span,
            0.3
        ));
    }
}
