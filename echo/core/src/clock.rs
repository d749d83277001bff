//! Clock as an argument, so that time-dependent code can be tested.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

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
    use super::{Clock, ManualClock};
    use crate::units::Nanos;

    #[test]
    fn clones_of_a_manual_clock_share_one_time() {
        let clock = ManualClock::at(Nanos::new(5));
        let other = clock.clone();
        clock.set(Nanos::new(7));
        assert_eq!(other.now(), Nanos::new(7));
    }
}
