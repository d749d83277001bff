//! Deadline of a sender.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use fleet_proto::policy::PolicySet;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::now;

/// Sets the deadline of a sender.
#[derive(Debug)]
pub struct ShutdownHandle(watch::Sender<Option<Instant>>);

impl ShutdownHandle {
    pub(super) fn new(deadline: watch::Sender<Option<Instant>>) -> Self {
        Self(deadline)
    }

    /// Sends what is queued for at most `limit`; the rest is spooled, or counted as lost without a
    /// spool. A further call replaces the limit.
    pub fn stop_within(&self, limit: Duration) {
        let now = now();
        let at = now.checked_add(limit).unwrap_or(now);
        self.0.send_replace(Some(at));
    }
}

/// Time after which nothing is sent any more.
#[derive(Debug, Clone)]
pub(super) struct ShutdownDeadline {
    pub(super) deadline: watch::Receiver<Option<Instant>>,
    /// Policy channel back to the source, which closes when the source is dropped.
    pub(super) policy: watch::Sender<Option<Arc<PolicySet>>>,
    pub(super) grace: Duration,
}

impl ShutdownDeadline {
    /// Completes at the deadline, or when the source has been gone for long enough.
    pub(super) async fn reached(mut self) {
        let mut source_is_gone = pin!(self.policy.closed());
        let mut default = None;
        loop {
            let given = *self.deadline.borrow_and_update();
            let at = given.or(default);
            tokio::select! {
                () = sleep_until(at.unwrap_or_else(now)), if at.is_some() => return,
                Ok(()) = self.deadline.changed() => {}
                () = &mut source_is_gone, if default.is_none() => {
                    default = now().checked_add(self.grace);
                }
            }
        }
    }
}
