//! Pacing of event time at a chosen speed.

use std::time::Duration;

use tokio::time::{Interval, interval};

use crate::config::Speed;

/// Interval at which a waiting replay continues. Events in between are delivered together, as from
/// a ring buffer.
const TICK: Duration = Duration::from_millis(20);

/// Clock of event time.
#[derive(Debug)]
pub(super) enum Pacer {
    AsFastAsPossible,
    Timed {
        ticks: Interval,
        event_ns_per_tick: f64,
        now_ns: f64,
    },
}

impl Pacer {
    /// Starts at event time 0.
    pub(super) fn new(speed: Speed) -> Self {
        match speed {
            Speed::Max => Self::AsFastAsPossible,
            Speed::Times(times) => Self::Timed {
                ticks: interval(TICK),
                event_ns_per_tick: TICK.as_secs_f64() * 1e9 * times,
                now_ns: 0.0,
            },
        }
    }

    /// Waits until event time has reached `at_ns`. Time lost elsewhere is caught up.
    #[expect(clippy::cast_precision_loss, reason = "pacing needs no nanoseconds")]
    pub(super) async fn wait_until(&mut self, at_ns: u64) {
        if let Self::Timed {
            ticks,
            event_ns_per_tick,
            now_ns,
        } = self
        {
            while *now_ns < at_ns as f64 {
                ticks.tick().await;
                *now_ns += *event_ns_per_tick;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn twice_as_fast_takes_half_the_time() {
        let (started, mut pacer) = (
            tokio::time::sleep(Duration::ZERO),
            Pacer::new(Speed::Times(2.0)),
        );
        let began = started.deadline();
        pacer.wait_until(10_000_000_000).await;
        let took = tokio::time::sleep(Duration::ZERO).deadline() - began;
        assert!((4.9..5.1).contains(&took.as_secs_f64()), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_greatest_speed_does_not_wait() {
        let began = tokio::time::sleep(Duration::ZERO).deadline();
        Pacer::new(Speed::Max).wait_until(u64::MAX).await;
        assert_eq!(tokio::time::sleep(Duration::ZERO).deadline(), began);
    }
}
