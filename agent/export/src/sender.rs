//! Delivery of a live agent: never gives up, and keeps on disk what the receiver does not take for a few seconds.
//!
//! Batches are sent one at a time and in order. One that has waited too long goes to the spool, and so does all that
//! follows until the spool is empty again: what is in it is older than what waits in memory. A batch keeps its instance
//! and number wherever it waits, so that the receiver stores it once however often it is sent.

mod point_lane;
mod retries;
mod shutdown;
mod spool_worker;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::Forward;
use crate::delivery::acknowledgement::Ledger;
use crate::delivery::report::Report;
use crate::delivery::verdicts::VerdictLane;
use crate::delivery::{Outbox, WhenFull};
use crate::sender::point_lane::Lane;
use crate::sender::retries::Retries;
pub use crate::sender::shutdown::Finish;
use crate::sender::spool_worker::Keeper;
use crate::spool::Spool;
use crate::vitals::Vitals;

/// How long own verdicts are tried, which are not kept on disk.
const VERDICTS_GIVE_UP_AFTER: Duration = Duration::from_mins(1);

/// How a live agent sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Points that may wait in memory.
    pub queue_points: usize,
    /// How long a batch waits in memory before it goes to the spool.
    pub patience: Duration,
}

/// Takes batches from the queues and brings them to the receiver, by way of the disk if need be.
#[derive(Debug)]
pub struct Sender<E> {
    exporter: E,
    points: Lane,
    verdicts: VerdictLane,
    ending: shutdown::Ending,
    vitals: Arc<Vitals>,
}

impl<E: Forward> Sender<E> {
    /// A bounded queue in front of `exporter`, with a spool or without. What a spool holds already is sent first.
    pub fn new(exporter: E, settings: Settings, spool: Option<Spool>) -> (Outbox, Finish, Self) {
        let vitals = Arc::new(Vitals::default());
        let (outbox, inbox) = Outbox::new(settings.queue_points, WhenFull::Drop, &vitals);
        let (finish, deadline) = watch::channel(None);
        let ending = shutdown::Ending {
            deadline,
            policy: inbox.policy.clone(),
            patience: settings.patience,
        };
        let sender = Self {
            exporter,
            points: Lane {
                queue: inbox.points,
                ledger: Ledger::new(inbox.policy, &vitals),
                keeper: Keeper::new(spool, &vitals),
                retries: Retries::new(&vitals),
                patience: settings.patience,
            },
            verdicts: VerdictLane::new(inbox.verdicts, VERDICTS_GIVE_UP_AFTER, &vitals),
            ending,
            vitals,
        };
        (outbox, Finish::new(finish), sender)
    }

    /// The counters, which may be read while this runs and afterwards.
    pub fn vitals(&self) -> Arc<Vitals> {
        Arc::clone(&self.vitals)
    }

    /// Delivers until the outbox is gone and everything is sent, or until there is no more time for it: that named to
    /// [`Finish`], else as long as a batch waits in memory, from when the outbox is gone.
    pub async fn run(self) -> Report {
        let Self {
            exporter,
            mut points,
            mut verdicts,
            ending,
            vitals,
        } = self;
        let tell = async {
            tokio::select! {
                () = verdicts.run(&exporter) => {}
                () = ending.clone().passed() => {}
            }
        };
        // In boxes, so that whoever awaits this need not carry all of it.
        let send = Box::pin(points.run(&exporter, ending.clone().passed()));
        tokio::join!(send, Box::pin(tell));
        let mut report = points.ledger.conclude();
        report.retries = vitals.read().retries;
        report.verdicts = verdicts.conclude();
        report
    }
}

#[cfg(test)]
mod tests;
