//! When a sender has to end.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use fleet_proto::policy::PolicySet;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::now;

/// Says when a sender has to end.
#[derive(Debug)]
pub struct Finish(watch::Sender<Option<Instant>>);

impl Finish {
    pub(super) fn new(deadline: watch::Sender<Option<Instant>>) -> Self {
        Self(deadline)
    }

    /// From now on what waits is sent for at most `limit`; the rest goes to the spool, or is counted as lost without one.
    /// Called again it sets a new limit.
    pub fn within(&self, limit: Duration) {
        let now = now();
        let at = now.checked_add(limit).unwrap_or(now);
        self.0.send_replace(Some(at));
    }
}

/// The moment from which on nothing is sent any more.
#[derive(Debug, Clone)]
pub(super) struct Ending {
    pub(super) deadline: watch::Receiver<Option<Instant>>,
    /// The way back to the source, which closes when the source is gone.
    pub(super) policy: watch::Sender<Option<Arc<PolicySet>>>,
    pub(super) patience: Duration,
}

impl Ending {
    /// Completes at the moment that was named, else when the source has been gone for long enough.
    pub(super) async fn passed(mut self) {
        let mut source_is_gone = pin!(self.policy.closed());
        let mut unnamed = None;
        loop {
            let named = *self.deadline.borrow_and_update();
            let at = named.or(unnamed);
            tokio::select! {
                () = sleep_until(at.unwrap_or_else(now)), if at.is_some() => return,
                Ok(()) = self.deadline.changed() => {}
                () = &mut source_is_gone, if unnamed.is_none() => {
                    unnamed = now().checked_add(self.patience);
                }
            }
        }
    }
}
