//! One group, one transaction: events, their samples, series, origins, the ledger and conclusions, all or nothing.

use std::collections::HashSet;
use std::sync::Arc;

use duckdb::Connection;
use echo_core::clock::Clock;
use echo_core::model::detector_output::DetectorOutput;
use echo_core::model::event::BatchKey;
use echo_core::units::{Hour, Nanos};
use tokio::sync::watch;

use crate::duckdb::batch_dedup::Ledger;
use crate::duckdb::checkpoint::Backlog;
use crate::duckdb::coverage::CoverageCache;
use crate::duckdb::dictionary::{Dictionary, Entries};
use crate::duckdb::disk_space::Volume;
use crate::duckdb::engine::{EngineResult, engine};
use crate::duckdb::failure::{Failure, failed};
use crate::duckdb::file_check::Presence;
use crate::duckdb::group_commit::{Append, Chore, Group};
use crate::duckdb::hours::HoursCache;
use crate::duckdb::rows::dictionary_gc::{self, Unused};
use crate::duckdb::rows::identity::LedgerRow;
use crate::duckdb::rows::partition::{self, Cut};
use crate::duckdb::rows::{detector_output, events, hours, identity, schema};
use crate::duckdb::tail_cache::Recent;
use crate::timings::{Timings, timed};
use crate::{Appended, StoreError};

mod hour_closing;
mod staged;

use staged::Staged;

/// How long a batch is remembered: longer than any agent goes on trying to send it.
const REMEMBER_NANOS: i64 = 24 * 3_600 * 1_000_000_000;

/// Lines added to the ledger after which it is made small again.
const COMPACT_AFTER: usize = 50_000;

/// What the writing thread owns.
#[derive(Debug)]
pub(super) struct Session {
    connection: Connection,
    shared: Shared,
    stored: Entries,
    ledger: Ledger,
    last_event: u64,
    next_revision: u64,
    since_compaction: usize,
}

/// What the writing thread shares with readers.
#[derive(Debug)]
pub(super) struct Shared {
    /// Series and origins.
    pub(super) dictionary: Arc<Dictionary>,
    /// Number of the last event committed.
    pub(super) committed: watch::Sender<u64>,
    /// Where committed events go.
    pub(super) recent: Arc<Recent>,
    /// What is kept of who reported when.
    pub(super) coverage: Arc<CoverageCache>,
    /// Which hours have to be computed.
    pub(super) hours: Arc<HoursCache>,
    /// What the next checkpoint has to write.
    pub(super) backlog: Arc<Backlog>,
    /// The clock of Echo.
    pub(super) clock: Arc<dyn Clock>,
    /// The volume that the database lies on.
    pub(super) volume: Arc<Volume>,
    /// Whether the file is still where it was opened.
    pub(super) presence: Presence,
    /// Where the time that commits take is added.
    pub(super) timings: Timings,
}

impl Session {
    /// Continues where the last session of this database ended.
    pub(super) fn load(connection: Connection, shared: Shared) -> EngineResult<Self> {
        let stored = identity::entries(&connection)?;
        shared.dictionary.extend(&stored);
        let last_event = identity::last_event(&connection)?;
        shared.committed.send_replace(last_event);
        shared.recent.begin_behind(last_event);
        shared.hours.fill(hours::load(&connection, last_event)?);
        let mut session = Self {
            ledger: identity::ledger(&connection)?,
            next_revision: detector_output::next_revision(&connection)?,
            connection,
            shared,
            stored,
            last_event,
            since_compaction: 0,
        };
        let now = session.shared.clock.now();
        session.compact(now)?;
        Ok(session)
    }

    /// Commits the group and answers everybody in it.
    pub(super) fn commit(&mut self, group: Group) {
        let (known, new) = self.sort_out(group.appends);
        let mut conclusions = DetectorOutput::default();
        let mut concluding = Vec::with_capacity(group.concludes.len());
        for conclude in group.concludes {
            conclusions.append(conclude.conclusions);
            concluding.push(conclude.answer);
        }
        let new = self.admit(new);
        // The engine makes a log by its name, which must not be that of another database.
        let outcome = self.look().and_then(|()| self.store(&new, conclusions));
        if let Err(failure) = &outcome {
            self.shared.presence.fatal().note(&failure.reason);
        }
        // For batches that were stored before, too: they are lost with the file.
        let outcome = outcome.and_then(|()| self.look());
        let mut answers = Vec::with_capacity(known.len() + new.len());
        for append in known {
            answers.push((append.answer, Appended::Duplicate));
        }
        for (append, appended) in new {
            if outcome.is_ok() && matches!(appended, Appended::Stored { .. }) {
                let times = append.batch.events.iter().map(|event| event.timestamp);
                self.shared.coverage.touch(times);
                self.shared.recent.add(append.batch);
            }
            answers.push((append.answer, appended));
        }
        self.announce();
        for (answer, appended) in answers {
            // The answer is for whoever still waits.
            let appended = outcome.clone().map(|()| appended);
            drop(answer.send(appended.map_err(StoreError::from)));
        }
        for answer in concluding {
            drop(answer.send(outcome.clone().map_err(StoreError::from)));
        }
    }

    /// Looks whether what was committed is where the next process will find it.
    fn look(&self) -> Result<(), Failure> {
        let doing = "looking for its file";
        let found = self.shared.presence.check();
        found.map_err(|reason| Failure { doing, reason })
    }

    /// Wakes whoever follows, if something was committed.
    fn announce(&self) {
        let last = self.last_event;
        let committed = &self.shared.committed;
        committed.send_if_modified(|committed| std::mem::replace(committed, last) != last);
    }

    /// Refuses what there is no room for. DetectorOutput are few, and are stored as long as the engine can.
    fn admit(&self, new: Vec<(Append, Appended)>) -> Vec<(Append, Appended)> {
        if new.is_empty() {
            return new;
        }
        let Err((available, floor)) = self.shared.volume.admit() else {
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

    /// Does a piece of upkeep.
    pub(super) fn look_after(&mut self, chore: Chore) {
        match chore {
            Chore::Delete { cut, now, answer } => {
                let deleted = self.delete(&cut, now);
                if let Err(error) = &deleted {
                    self.shared.presence.fatal().note(&error.to_string());
                }
                drop(answer.send(deleted.map_err(engine("deleting old events"))));
            }
            Chore::Tidy {
                now,
                policies,
                hours,
            } => {
                let tidied = self
                    .compact(now)
                    .and_then(|()| match policies {
                        Some(cutoff) => partition::forget_policies(&self.connection, cutoff),
                        None => Ok(()),
                    })
                    .and_then(|()| hours.map_or(Ok(()), |cutoff| self.forget_hours(cutoff)));
                if let Err(error) = tidied {
                    tracing::warn!(%error, "old batches, states and hours could not be forgotten");
                }
                self.shared.dictionary.settle(&self.stored);
            }
            Chore::CloseHour { closing, answer } => {
                let closed = self.close_hour(closing);
                if let Err(error) = &closed {
                    self.shared.presence.fatal().note(&error.to_string());
                }
                drop(answer.send(closed.map_err(engine("closing an hour"))));
            }
            Chore::Forget { unused, answer } => {
                let forgotten = self.forget(&unused);
                if let Err(error) = &forgotten {
                    self.shared.presence.fatal().note(&error.to_string());
                }
                drop(answer.send(forgotten.map_err(engine("forgetting series"))));
            }
        }
    }

    fn delete(&mut self, cut: &Cut, now: Nanos) -> EngineResult<u64> {
        let transaction = self.connection.transaction()?;
        let times = partition::times(&transaction, cut)?;
        let deleted = partition::delete(&transaction, cut, now)?;
        transaction.commit()?;
        self.shared.coverage.touch(times.into_iter());
        self.shared.backlog.owe_room();
        self.shared.timings.deleted_events.inc_by(deleted);
        Ok(deleted)
    }

    /// Forgets series and origins that no event refers to; between commits, so that no batch in the making refers to one.
    fn forget(&mut self, unused: &Unused) -> EngineResult<u64> {
        let transaction = self.connection.transaction()?;
        let (kind, gone) = dictionary_gc::delete(&transaction, unused)?;
        transaction.commit()?;
        if gone.is_empty() {
            return Ok(0);
        }
        self.shared.backlog.add(0);
        self.stored.forget(kind, &gone);
        // Questions that still see the deleted events need them, and so keep them for a while.
        self.shared.dictionary.retire();
        self.shared.dictionary.settle(&self.stored);
        Ok(gone.len() as u64)
    }

    /// Writes everything to the database file and closes it.
    pub(super) fn close(self) -> Result<(), StoreError> {
        if let Some(reason) = self.shared.presence.loss() {
            // Closing would remove the log by its name, which may be that of another database by now.
            Box::leak(Box::new(self.connection));
            return Err(StoreError::Fatal { reason });
        }
        self.connection
            .execute_batch(schema::CHECKPOINT)
            .map_err(engine("checkpointing before closing"))
    }

    /// Tells batches that were stored before from new ones, each with what becomes of it when the group is committed.
    fn sort_out(&self, appends: Vec<Append>) -> (Vec<Append>, Vec<(Append, Appended)>) {
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

    fn store(
        &mut self,
        new: &[(Append, Appended)],
        conclusions: DetectorOutput,
    ) -> Result<(), Failure> {
        let mut staged = Staged::with(conclusions);
        let mut last_event = self.last_event;
        for (append, appended) in new {
            if matches!(appended, Appended::Stored { .. }) {
                last_event = staged.add(&append.batch, last_event, &self.stored);
            }
        }
        if staged.ledger.is_empty() && staged.conclusions.is_empty() {
            return Ok(());
        }
        self.shared.dictionary.extend(&staged.entries);
        // Groups that need no transaction are not measured.
        let times = self.shared.timings.commits.clone();
        let touched = staged.touched();
        let due = self.shared.hours.not_due(&touched);
        let next_revision = timed(&times, || self.write(&staged, &due))?;
        let now = self.shared.clock.now();
        self.shared.hours.touch(touched, (now, last_event));
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
        if self.since_compaction >= COMPACT_AFTER
            && let Err(error) = self.compact(self.shared.clock.now())
        {
            tracing::warn!(%error, "the ledger of batches could not be made smaller");
        }
        Ok(())
    }

    fn write(&mut self, staged: &Staged<'_>, due: &[Hour]) -> Result<u64, Failure> {
        let revision = (self.next_revision, self.shared.clock.now());
        let transaction = self.connection.transaction().map_err(failed("beginning"))?;
        identity::append_entries(&transaction, &staged.entries).map_err(failed("adding series"))?;
        events::append(&transaction, &staged.events).map_err(failed("adding events"))?;
        identity::append_ledger(&transaction, &staged.ledger).map_err(failed("adding batches"))?;
        hours::append_due(&transaction, due).map_err(failed("noting hours"))?;
        let next_revision = detector_output::append(&transaction, &staged.conclusions, revision)
            .map_err(failed("adding conclusions"))?;
        transaction.commit().map_err(failed("committing"))?;
        Ok(next_revision)
    }

    /// Forgets old batches, and writes what is remembered in as few rows as it takes.
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
        // States are thinned out, not lost, so a day is a day here.
        let newest = self.ledger.newest().map_or(now, |newest| newest.min(now));
        detector_output::compact(&transaction, newest.offset(-REMEMBER_NANOS))?;
        transaction.commit()
    }
}
