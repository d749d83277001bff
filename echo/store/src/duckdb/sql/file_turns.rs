//! Turns of statements, which read the database file in other processes, and of checkpoints, which change it.
//!
//! Statements take their turns together. A checkpoint holds further ones back for a moment until those that are running
//! have ended, and is due again later if they have not. If it had to wait for long, they are stopped for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, watch};

use crate::timings::Stopwatch;

/// Longest time for which a checkpoint holds statements back, and the interval after which it may again.
const PATIENCE: Duration = Duration::from_millis(300);
const HOLD_BACK_EVERY: Duration = Duration::from_secs(1);
/// Interval of looking whether statements are running.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Times for which a checkpoint is put off before statements are stopped for it.
const PUT_OFF_AT_MOST: Duration = Duration::from_secs(30);
const PUT_OFF_URGENT_AT_MOST: Duration = Duration::from_secs(1);

/// How long a checkpoint may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::duckdb) enum Urgency {
    /// Longer than most statements take.
    Usual,
    /// A moment: the log, which every statement reads, is long, or there is no space.
    Urgent,
}

/// Turns at the database file.
#[derive(Debug)]
pub(in crate::duckdb) struct FileTurns {
    file: Arc<RwLock<()>>,
    admission: watch::Sender<Admission>,
    put_off: Mutex<Option<PutOff>>,
}

/// Checkpoint that could not have its turn.
#[derive(Debug, Clone, Copy)]
struct PutOff {
    since: Stopwatch,
    /// Number of times that statements were held back for it.
    attempts: u32,
}

/// Whether statements may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// They may.
    Open,
    /// Running ones may, and further ones wait for a checkpoint.
    Held,
    /// Not until an overdue checkpoint has had its turn.
    Overdue,
    /// No more.
    Closed,
}

/// Turn of a statement, ended on drop.
#[derive(Debug)]
pub(super) struct StatementTurn {
    _file: OwnedRwLockReadGuard<()>,
    admission: watch::Receiver<Admission>,
}

/// Turn of a checkpoint, ended on drop.
#[derive(Debug)]
pub(in crate::duckdb) struct CheckpointTurn {
    _file: OwnedRwLockWriteGuard<()>,
}

impl Default for FileTurns {
    fn default() -> Self {
        Self {
            file: Arc::default(),
            admission: watch::Sender::new(Admission::Open),
            put_off: Mutex::default(),
        }
    }
}

impl FileTurns {
    /// Waits until no checkpoint is waiting or running; `None` when statements may not run any more.
    pub(super) async fn statement(&self) -> Option<StatementTurn> {
        let mut admission = self.admission.subscribe();
        let is_decided = |now: &Admission| matches!(now, Admission::Open | Admission::Closed);
        let admitted = admission.wait_for(is_decided).await;
        if *admitted.ok()? == Admission::Closed {
            return None;
        }
        Some(StatementTurn {
            _file: Arc::clone(&self.file).read_owned().await,
            admission,
        })
    }

    /// Returns the turn of a checkpoint, if no statement is running or those that are end in time; `None` if it is
    /// put off.
    pub(in crate::duckdb) fn checkpoint(&self, urgency: Urgency) -> Option<CheckpointTurn> {
        let mut put_off = self.put_off();
        let waiting = put_off.get_or_insert_with(|| PutOff {
            since: Stopwatch::start(),
            attempts: 0,
        });
        let waited = waiting.since.elapsed();
        let is_overdue = waited
            >= match urgency {
                Urgency::Usual => PUT_OFF_AT_MOST,
                Urgency::Urgent => PUT_OFF_URGENT_AT_MOST,
            };
        let patience = if is_overdue || waited >= HOLD_BACK_EVERY.saturating_mul(waiting.attempts) {
            waiting.attempts = waiting.attempts.saturating_add(1);
            PATIENCE
        } else {
            Duration::ZERO
        };
        if is_overdue {
            self.admit(Admission::Overdue);
        } else if !patience.is_zero() {
            self.admit(Admission::Held);
        }
        let turn = self.turn_within(patience);
        if turn.is_some() {
            *put_off = None;
        }
        if turn.is_some() || !is_overdue {
            self.admit(Admission::Open);
        }
        turn
    }

    fn turn_within(&self, patience: Duration) -> Option<CheckpointTurn> {
        let begun = Stopwatch::start();
        loop {
            match Arc::clone(&self.file).try_write_owned() {
                Ok(file) => return Some(CheckpointTurn { _file: file }),
                Err(_reading) if begun.elapsed() >= patience => return None,
                Err(_reading) => {}
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "a thread of its own, which gives up after a moment"
            )]
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Stops running statements, and lets no more begin.
    pub(super) fn close(&self) {
        self.admission.send_replace(Admission::Closed);
    }

    /// Changes whether statements may run, unless they may not any more.
    fn admit(&self, admission: Admission) {
        self.admission.send_if_modified(|now| {
            let is_changed = *now != Admission::Closed && *now != admission;
            if is_changed {
                *now = admission;
            }
            is_changed
        });
    }

    // No code that holds the lock can panic.
    fn put_off(&self) -> MutexGuard<'_, Option<PutOff>> {
        self.put_off.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StatementTurn {
    /// Waits until the statement has to end, and returns why.
    pub(super) async fn has_to_end(&mut self) -> Admission {
        let has_to_end = |now: &Admission| matches!(now, Admission::Overdue | Admission::Closed);
        let ended = self.admission.wait_for(has_to_end);
        ended
            .await
            .map_or(Admission::Closed, |admission| *admission)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::{Admission, FileTurns, Urgency};

    /// Result of a future that does not have to wait.
    async fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
        timeout(Duration::ZERO, future).await.ok()
    }

    #[tokio::test]
    async fn a_checkpoint_waits_for_statements_and_statements_for_it() {
        let turns = FileTurns::default();
        let running = turns.statement().await.unwrap();
        assert!(turns.checkpoint(Urgency::Usual).is_none());
        drop(running);
        let checkpoint = turns.checkpoint(Urgency::Usual).unwrap();
        assert!(at_once(turns.statement()).await.is_none());
        drop(checkpoint);
        assert!(at_once(turns.statement()).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_waiting_checkpoint_holds_statements_back_and_lets_running_ones_end() {
        let turns = FileTurns::default();
        let mut running = turns.statement().await.unwrap();
        turns.admit(Admission::Held);
        assert!(at_once(turns.statement()).await.is_none());
        assert_eq!(at_once(running.has_to_end()).await, None);
        assert!(turns.checkpoint(Urgency::Usual).is_none());
        assert!(at_once(turns.statement()).await.unwrap().is_some());
        drop(running);
    }

    #[tokio::test]
    async fn statements_have_to_end_when_a_checkpoint_is_overdue_and_when_the_store_closes() {
        let turns = FileTurns::default();
        let mut running = turns.statement().await.unwrap();
        assert_eq!(at_once(running.has_to_end()).await, None);
        turns.admit(Admission::Overdue);
        assert_eq!(running.has_to_end().await, Admission::Overdue);
        assert!(at_once(turns.statement()).await.is_none());
        drop(running);
        drop(turns.checkpoint(Urgency::Usual).unwrap());
        let mut running = turns.statement().await.unwrap();
        turns.close();
        assert_eq!(running.has_to_end().await, Admission::Closed);
        drop(running);
        assert!(turns.statement().await.is_none());
        turns.admit(Admission::Open);
        assert!(turns.statement().await.is_none());
    }
}
