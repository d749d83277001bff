//! Group commit: requests that are committed together.
//!
//! A commit costs milliseconds before the first row: the engine parses and plans an insert into
//! each table. So commits start some time apart, and requests that arrive meanwhile share the next
//! one.

use std::time::Duration;

use echo_core::model::detector_output::DetectorOutput;
use echo_core::model::event::EventBatch;
use echo_core::units::Nanos;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::duckdb::rows::dictionary_gc::UnusedEntries;
use crate::duckdb::rows::partition::DeleteRange;
use crate::hours::{Closed, ClosingHour};
use crate::timings::Stopwatch;
use crate::{Appended, StoreError};

/// Approximate number of events per transaction: a group ends with the batch that reaches it.
const GROUP_EVENTS: usize = 50_000;

/// Batch in the queue.
#[derive(Debug)]
pub(super) struct Append {
    /// The batch.
    pub(super) batch: EventBatch,
    /// Receives the result.
    pub(super) answer: oneshot::Sender<Result<Appended, StoreError>>,
    /// Time since it was queued.
    pub(super) queued: Stopwatch,
    /// Capacity of the queue that it occupies.
    pub(super) _capacity: OwnedSemaphorePermit,
}

/// Detector output in the queue.
#[derive(Debug)]
pub(super) struct StoreVerdicts {
    /// Detector output.
    pub(super) output: DetectorOutput,
    /// Receives the result.
    pub(super) answer: oneshot::Sender<Result<(), StoreError>>,
}

/// Group of requests that are committed together.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// Batches, in order of arrival.
    pub(super) appends: Vec<Append>,
    /// Detector output, in order of arrival.
    pub(super) verdicts: Vec<StoreVerdicts>,
    /// Tasks to run after the commit.
    pub(super) tasks: Vec<MaintenanceTask>,
    /// Number of events of the batches.
    pub(super) events: usize,
}

/// Maintenance task that only the writer may run.
#[derive(Debug)]
pub(super) enum MaintenanceTask {
    /// Delete events.
    Delete {
        /// Events to delete.
        range: DeleteRange,
        /// Time of the deletion.
        now: Nanos,
        /// Receives the number of deleted events.
        answer: oneshot::Sender<Result<u64, StoreError>>,
    },
    /// Compact the auxiliary tables.
    CleanUp {
        /// Current time.
        now: Nanos,
        /// Policies computed before this time are deleted.
        policies: Option<Nanos>,
        /// Closed hours that begin before this time are deleted.
        hours: Option<Nanos>,
    },
    /// Close an hour.
    CloseHour {
        /// Costs of the hour.
        closing: ClosingHour,
        /// Receives the result.
        answer: oneshot::Sender<Result<Closed, StoreError>>,
    },
    /// Delete series or origins that nothing refers to.
    DeleteUnused {
        /// Entries to delete, unless an event refers to them again.
        unused: UnusedEntries,
        /// Receives the number of deleted entries.
        answer: oneshot::Sender<Result<u64, StoreError>>,
    },
}

/// Receives the result of closing the store.
pub(super) type Closing = oneshot::Sender<Result<(), StoreError>>;

/// Request to the writer thread.
#[derive(Debug)]
pub(super) enum Request {
    /// Commit a batch.
    Append(Append),
    /// Commit detector output.
    StoreVerdicts(StoreVerdicts),
    /// Run a maintenance task.
    MaintenanceTask(MaintenanceTask),
    /// Close the store.
    Close(Closing),
}

/// Pacing of commits.
#[derive(Debug)]
pub(super) struct Pace {
    every: Duration,
    quiet: Duration,
    begun: Option<Stopwatch>,
}

impl Group {
    /// Waits for a request and takes those queued behind it once another commit may start; `None`
    /// if the queue is closed and empty. Requests to close the store are added to `closing`.
    pub(super) fn gather(
        queued: &mut mpsc::Receiver<Request>,
        pace: &mut Pace,
        closing: &mut Vec<Closing>,
    ) -> Option<Self> {
        let mut group = Self::default();
        let mut next = queued.blocking_recv()?;
        if matches!(next, Request::Append(_) | Request::StoreVerdicts(_)) {
            pace.wait(queued);
        }
        loop {
            match next {
                Request::Append(append) => {
                    group.events += append.batch.events.len();
                    group.appends.push(append);
                }
                Request::StoreVerdicts(request) => group.verdicts.push(request),
                Request::MaintenanceTask(task) => group.tasks.push(task),
                Request::Close(answer) => closing.push(answer),
            }
            if group.events >= GROUP_EVENTS {
                return Some(group);
            }
            let Ok(queued) = queued.try_recv() else {
                return Some(group);
            };
            next = queued;
        }
    }
}

impl Pace {
    /// Commits start `every` apart while requests arrive, and at once when none has arrived for
    /// `quiet`: senders that wait for an acknowledgement before they send again have nothing to
    /// add.
    pub(super) const fn new(every: Duration, quiet: Duration) -> Self {
        Self {
            every,
            quiet,
            begun: None,
        }
    }

    /// Waits until another commit may start.
    fn wait(&mut self, queued: &mpsc::Receiver<Request>) {
        while let Some(rest) = self.rest() {
            let seen = queued.len();
            #[expect(
                clippy::disallowed_methods,
                reason = "a thread of its own, and the queue is what it lets grow"
            )]
            std::thread::sleep(rest.min(self.quiet));
            if queued.len() == seen {
                break;
            }
        }
        self.begun = Some(Stopwatch::start());
    }

    /// Time until the next commit is due; `None` if it is due.
    fn rest(&self) -> Option<Duration> {
        let rest = self.every.checked_sub(self.begun?.elapsed())?;
        (!rest.is_zero()).then_some(rest)
    }
}
