//! Delivery of a live agent: never gives up, and spools to disk what the receiver does not accept
//! within a few seconds.
//!
//! Batches are sent one at a time and in order. A batch that has waited too long is spooled, and so
//! are all that follow until the spool is empty again, since spooled batches are older than those
//! in memory. A batch keeps its instance and number wherever it waits, so the receiver stores it
//! exactly once however often it is sent.

mod point_lane;
mod retries;
mod shutdown;
mod spool_worker;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::Forward;
use crate::delivery::acknowledgement::AckTracker;
use crate::delivery::report::Report;
use crate::delivery::verdicts::VerdictLane;
use crate::delivery::{Outbox, WhenFull};
use crate::sender::point_lane::PointLane;
use crate::sender::retries::Retries;
pub use crate::sender::shutdown::ShutdownHandle;
use crate::sender::spool_worker::SpoolWorker;
use crate::spool::Spool;
use crate::vitals::Vitals;

/// Retry limit of self-verdicts, which are not spooled.
const VERDICTS_GIVE_UP_AFTER: Duration = Duration::from_mins(1);

/// Settings of a live agent's sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of points queued in memory.
    pub queue_points: usize,
    /// Time that a batch waits in memory before it is spooled.
    pub spool_after: Duration,
}

/// Takes batches from the queues and sends them to the receiver, through the spool if necessary.
#[derive(Debug)]
pub struct Sender<E> {
    exporter: E,
    points: PointLane,
    verdicts: VerdictLane,
    shutdown: shutdown::ShutdownDeadline,
    vitals: Arc<Vitals>,
}

impl<E: Forward> Sender<E> {
    /// Creates a bounded queue in front of `exporter`, with or without a spool. Batches that the
    /// spool already holds are sent first.
    pub fn new(
        exporter: E,
        settings: Settings,
        spool: Option<Spool>,
    ) -> (Outbox, ShutdownHandle, Self) {
        let vitals = Arc::new(Vitals::default());
        let (outbox, inbox) = Outbox::new(settings.queue_points, WhenFull::Drop, &vitals);
        let (set_deadline, deadline) = watch::channel(None);
        let shutdown = shutdown::ShutdownDeadline {
            deadline,
            policy: inbox.feedback.policy.clone(),
            grace: settings.spool_after,
        };
        let sender = Self {
            exporter,
            points: PointLane {
                queue: inbox.points,
                acks: AckTracker::new(inbox.feedback, &vitals),
                spool: SpoolWorker::new(spool, &vitals),
                retries: Retries::new(&vitals),
                spool_after: settings.spool_after,
            },
            verdicts: VerdictLane::new(inbox.verdicts, VERDICTS_GIVE_UP_AFTER, &vitals),
            shutdown,
            vitals,
        };
        (outbox, ShutdownHandle::new(set_deadline), sender)
    }

    /// Returns the counters, which can be read during and after the run.
    pub fn vitals(&self) -> Arc<Vitals> {
        Arc::clone(&self.vitals)
    }

    /// Delivers until the outbox is dropped and everything is sent, or until the deadline: the one
    /// given to [`ShutdownHandle`], else the spool delay after the outbox was dropped.
    pub async fn run(self) -> Report {
        let Self {
            exporter,
            mut points,
            mut verdicts,
            shutdown,
            vitals,
        } = self;
        let send_verdicts = async {
            tokio::select! {
                () = verdicts.run(&exporter) => {}
                () = shutdown.clone().reached() => {}
            }
        };
        // Boxed to keep the future of the caller small.
        let send_points = Box::pin(points.run(&exporter, shutdown.clone().reached()));
        tokio::join!(send_points, Box::pin(send_verdicts));
        let mut report = points.acks.into_report();
        report.retries = vitals.read().retries;
        report.verdicts = verdicts.into_report();
        report
    }
}

#[cfg(test)]
mod tests;
