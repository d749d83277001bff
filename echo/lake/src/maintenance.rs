//! Maintenance of a lake: deletes old rows, merges small files, and removes files that no snapshot
//! uses. One instance at a time does it, between two of its commits.

use std::time::Duration;

use echo_core::clock::Clock;
use echo_core::error::chain;
use echo_core::units::Nanos;

use crate::destination::Destination;
use crate::error::LakeError;
use crate::lease::Lease;
use crate::progress::LakeProgress;
use crate::session::{LAKE, Session};
use crate::stop::Stop;

/// Files of this size and larger are not merged any more, bytes: a row is thus written a few times
/// at most.
const LARGE_FILE: u64 = 64 << 20;

/// Largest number of files that one step writes.
const FILES_A_STEP: u64 = 8;

/// Age from which a file that the catalog does not name is deleted. A younger one may belong to a
/// commit in progress.
const ORPHAN_AGE: Duration = Duration::from_hours(24);

/// Longest time between two attempts to take the lease.
const LOOK_EVERY: Duration = Duration::from_mins(1);

/// Settings of the maintenance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaintenanceConfig {
    /// Time between two runs, of all instances together; `None` for no maintenance.
    pub every: Option<Duration>,
    /// Age from which snapshots, and files that only they use, are removed. Longer than any query.
    pub snapshot_age: Duration,
    /// Age from which days of events and samples are deleted; `None` to keep them.
    pub retention: Option<Duration>,
}

/// Maintenance by this instance.
#[derive(Debug)]
pub(crate) struct Maintenance {
    config: MaintenanceConfig,
    next_ns: i64,
}

/// How a run ends early.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunLimits<'a> {
    /// Clock of the instance.
    pub(crate) clock: &'a dyn Clock,
    /// Request to stop.
    pub(crate) stop: &'a Stop,
    /// Longest time, so that commits are not late.
    pub(crate) time: Duration,
}

impl Maintenance {
    /// Maintenance that is due at once.
    pub(crate) const fn new(config: MaintenanceConfig) -> Self {
        Self {
            config,
            next_ns: i64::MIN,
        }
    }

    /// Maintains the lake if it is due and no other instance does. A failure is counted, and the
    /// next attempt is made soon: commits do not depend on it.
    pub(crate) fn run_if_due(
        &mut self,
        destination: &Destination,
        limits: RunLimits<'_>,
        progress: &LakeProgress,
    ) {
        let now = limits.clock.now().value();
        let Some(every) = self.config.every.filter(|_| now >= self.next_ns) else {
            return;
        };
        let pause = match self.run(destination, every, limits, progress) {
            // The rest is done after the next commit.
            Ok(Some(false)) => Duration::ZERO,
            Ok(Some(true)) => {
                progress.count_maintenance();
                every
            }
            Ok(None) => LOOK_EVERY.min(every),
            Err(error) => {
                progress.count_maintenance_failure();
                tracing::warn!(error = chain(&error), "the maintenance of the lake failed");
                destination.session.roll_back();
                LOOK_EVERY.min(every)
            }
        };
        self.next_ns = now.saturating_add(nanos(pause));
    }

    /// Returns whether everything was done; `None` if it is not the turn of this instance.
    fn run(
        &self,
        destination: &Destination,
        every: Duration,
        limits: RunLimits<'_>,
        progress: &LakeProgress,
    ) -> Result<Option<bool>, LakeError> {
        let session = &destination.session;
        let Some(lease) = Lease::acquire(session, &destination.client, every)? else {
            return Ok(None);
        };
        let begun = limits.clock.now();
        let end = begun.value().saturating_add(nanos(limits.time));
        if let Some(age) = self.config.retention {
            let deleted = delete_days(session, before(begun, age), begun)?;
            progress.count_deleted_events(deleted);
        }
        loop {
            let (read, written) = merge(session)?;
            if read == 0 {
                break;
            }
            progress.count_merged_files(read.saturating_sub(written));
            let is_over = limits.clock.now().value() >= end || limits.stop.is_requested();
            if is_over || !lease.renew()? {
                lease.release(false)?;
                return Ok(Some(false));
            }
        }
        let snapshots = before(limits.clock.now(), self.config.snapshot_age);
        let orphans = before(limits.clock.now(), ORPHAN_AGE.max(self.config.snapshot_age));
        progress.count_deleted_files(clean(session, snapshots, orphans)?);
        lease.release(true)?;
        Ok(Some(true))
    }
}

/// Deletes the days of events and samples that end before a time, and records how many rows they
/// had. Returns the number of events.
fn delete_days(session: &Session, before: Nanos, now: Nanos) -> Result<u64, LakeError> {
    let doing = "deleting old rows";
    let day = format!("day < make_timestamp_ns({})::DATE", before.value());
    session.run(doing, "BEGIN")?;
    let record = format!(
        "INSERT INTO {LAKE}.deletions BY NAME
         SELECT instance, make_timestamp_ns({})::DATE AS before_day, sum(events)::UBIGINT AS n_events,
                sum(samples)::UBIGINT AS n_samples, {} AS deleted_ns
         FROM (
            SELECT instance, count(*) AS events, 0 AS samples FROM {LAKE}.event_rows WHERE {day} GROUP BY instance
            UNION ALL
            SELECT instance, 0, count(*) FROM {LAKE}.sample_rows WHERE {day} GROUP BY instance
         ) GROUP BY instance",
        before.value(),
        now.value()
    );
    session.change(doing, &record, [])?;
    let delete = |table| format!("DELETE FROM {LAKE}.{table} WHERE {day}");
    let events = session.change(doing, &delete("event_rows"), [])?;
    session.change(doing, &delete("sample_rows"), [])?;
    session.run(doing, "COMMIT")?;
    Ok(events)
}

/// Merges some of the small files. Returns how many were read, and how many written in their place.
fn merge(session: &Session) -> Result<(u64, u64), LakeError> {
    let merge = format!(
        "SELECT coalesce(sum(files_processed), 0)::UBIGINT, coalesce(sum(files_created), 0)::UBIGINT
         FROM ducklake_merge_adjacent_files('{LAKE}', max_compacted_files => {FILES_A_STEP}, max_file_size => {LARGE_FILE})"
    );
    let merged = session.rows("merging files", &merge, [], |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?;
    Ok(merged.first().copied().unwrap_or_default())
}

/// Forgets old snapshots, and deletes the files that no snapshot uses. Returns the number of files.
fn clean(session: &Session, snapshots: Nanos, orphans: Nanos) -> Result<u64, LakeError> {
    let mut rows = 0;
    let calls = [
        ("ducklake_expire_snapshots", snapshots),
        ("ducklake_cleanup_old_files", snapshots),
        ("ducklake_delete_orphaned_files", orphans),
    ];
    for (function, before) in calls {
        let seconds = before.value() / 1_000_000_000;
        let call = format!(
            "SELECT count(*)::UBIGINT FROM {function}('{LAKE}', older_than => to_timestamp({seconds}))"
        );
        let found: Vec<u64> = session.rows("removing old files", &call, [], |row| row.get(0))?;
        if function != "ducklake_expire_snapshots" {
            rows += found.iter().sum::<u64>();
        }
    }
    Ok(rows)
}

fn before(now: Nanos, age: Duration) -> Nanos {
    Nanos::new(now.value().saturating_sub(nanos(age)))
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
