//! Clock as an argument, so that time-dependent code can be tested.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::units::Nanos;

/// Source of the current time.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Returns the current time.
    fn now(&self) -> Nanos;
}

/// The system clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the only place that reads the system clock"
    )]
    fn now(&self) -> Nanos {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Nanos::new(i64::try_from(since_epoch.as_nanos()).unwrap_or(i64::MAX))
    }
}

/// The system clock, set back by a duration that can be changed; clones share one duration.
#[derive(Debug, Clone, Default)]
pub struct DelayedClock(Arc<AtomicI64>);

impl DelayedClock {
    /// Sets the duration by which the clock is behind the system clock.
    pub fn set_delay(&self, delay: Duration) {
        let nanos = i64::try_from(delay.as_nanos()).unwrap_or(i64::MAX);
        self.0.store(nanos, Ordering::SeqCst);
    }
}

impl Clock for DelayedClock {
    fn now(&self) -> Nanos {
        let delay = self.0.load(Ordering::SeqCst);
        SystemClock.now().offset(delay.saturating_neg())
    }
}

/// Clock that only changes when set; clones share one value.
#[derive(Debug, Clone, Default)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// Creates a clock set to `now`.
    pub fn at(now: Nanos) -> Self {
        Self(Arc::new(AtomicI64::new(now.value())))
    }

    /// Sets the time.
    pub fn set(&self, now: Nanos) {
        self.0.store(now.value(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Nanos {
        Nanos::new(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Clock, DelayedClock, ManualClock, SystemClock};
    use crate::units::Nanos;

    #[test]
    fn clones_of_a_delayed_clock_are_behind_by_one_duration() {
        let clock = DelayedClock::default();
        let other = clock.clone();
        clock.set_delay(Duration::from_hours(1));
        let behind_ms = SystemClock.now().millis_since(other.now());
        assert!((3_599e3..=3_601e3).contains(&behind_ms), "{behind_ms} ms");
    }

    #[test]
    fn clones_of_a_manual_clock_share_one_time() {
        let clock = ManualClock::at(Nanos::new(5));
        let other = clock.clone();
        clock.set(Nanos::new(7));
        assert_eq!(other.now(), Nanos::new(7));
    }
}
