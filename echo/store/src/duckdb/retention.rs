//! Retention: keeps the database within its limits by deleting whole slices of received time,
//! oldest first.
//!
//! The maintenance thread decides what to delete; the writer deletes it in steps between its
//! commits, so that no request waits for more than one step. The next checkpoint frees the space
//! for new rows; the file itself does not shrink.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use duckdb::Connection;
use echo_core::clock::Clock;
use echo_core::units::Nanos;

use crate::StoreError;
use crate::duckdb::disk_space::DiskSpace;
use crate::duckdb::engine::{EngineResult, engine};
use crate::duckdb::rows::dictionary_gc;
use crate::duckdb::rows::partition::{self, Blocks, DeleteRange};
use crate::duckdb::shutdown::Signal;
use crate::duckdb::writer::MaintenanceQueue;
use crate::limits::Limits;

mod progress;
mod steps;
mod time_slice;

pub(super) use progress::Progress;
use steps::Steps;
use time_slice::{TimeSlice, TrustedTime};

/// Interval of checks of the age of events.
const AGE_CHECK_EVERY: i64 = 60 * 1_000_000_000;

/// Interval of cleanup tasks.
const CLEANUP_EVERY: i64 = 3_600 * 1_000_000_000;

/// A job with events younger than this is running.
const RUNNING_JOB_WINDOW: i64 = 600 * 1_000_000_000;

/// Rounds to wait for a checkpoint to free deleted rows, before more is deleted for the same
/// reason.
const PATIENCE_ROUNDS: u32 = 60;

/// Rounds in which checkpoints try to free what was deleted earlier, before anything is deleted.
const ROUNDS_BEFORE_DELETING: u32 = 2;

/// Enforces the limits.
#[derive(Debug)]
pub(super) struct Retention {
    limits: Limits,
    disk_space: Arc<DiskSpace>,
    clock: Arc<dyn Clock>,
    tasks: MaintenanceQueue,
    progress: Progress,
    time: TrustedTime,
    looked: Option<Nanos>,
    cleaned_up: Option<Nanos>,
    /// True if events may have been deleted since unused entries were last searched for; unknown
    /// before the start.
    has_deleted: Cell<bool>,
    /// Checkpoints that have to free deleted rows before more is deleted.
    waiting: Option<Waiting>,
}

/// Wait for checkpoints to free deleted rows.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    /// Used bytes at its beginning.
    used: u64,
    /// Remaining rounds.
    rounds: u32,
}

/// Reason for deleting a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Age(Duration),
    Size { used: u64, begin: u64 },
    Floor { available: u64, floor: u64 },
}

impl Retention {
    /// Enforces `limits`.
    pub(super) fn new(
        limits: Limits,
        disk_space: &Arc<DiskSpace>,
        clock: Arc<dyn Clock>,
        tasks: MaintenanceQueue,
        progress: Progress,
    ) -> Self {
        Self {
            limits,
            disk_space: Arc::clone(disk_space),
            clock,
            tasks,
            progress,
            time: TrustedTime::default(),
            looked: None,
            cleaned_up: None,
            has_deleted: Cell::new(true),
            waiting: None,
        }
    }

    /// Runs one round, `after` the last one.
    pub(super) fn round(
        &mut self,
        connection: &Connection,
        signal: &Signal,
        after: Duration,
        checkpoint: impl Fn(),
    ) {
        match self.enforce(connection, signal, after, &checkpoint) {
            Ok(()) | Err(StoreError::Closed) => {}
            Err(error) => tracing::warn!(
                error = echo_core::error::chain(&error),
                "cannot enforce the limits of the database"
            ),
        }
    }

    fn enforce(
        &mut self,
        connection: &Connection,
        signal: &Signal,
        after: Duration,
        checkpoint: &dyn Fn(),
    ) -> Result<(), StoreError> {
        // Without this the clock would be trusted, so nothing is deleted if it fails.
        self.time
            .begin(|| store_error(partition::minutes(connection)))?;
        let now = self.time.advance(self.clock.now(), after);
        // First free what the database needs; the search for unused entries reads all events.
        self.enforce_age(connection, now, signal, checkpoint)?;
        self.enforce_size(connection, now, signal, checkpoint)?;
        self.clean_up(connection, now, signal)
    }

    fn clean_up(
        &mut self,
        connection: &Connection,
        now: Nanos,
        signal: &Signal,
    ) -> Result<(), StoreError> {
        if !passed(self.cleaned_up, now, CLEANUP_EVERY) {
            return Ok(());
        }
        self.cleaned_up = Some(now);
        let before = |age: Option<Duration>| age.map(|age| now.offset(-nanos(age)));
        let (policies, hours) = (before(self.limits.age), before(self.limits.cost_age));
        self.tasks.clean_up(now, policies, hours)?;
        if self.has_deleted.get() {
            self.delete_unused(connection, signal)?;
        }
        Ok(())
    }

    /// Deletes series and origins that no event refers to. The search runs here, where no request
    /// waits for it; the writer only checks events that arrived meanwhile.
    fn delete_unused(&self, connection: &Connection, signal: &Signal) -> Result<(), StoreError> {
        let mut gone = 0;
        for step in store_error(dictionary_gc::find(connection))? {
            if signal.stopped() {
                return Ok(());
            }
            gone += self.tasks.delete_unused(step)?;
        }
        self.has_deleted.set(false);
        if gone > 0 {
            tracing::info!("deleted {gone} series and origins that no event refers to");
        }
        Ok(())
    }

    fn enforce_age(
        &mut self,
        connection: &Connection,
        now: Nanos,
        signal: &Signal,
        checkpoint: &dyn Fn(),
    ) -> Result<(), StoreError> {
        let Some(age) = self.limits.age else {
            return Ok(());
        };
        if !passed(self.looked, now, AGE_CHECK_EVERY) {
            return Ok(());
        }
        let cutoff = now.offset(-nanos(age));
        while let Some((first, _)) = store_error(partition::ends(connection))? {
            let slice = TimeSlice::for_age(first, age);
            if slice.until > cutoff {
                break;
            }
            let gone = self.drop_slice(
                connection,
                (slice, now, signal),
                Reason::Age(age),
                checkpoint,
            )?;
            if !gone {
                return Ok(());
            }
        }
        self.looked = Some(now);
        Ok(())
    }

    fn enforce_size(
        &mut self,
        connection: &Connection,
        now: Nanos,
        signal: &Signal,
        checkpoint: &dyn Fn(),
    ) -> Result<(), StoreError> {
        loop {
            let blocks = store_error(partition::blocks(connection))?;
            self.disk_space.refresh(blocks);
            let used = blocks.used;
            let Some(reason) = self.excess(blocks) else {
                self.waiting = None;
                return Ok(());
            };
            match &mut self.waiting {
                // First free what queries kept until now.
                None => {
                    self.wait(used, ROUNDS_BEFORE_DELETING);
                    checkpoint();
                    return Ok(());
                }
                // A query that still reads the old rows keeps them in the file: deleting more would
                // not help.
                Some(waiting) if used >= waiting.used && waiting.rounds > 0 => {
                    waiting.rounds -= 1;
                    return Ok(());
                }
                Some(_) => {}
            }
            let ends = store_error(partition::ends(connection))?;
            let Some(slice) = ends.and_then(|(first, last)| TimeSlice::for_size(first, last))
            else {
                // Earlier deletions may not have been freed yet.
                checkpoint();
                return Ok(());
            };
            self.wait(used, PATIENCE_ROUNDS);
            if !self.drop_slice(connection, (slice, now, signal), reason, checkpoint)? {
                self.waiting = None;
                return Ok(());
            }
            checkpoint();
        }
    }

    const fn wait(&mut self, used: u64, rounds: u32) {
        self.waiting = Some(Waiting { used, rounds });
    }

    /// Limit that is exceeded, if any.
    fn excess(&self, Blocks { used, free }: Blocks) -> Option<Reason> {
        let begin = self.delete_above_bytes(used.saturating_add(free))?;
        if used > begin {
            return Some(Reason::Size { used, begin });
        }
        let (available, floor) = self.disk_space.shortage()?;
        // Space used by other programs on the volume is not freed by deleting here.
        self.disk_space
            .can_be_freed_by_deleting(used.saturating_add(free))
            .then_some(Reason::Floor { available, floor })
    }

    fn delete_above_bytes(&self, file: u64) -> Option<u64> {
        // If the volume cannot be queried it is assumed to be infinite: a limit in bytes applies
        // without it.
        let space = self.disk_space.space().ok();
        let total = space.map_or(u64::MAX, |space| space.total);
        let reach = space.map_or(u64::MAX, |space| file.saturating_add(space.available));
        self.limits.delete_above_bytes(total, reach)
    }

    /// Deletes a slice. Returns whether it is gone: a slice that the detector has not read, or that
    /// is not copied yet, waits, if possible.
    fn drop_slice(
        &self,
        connection: &Connection,
        (slice, now, signal): (TimeSlice, Nanos, &Signal),
        reason: Reason,
        checkpoint: &dyn Fn(),
    ) -> Result<bool, StoreError> {
        let running = store_error(partition::running_jobs(
            connection,
            slice.until,
            now.offset(-RUNNING_JOB_WINDOW),
        ))?;
        let rest = |from| store_error(partition::events_before(connection, slice.until, from));
        let mut gone = 0;
        let mut steps = Steps::new(rest(0)?);
        while let Some(events) = steps.next() {
            let is_followed = self.progress.is_followed(steps.last);
            let is_copied = self.progress.is_copied(steps.last);
            let waits_for_detector = !is_followed && matches!(reason, Reason::Age(_));
            let waits_for_lake = !is_copied && self.disk_space.shortage().is_none();
            if signal.stopped() || waits_for_detector || waits_for_lake {
                return Ok(false);
            }
            let range = DeleteRange {
                from: slice.from,
                until: slice.until,
                events,
                reason: reason.name(),
            };
            let deleted = self.tasks.delete(range, now)?;
            gone += deleted;
            self.has_deleted.set(self.has_deleted.get() || deleted > 0);
            if !is_followed {
                tracing::warn!(
                    "the database is full: events were deleted before the detector judged them"
                );
            }
            if !is_copied {
                self.progress.lose(deleted);
            }
            if deleted == 0 {
                // Numbers of other slices lie between.
                steps.set_range(rest(events.last.saturating_add(1))?);
            }
            if steps.is_checkpoint_due() {
                checkpoint();
            }
        }
        tracing::info!(
            slice.from = %slice.from,
            slice.until = %slice.until,
            events = gone,
            "deleted {gone} events received from {} to {}: {reason}{}",
            slice.from,
            slice.until,
            after_restart(running, slice.until),
        );
        Ok(true)
    }
}

/// Describes the history that the detector will miss after a restart.
fn after_restart(running: u64, until: Nanos) -> String {
    match running {
        0 => String::new(),
        n => format!(
            "; {n} jobs of that time are still running, and after a restart the detector knows them only from {until} on"
        ),
    }
}

impl Reason {
    const fn name(self) -> &'static str {
        match self {
            Self::Age(_) => "age",
            Self::Size { .. } => "size",
            Self::Floor { .. } => "floor",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Age(age) => write!(f, "older than {} h", age.as_secs() / 3_600),
            Self::Size { used, begin } => {
                write!(
                    f,
                    "the database used {used} bytes, deletion begins at {begin}"
                )
            }
            Self::Floor { available, floor } => {
                write!(
                    f,
                    "{available} bytes are free on the volume, the floor is {floor}"
                )
            }
        }
    }
}

fn store_error<T>(answer: EngineResult<T>) -> Result<T, StoreError> {
    answer.map_err(engine("enforcing the limits"))
}

/// Returns true if `every` nanoseconds have passed, or the clock went back.
fn passed(last: Option<Nanos>, now: Nanos, every: i64) -> bool {
    last.is_none_or(|last| now >= last.offset(every) || now < last)
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
