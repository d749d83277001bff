//! What is committed together.
//!
//! A commit costs milliseconds before the first row: the engine parses and plans an insert into each table. So commits begin
//! some time apart, and what comes meanwhile shares the next one.

use std::time::Duration;

use echo_core::model::detector_output::DetectorOutput;
use echo_core::model::event::EventBatch;
use echo_core::units::Nanos;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::duckdb::rows::dictionary_gc::Unused;
use crate::duckdb::rows::partition::Cut;
use crate::hours::{Closed, ClosingHour};
use crate::timings::Stopwatch;
use crate::{Appended, StoreError};

/// Events in one transaction, roughly: a group ends with the batch that reaches it.
const GROUP_EVENTS: usize = 50_000;

/// A batch that waits for its commit.
#[derive(Debug)]
pub(super) struct Append {
    /// The batch.
    pub(super) batch: EventBatch,
    /// Where the outcome is awaited.
    pub(super) answer: oneshot::Sender<Result<Appended, StoreError>>,
    /// Since when it waits.
    pub(super) queued: Stopwatch,
    /// Its place in the queue.
    pub(super) _place: OwnedSemaphorePermit,
}

/// DetectorOutput that wait for their commit.
#[derive(Debug)]
pub(super) struct Conclude {
    /// The conclusions.
    pub(super) conclusions: DetectorOutput,
    /// Where the outcome is awaited.
    pub(super) answer: oneshot::Sender<Result<(), StoreError>>,
}

/// What is committed together.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// Batches, in the order in which they came.
    pub(super) appends: Vec<Append>,
    /// DetectorOutput, in the order in which they came.
    pub(super) concludes: Vec<Conclude>,
    /// What is done after the commit.
    pub(super) chores: Vec<Chore>,
    /// Events of the batches.
    pub(super) events: usize,
}

/// Upkeep that only the writer may do.
#[derive(Debug)]
pub(super) enum Chore {
    /// Delete events.
    Delete {
        /// Which.
        cut: Cut,
        /// The time to note.
        now: Nanos,
        /// Where the number of deleted events is awaited.
        answer: oneshot::Sender<Result<u64, StoreError>>,
    },
    /// Make small what grows on the side.
    Tidy {
        /// The time to go by.
        now: Nanos,
        /// Policies computed before are forgotten.
        policies: Option<Nanos>,
        /// Closed hours that begin before are forgotten.
        hours: Option<Nanos>,
    },
    /// Close an hour.
    CloseHour {
        /// What it came to.
        closing: ClosingHour,
        /// Where the outcome is awaited.
        answer: oneshot::Sender<Result<Closed, StoreError>>,
    },
    /// Forget series or origins that nothing refers to.
    Forget {
        /// Which, unless something refers to them again.
        unused: Unused,
        /// Where the number of forgotten ones is awaited.
        answer: oneshot::Sender<Result<u64, StoreError>>,
    },
}

/// Where whoever asked to close the store waits for it.
pub(super) type Closing = oneshot::Sender<Result<(), StoreError>>;

/// What the thread is asked to do.
#[derive(Debug)]
pub(super) enum Request {
    /// Commit a batch.
    Append(Append),
    /// Commit conclusions.
    Conclude(Conclude),
    /// Do some upkeep.
    Chore(Chore),
    /// End.
    Close(Closing),
}

/// How often commits begin.
#[derive(Debug)]
pub(super) struct Pace {
    every: Duration,
    quiet: Duration,
    begun: Option<Stopwatch>,
}

impl Group {
    /// Waits for a request and takes those that are queued behind it when the pace allows a commit; nothing when the queue
    /// is closed and empty. Whoever asks to close the store is added to `closing`.
    pub(super) fn gather(
        queued: &mut mpsc::Receiver<Request>,
        pace: &mut Pace,
        closing: &mut Vec<Closing>,
    ) -> Option<Self> {
        let mut group = Self::default();
        let mut next = queued.blocking_recv()?;
        if matches!(next, Request::Append(_) | Request::Conclude(_)) {
            pace.wait(queued);
        }
        loop {
            match next {
                Request::Append(append) => {
                    group.events += append.batch.events.len();
                    group.appends.push(append);
                }
                Request::Conclude(conclude) => group.concludes.push(conclude),
                Request::Chore(chore) => group.chores.push(chore),
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
    /// Commits that begin `every` apart while requests arrive, and at once when none has arrived for `quiet`: senders that
    /// wait for an acknowledgement before they send again have nothing to add.
    pub(super) const fn new(every: Duration, quiet: Duration) -> Self {
        Self {
            every,
            quiet,
            begun: None,
        }
    }

    /// Waits until another commit may begin.
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

    /// The time until the next commit is due; none when it is.
    fn rest(&self) -> Option<Duration> {
        let rest = self.every.checked_sub(self.begun?.elapsed())?;
        (!rest.is_zero()).then_some(rest)
    }
}
