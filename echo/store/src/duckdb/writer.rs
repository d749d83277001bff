//! Writer thread. It owns the only read-write connection, so nothing ever waits for a lock inside
//! the engine, and commits in groups: requests that arrived since the last commit began form the
//! next group.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use echo_core::model::detector_output::DetectorOutput;
use echo_core::model::event::EventBatch;
use echo_core::spans;
use echo_core::units::Nanos;
use tokio::sync::{Semaphore, TryAcquireError, mpsc, oneshot};
use tracing::{Span, trace_span};

use crate::duckdb::DuckDbConfig;
use crate::duckdb::commit::Session;
use crate::duckdb::group_commit::{Append, Group, MaintenanceTask, Pace, Request, StoreVerdicts};
use crate::duckdb::lock::Lock;
use crate::duckdb::rows::dictionary_gc::UnusedEntries;
use crate::duckdb::rows::partition::DeleteRange;
use crate::hours::{Closed, ClosingHour};
use crate::timings::Stopwatch;
use crate::{Appended, StoreError};

/// Maximum number of queued requests. Events are the actual limit; this bounds requests with almost
/// none.
const QUEUED_REQUESTS: usize = 16_384;

/// Handle of the writer thread.
#[derive(Debug)]
pub(super) struct Writer {
    // Fields are dropped in this order: the queue closes, then the thread is joined.
    requests: mpsc::Sender<Request>,
    queue: Arc<Semaphore>,
    queue_events: u32,
    at_work: AtWork,
    _thread: Joined,
}

/// Time since which the group in progress has waited; `None` while the thread is idle. Queued
/// requests have waited no longer.
#[derive(Debug, Clone, Default)]
struct AtWork(Arc<Mutex<Option<Stopwatch>>>);

/// Queue of maintenance tasks. Does not keep the writer alive.
#[derive(Debug)]
pub(super) struct MaintenanceQueue(mpsc::WeakSender<Request>);

/// Thread that is joined on drop.
#[derive(Debug)]
pub(super) struct Joined(Option<JoinHandle<()>>);

/// Error of a thread that cannot be started.
pub(super) fn no_thread(error: io::Error) -> StoreError {
    StoreError::Engine {
        doing: "starting a thread",
        reason: error.to_string(),
    }
}

impl Writer {
    /// Starts the thread. It releases `lock` as its last action.
    pub(super) fn start(
        session: Session,
        lock: Arc<Lock>,
        config: &DuckDbConfig,
    ) -> io::Result<Self> {
        let queue_events = config.queue_events.max(1);
        let pace = Pace::new(config.commit_every, config.commit_after_quiet);
        let (requests, queued) = mpsc::channel(QUEUED_REQUESTS);
        let at_work = AtWork::default();
        let seen = at_work.clone();
        let work = move || write(session, lock, queued, pace, &seen);
        let thread = Joined::start("store-writer", work)?;
        Ok(Self {
            requests,
            queue: Arc::new(Semaphore::new(queue_events as usize)),
            queue_events,
            at_work,
            _thread: thread,
        })
    }

    /// Queue of maintenance tasks of this writer.
    pub(super) fn maintenance_queue(&self) -> MaintenanceQueue {
        MaintenanceQueue(self.requests.downgrade())
    }

    /// Number of queued events, and its maximum.
    pub(super) fn queued_events(&self) -> (u64, u64) {
        let free = u32::try_from(self.queue.available_permits()).unwrap_or(u32::MAX);
        let waiting = self.queue_events.saturating_sub(free);
        (u64::from(waiting), u64::from(self.queue_events))
    }

    /// Waiting time of the oldest request.
    pub(super) fn oldest_wait(&self) -> Option<Duration> {
        let since = *self.at_work.lock();
        since.map(Stopwatch::elapsed)
    }

    /// Returns true if the writer accepts no more requests.
    pub(super) fn is_closed(&self) -> bool {
        self.requests.is_closed()
    }

    /// Queues a batch and waits until it is committed.
    pub(super) async fn append(&self, batch: EventBatch) -> Result<Appended, StoreError> {
        // An empty batch takes one unit of capacity, too; one that is larger than the queue waits
        // until the queue is empty.
        let events = u32::try_from(batch.events.len()).unwrap_or(u32::MAX);
        let capacity = Arc::clone(&self.queue)
            .try_acquire_many_owned(events.clamp(1, self.queue_events))
            .map_err(|refused| match refused {
                TryAcquireError::NoPermits => StoreError::Busy,
                TryAcquireError::Closed => StoreError::Closed,
            })?;
        let (answer, answered) = oneshot::channel();
        self.request(Request::Append(Append {
            batch,
            answer,
            queued: Stopwatch::start(),
            _capacity: capacity,
        }))?;
        answered.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Queues detector output and waits until it is committed.
    pub(super) async fn store_verdicts(&self, output: DetectorOutput) -> Result<(), StoreError> {
        let (answer, answered) = oneshot::channel();
        self.request(Request::StoreVerdicts(StoreVerdicts { output, answer }))?;
        answered.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Queues the costs of an hour and waits until they are committed.
    pub(super) async fn close_hour(&self, closing: ClosingHour) -> Result<Closed, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.request(Request::MaintenanceTask(MaintenanceTask::CloseHour {
            closing,
            answer,
        }))?;
        answered.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Commits the queue, checkpoints and ends the thread.
    pub(super) async fn close(&self) -> Result<(), StoreError> {
        let (answer, answered) = oneshot::channel();
        match self.requests.send(Request::Close(answer)).await {
            Ok(()) => answered.await.unwrap_or(Err(StoreError::Closed)),
            Err(_closed_before) => Ok(()),
        }
    }

    fn request(&self, request: Request) -> Result<(), StoreError> {
        self.requests
            .try_send(request)
            .map_err(|refused| match refused {
                mpsc::error::TrySendError::Full(_) => StoreError::Busy,
                mpsc::error::TrySendError::Closed(_) => StoreError::Closed,
            })
    }
}

impl AtWork {
    fn set(&self, since: Option<Stopwatch>) {
        *self.lock() = since;
    }

    // No code that holds the lock can panic.
    fn lock(&self) -> MutexGuard<'_, Option<Stopwatch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MaintenanceQueue {
    /// Deletes events and waits for the commit; must not be called on the runtime. Returns the
    /// number of deleted events.
    pub(super) fn delete(&self, range: DeleteRange, now: Nanos) -> Result<u64, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.send(MaintenanceTask::Delete { range, now, answer })?;
        answered.blocking_recv().unwrap_or(Err(StoreError::Closed))
    }

    /// Queues the deletion of expired batch keys, states, policies (before `policies`) and closed
    /// hours (before `hours`).
    pub(super) fn clean_up(
        &self,
        now: Nanos,
        policies: Option<Nanos>,
        hours: Option<Nanos>,
    ) -> Result<(), StoreError> {
        self.send(MaintenanceTask::CleanUp {
            now,
            policies,
            hours,
        })
    }

    /// Deletes series or origins and waits for the commit; must not be called on the runtime.
    /// Returns the number of deleted entries.
    pub(super) fn delete_unused(&self, unused: UnusedEntries) -> Result<u64, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.send(MaintenanceTask::DeleteUnused { unused, answer })?;
        answered.blocking_recv().unwrap_or(Err(StoreError::Closed))
    }

    fn send(&self, task: MaintenanceTask) -> Result<(), StoreError> {
        let sent = match self.0.upgrade() {
            Some(requests) => requests.blocking_send(Request::MaintenanceTask(task)).ok(),
            None => None,
        };
        sent.ok_or(StoreError::Closed)
    }
}

impl Joined {
    /// Starts a thread.
    pub(super) fn start(
        name: &'static str,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(work)?;
        Ok(Self(Some(thread)))
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        let panicked = self.0.take().is_some_and(|thread| thread.join().is_err());
        if panicked {
            tracing::error!("a thread of the store panicked");
        }
    }
}

fn write(
    mut session: Session,
    lock: Arc<Lock>,
    mut queued: mpsc::Receiver<Request>,
    mut pace: Pace,
    at_work: &AtWork,
) {
    let mut closing = Vec::new();
    while let Some(mut group) = Group::gather(&mut queued, &mut pace, &mut closing) {
        let tasks = std::mem::take(&mut group.tasks);
        let first = group.appends.first().map(|append| append.queued);
        at_work.set(Some(first.unwrap_or_else(Stopwatch::start)));
        let batches = group.appends.len();
        let span =
            trace_span!(target: spans::TARGET, spans::COMMIT, batches, events = group.events);
        span.in_scope(|| session.commit(group));
        for task in tasks {
            at_work.set(Some(Stopwatch::start()));
            let span = match task {
                MaintenanceTask::Delete { .. } => {
                    trace_span!(target: spans::TARGET, spans::RETENTION)
                }
                MaintenanceTask::CleanUp { .. }
                | MaintenanceTask::DeleteUnused { .. }
                | MaintenanceTask::CloseHour { .. } => Span::none(),
            };
            span.in_scope(|| session.run_task(task));
        }
        at_work.set(None);
        if !closing.is_empty() {
            queued.close();
        }
    }
    let mut closed = session.close();
    drop(lock);
    for answer in closing {
        let first = std::mem::replace(&mut closed, Ok(()));
        // The caller may be gone.
        drop(answer.send(first));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use echo_core::model::event::EventBatch;
    use tokio::sync::{Semaphore, mpsc};

    use super::{AtWork, Joined, Request, Writer};
    use crate::contract::sample::{batch, origin, wait};
    use crate::{Appended, StoreError};

    /// Writer whose queue the test processes by hand.
    fn idle(queue_events: u32) -> (Writer, mpsc::Receiver<Request>) {
        let (requests, queued) = mpsc::channel(16);
        let writer = Writer {
            requests,
            queue: Arc::new(Semaphore::new(queue_events as usize)),
            queue_events,
            at_work: AtWork::default(),
            _thread: Joined(None),
        };
        (writer, queued)
    }

    fn of_events(count: usize) -> EventBatch {
        batch(1, vec![wait(&origin("prod", "node-1", 0), 10); count])
    }

    async fn answer_one(queued: &mut mpsc::Receiver<Request>) {
        let Some(Request::Append(append)) = queued.recv().await else {
            panic!("no batch in the queue");
        };
        let events = append.batch.events.len();
        drop(append.answer.send(Ok(Appended::Stored { events })));
    }

    #[tokio::test]
    async fn a_full_queue_is_busy_until_a_batch_is_answered() {
        let (writer, mut queued) = idle(10);
        let first = writer.append(of_events(8));
        let rest = async {
            let refused = writer.append(of_events(3)).await;
            assert!(matches!(refused, Err(StoreError::Busy)), "{refused:?}");
            answer_one(&mut queued).await;
            let again = writer.append(of_events(3));
            let (again, ()) = tokio::join!(again, answer_one(&mut queued));
            assert_eq!(again.unwrap(), Appended::Stored { events: 3 });
        };
        let (first, ()) = tokio::join!(biased; first, rest);
        assert_eq!(first.unwrap(), Appended::Stored { events: 8 });
    }

    #[tokio::test]
    async fn a_batch_larger_than_the_queue_is_accepted_when_it_is_empty() {
        let (writer, mut queued) = idle(10);
        let large = writer.append(of_events(11));
        let (large, ()) = tokio::join!(large, answer_one(&mut queued));
        assert_eq!(large.unwrap(), Appended::Stored { events: 11 });
    }

    #[tokio::test]
    async fn a_writer_that_has_ended_is_closed() {
        let (writer, queued) = idle(10);
        drop(queued);
        let refused = writer.append(of_events(1)).await;
        assert!(matches!(refused, Err(StoreError::Closed)));
        writer.close().await.unwrap();
    }
}
