//! Time of the job, derived from the clock of this machine.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::config::Speed;
use crate::job::calls::ORIGIN_NS;

/// Current time of this process; acknowledgements are timed with it as well.
#[expect(
    clippy::disallowed_methods,
    reason = "the runtime's time, which tests can pause, also passes while an agent waits"
)]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// Clock that all agents follow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    started: Instant,
    speed: Speed,
}

impl Clock {
    /// Starts the job now.
    pub(super) fn start(speed: Speed) -> Self {
        Self {
            started: now(),
            speed,
        }
    }

    /// Returns the machine's time since the start of the job.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Waits until the job has reached `at_ns` or is stopped; returns how late that is.
    pub(super) async fn wait_until(
        &self,
        at_ns: u64,
        stopped: &mut watch::Receiver<bool>,
    ) -> Duration {
        let Speed::Times(times) = self.speed else {
            tokio::task::yield_now().await;
            return Duration::ZERO;
        };
        let since_begin = Duration::from_nanos(at_ns.saturating_sub(ORIGIN_NS));
        let due = self.started + since_begin.div_f64(times);
        tokio::select! {
            () = sleep_until(due) => {}
            // An error means that the sender of the stop signal is gone.
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
        now().saturating_duration_since(due)
    }
}
