//! The time of the job on the clock of the machine.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::config::Speed;
use crate::job::calls::ORIGIN_NS;

/// When it is, in this process. The acknowledgement of a batch is timed by it, too.
#[expect(
    clippy::disallowed_methods,
    reason = "the runtime's time, which tests can pause, also passes while an agent waits"
)]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// The clock that all agents follow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    started: Instant,
    speed: Speed,
}

impl Clock {
    /// The job begins now.
    pub(super) fn start(speed: Speed) -> Self {
        Self {
            started: now(),
            speed,
        }
    }

    /// Since the begin of the job, of the machine's time.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Waits until the job has come to `at_ns`, or is to be stopped; how much later than that it is.
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
            // An error says that nobody is left who could stop it.
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
        now().saturating_duration_since(due)
    }
}
