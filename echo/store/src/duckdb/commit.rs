//! Commits one group in one transaction: events, samples, series, origins, batch keys and detector
//! output.

use std::collections::HashSet;
use std::sync::Arc;

use duckdb::Connection;
use echo_core::clock::Clock;
use echo_core::model::detector_output::DetectorOutput;
use echo_core::model::event::BatchKey;
use echo_core::units::{Hour, Nanos};
use tokio::sync::watch;

use crate::duckdb::acknowledged::Acknowledged;
use crate::duckdb::batch_dedup::BatchDedup;
use crate::duckdb::checkpoint::Backlog;
use crate::duckdb::coverage::CoverageCache;
use crate::duckdb::dictionary::{Dictionary, Entries};
use crate::duckdb::disk_space::DiskSpace;
use crate::duckdb::engine::{EngineResult, engine};
use crate::duckdb::failure::{Failure, failed};
use crate::duckdb::file_check::FileCheck;
use crate::duckdb::group_commit::{Append, Group, MaintenanceTask};
use crate::duckdb::hours::HoursCache;
use crate::duckdb::rows::dictionary_gc::{self, UnusedEntries};
use crate::duckdb::rows::identity::LedgerRow;
use crate::duckdb::rows::partition::{self, DeleteRange};
use crate::duckdb::rows::{detector_output, events, hours, identity, schema};
use crate::duckdb::tail_cache::TailCache;
use crate::timings::{Timings, timed};
use crate::{Appended, StoreError};

mod hour_closing;
mod staged;

use staged::Staged;

/// Time for which a batch is remembered: longer than any agent retries.
const REMEMBER_NANOS: i64 = 24 * 3_600 * 1_000_000_000;

/// Number of batch keys appended after which the table is compacted.
const COMPACT_AFTER: usize = 50_000;

/// State of the writer thread.
#[derive(Debug)]
pub(super) struct Session {
    connection: Connection,
    shared: Shared,
    acknowledged: Acknowledged,
    stored: Entries,
    ledger: BatchDedup,
    last_event: u64,
    next_revision: u64,
    since_compaction: usize,
}

/// State that the writer thread shares with readers.
#[derive(Debug)]
pub(super) struct Shared {
    /// Series and origins.
    pub(super) dictionary: Arc<Dictionary>,
    /// Number of the last event committed.
    pub(super) committed: watch::Sender<u64>,
    /// Recently committed events.
    pub(super) tail_cache: Arc<TailCache>,
    /// Coverage by time slot.
    pub(super) coverage: Arc<CoverageCache>,
    /// Due and closed hours.
    pub(super) hours: Arc<HoursCache>,
    /// Changes for the next checkpoint.
    pub(super) backlog: Arc<Backlog>,
    /// Clock.
    pub(super) clock: Arc<dyn Clock>,
    /// Disk space of the database.
    pub(super) disk_space: Arc<DiskSpace>,
    /// Checks that the file is still where it was opened.
    pub(super) file_check: FileCheck,
    /// Metrics.
    pub(super) timings: Timings,
}

impl Session {
    /// Restores the state at the end of the last session of this database.
    pub(super) fn load(
        connection: Connection,
        shared: Shared,
        acknowledged: Acknowledged,
    ) -> EngineResult<Self> {
        let stored = identity::entries(&connection)?;
        shared.dictionary.extend(&stored);
        let last_event = identity::last_event(&connection)?;
        shared.timings.lost_events.inc_by(acknowledged.lost());
        shared.committed.send_replace(last_event);
        shared.tail_cache.start_after(last_event);
        shared.hours.fill(hours::load(&connection, last_event)?);
        let mut session = Self {
            ledger: identity::ledger(&connection)?,
            next_revision: detector_output::next_revision(&connection)?,
            connection,
            shared,
            acknowledged,
            stored,
            last_event,
            since_compaction: 0,
        };
        let now = session.shared.clock.now();
        session.compact(now)?;
        Ok(session)
    }

    /// Commits the group and responds to all its requests.
    pub(super) fn commit(&mut self, group: Group) {
        let (known, new) = self.separate_duplicates(group.appends);
        let mut output = DetectorOutput::default();
        let mut waiting = Vec::with_capacity(group.verdicts.len());
        for request in group.verdicts {
            output.append(request.output);
            waiting.push(request.answer);
        }
        let new = self.admit(new);
        // The engine creates a log by name, which must not be that of another database.
        let outcome = self.check_file().and_then(|()| self.store(&new, output));
        if let Err(failure) = &outcome {
            self.shared.file_check.fatal().record(&failure.reason);
        }
        // Batches that were stored before fail, too: they are lost with the file.
        let outcome = outcome.and_then(|()| self.check_file());
        let mut answers = Vec::with_capacity(known.len() + new.len());
        for append in known {
            answers.push((append.answer, Appended::Duplicate));
        }
        for (append, appended) in new {
            if outcome.is_ok() && matches!(appended, Appended::Stored { .. }) {
                let times = append.batch.events.iter().map(|event| event.timestamp);
                self.shared.coverage.invalidate(times);
                self.shared.tail_cache.add(append.batch);
            }
            answers.push((append.answer, appended));
        }
        self.announce();
        for (answer, appended) in answers {
            // The receiver is gone if the caller no longer waits.
            let appended = outcome.clone().map(|()| appended);
            drop(answer.send(appended.map_err(StoreError::from)));
        }
        for answer in waiting {
            drop(answer.send(outcome.clone().map_err(StoreError::from)));
        }
    }

    /// Checks that the next process will find what was committed.
    fn check_file(&self) -> Result<(), Failure> {
        let doing = "checking the database file";
        let found = self.shared.file_check.check();
        found.map_err(|reason| Failure { doing, reason })
    }

    /// Wakes followers if something was committed.
    fn announce(&self) {
        let last = self.last_event;
        let committed = &self.shared.committed;
        committed.send_if_modified(|committed| std::mem::replace(committed, last) != last);
    }

    /// Refuses batches if there is too little space. Detector output is small and always stored.
    fn admit(&self, new: Vec<(Append, Appended)>) -> Vec<(Append, Appended)> {
        if new.is_empty() {
            return new;
        }
        let Err((available, floor)) = self.shared.disk_space.admit() else {
            return new;
        };
        for (append, _) in new {
            let events = append.batch.events.len() as u64;
            self.shared.timings.refused_events.inc_by(events);
            drop(
                append
                    .answer
                    .send(Err(StoreError::Full { available, floor })),
            );
        }
        Vec::new()
    }

    /// Runs a maintenance task.
    pub(super) fn run_task(&mut self, task: MaintenanceTask) {
        match task {
            MaintenanceTask::Delete { range, now, answer } => {
                let deleted = self.delete(&range, now);
                if let Err(error) = &deleted {
                    self.shared.file_check.fatal().record(&error.to_string());
                }
                drop(answer.send(deleted.map_err(engine("deleting old events"))));
            }
            MaintenanceTask::CleanUp {
                now,
                policies,
                hours,
            } => {
                let cleaned_up = self
                    .compact(now)
                    .and_then(|()| match policies {
                        Some(cutoff) => partition::forget_policies(&self.connection, cutoff),
                        None => Ok(()),
                    })
                    .and_then(|()| hours.map_or(Ok(()), |cutoff| self.forget_hours(cutoff)));
                if let Err(error) = cleaned_up {
                    tracing::warn!(%error, "cannot delete old batches, states and hours");
                }
                self.shared.dictionary.settle(&self.stored);
            }
            MaintenanceTask::CloseHour { closing, answer } => {
                let closed = self.close_hour(closing);
                if let Err(error) = &closed {
                    self.shared.file_check.fatal().record(&error.to_string());
                }
                drop(answer.send(closed.map_err(engine("closing an hour"))));
            }
            MaintenanceTask::DeleteUnused { unused, answer } => {
                let deleted = self.delete_unused(&unused);
                if let Err(error) = &deleted {
                    self.shared.file_check.fatal().record(&error.to_string());
                }
                drop(answer.send(deleted.map_err(engine("deleting unused entries"))));
            }
        }
    }

    fn delete(&mut self, range: &DeleteRange, now: Nanos) -> EngineResult<u64> {
        let transaction = self.connection.transaction()?;
        let times = partition::times(&transaction, range)?;
        let deleted = partition::delete(&transaction, range, now)?;
        transaction.commit()?;
        self.shared.coverage.invalidate(times.into_iter());
        self.shared.backlog.request_reclaim();
        self.shared.timings.deleted_events.inc_by(deleted);
        Ok(deleted)
    }

    /// Deletes series and origins that no event refers to; between commits, so that no batch being
    /// staged refers to one.
    fn delete_unused(&mut self, unused: &UnusedEntries) -> EngineResult<u64> {
        let transaction = self.connection.transaction()?;
        let (kind, gone) = dictionary_gc::delete(&transaction, unused)?;
        transaction.commit()?;
        if gone.is_empty() {
            return Ok(0);
        }
        self.shared.backlog.add(0);
        self.stored.forget(kind, &gone);
        // Queries that still see the deleted events need the entries, so they are kept for a while.
        self.shared.dictionary.retire();
        self.shared.dictionary.settle(&self.stored);
        Ok(gone.len() as u64)
    }

    /// Checkpoints and closes the database file.
    pub(super) fn close(self) -> Result<(), StoreError> {
        if let Some(reason) = self.shared.file_check.loss() {
            // Closing would remove the log by its name, which may be that of another database by
            // now.
            Box::leak(Box::new(self.connection));
            return Err(StoreError::Fatal { reason });
        }
        self.connection
            .execute_batch(schema::CHECKPOINT)
            .map_err(engine("checkpointing before closing"))
    }

    /// Separates new batches from duplicates, each with its result once the group is committed.
    fn separate_duplicates(&self, appends: Vec<Append>) -> (Vec<Append>, Vec<(Append, Appended)>) {
        let (known, new): (Vec<_>, Vec<_>) = appends
            .into_iter()
            .partition(|append| self.ledger.contains(&append.batch.key));
        let mut seen: HashSet<BatchKey> = HashSet::with_capacity(new.len());
        let new = new.into_iter().map(|append| {
            let appended = if seen.insert(append.batch.key.clone()) {
                Appended::Stored {
                    events: append.batch.events.len(),
                }
            } else {
                Appended::Duplicate
            };
            (append, appended)
        });
        (known, new.collect())
    }

    fn store(&mut self, new: &[(Append, Appended)], output: DetectorOutput) -> Result<(), Failure> {
        let mut staged = Staged::with(output);
        let mut last_event = self.last_event;
        for (append, appended) in new {
            if matches!(appended, Appended::Stored { .. }) {
                last_event = staged.add(&append.batch, last_event, &self.stored);
            }
        }
        if staged.ledger.is_empty() && staged.output.is_empty() {
            return Ok(());
        }
        self.shared.dictionary.extend(&staged.entries);
        // Groups that need no transaction are not measured.
        let times = self.shared.timings.commits.clone();
        let touched = staged.touched();
        let due = self.shared.hours.not_due(&touched);
        let next_revision = timed(&times, || self.write(&staged, &due))?;
        let now = self.shared.clock.now();
        self.shared.hours.touch(touched, now, last_event);
        let Staged {
            entries, ledger, ..
        } = staged;
        self.stored.absorb(entries);
        self.since_compaction += ledger.len();
        for row in ledger {
            self.ledger.insert(row.entry, row.received);
        }
        self.next_revision = next_revision;
        self.shared.backlog.add(last_event - self.last_event);
        self.last_event = last_event;
        self.acknowledged.record(last_event);
        if self.since_compaction >= COMPACT_AFTER
            && let Err(error) = self.compact(self.shared.clock.now())
        {
            tracing::warn!(%error, "cannot compact the table of batches");
        }
        Ok(())
    }

    fn write(&mut self, staged: &Staged<'_>, due: &[Hour]) -> Result<u64, Failure> {
        let now = self.shared.clock.now();
        let transaction = self.connection.transaction().map_err(failed("beginning"))?;
        identity::append_entries(&transaction, &staged.entries).map_err(failed("adding series"))?;
        events::append(&transaction, &staged.events).map_err(failed("adding events"))?;
        identity::append_ledger(&transaction, &staged.ledger).map_err(failed("adding batches"))?;
        hours::append_due(&transaction, due).map_err(failed("marking hours as due"))?;
        let next_revision =
            detector_output::append(&transaction, &staged.output, self.next_revision, now)
                .map_err(failed("adding detector output"))?;
        transaction.commit().map_err(failed("committing"))?;
        Ok(next_revision)
    }

    /// Removes expired batch keys, and rewrites the others in as few rows as possible.
    fn compact(&mut self, now: Nanos) -> EngineResult<()> {
        self.since_compaction = 0;
        let cutoff = self.ledger.cutoff(now, REMEMBER_NANOS);
        self.ledger.forget_before(cutoff);
        let ranges: Vec<_> = self
            .ledger
            .numbers()
            .map(|(entry, received)| LedgerRow {
                entry,
                received,
                last_event: self.last_event,
            })
            .collect();
        let oldest = self.ledger.oldest().unwrap_or(cutoff);
        let transaction = self.connection.transaction()?;
        identity::compact_ledger(&transaction, &ranges, oldest)?;
        // States are thinned out, not lost, so a day is measured by the clock alone.
        let newest = self.ledger.newest().map_or(now, |newest| newest.min(now));
        detector_output::compact(&transaction, newest.offset(-REMEMBER_NANOS))?;
        transaction.commit()
    }
}
