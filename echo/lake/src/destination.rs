//! Writes slices to a lake, each in one transaction.

use std::collections::HashMap;

use duckdb::params;
use echo_core::units::Nanos;
use echo_store::duckdb::slices::{ClosedHour, Column, DueHours, Numbers, SliceReader, Table};

use crate::columns::{definition, prepare};
use crate::error::LakeError;
use crate::fencing::{application, fence};
use crate::location::{LakeConfig, quoted};
use crate::session::{Access, LAKE, Session};
use crate::stop::Stop;

/// Largest number of events of a slice.
pub(crate) const MAX_EVENTS: u64 = 5_000_000;

/// The lake as one instance writes it, positioned after its last slice.
#[derive(Debug)]
pub(crate) struct Destination {
    /// Connection.
    pub(crate) session: Session,
    /// Name of this client in `PostgreSQL`.
    pub(crate) client: String,
    instance: String,
    /// Last slice.
    pub(crate) position: Position,
    /// Due hours of the last slice.
    due: DueHours,
    /// Highest revisions of the closed hours in the lake.
    hours: HashMap<(i64, String), u64>,
}

/// End of the last slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    /// Last event number.
    pub(crate) event: u64,
    /// Last revision.
    pub(crate) revision: u64,
}

/// Numbers of rows of a slice.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    /// Events.
    pub(crate) events: u64,
    samples: u64,
    verdicts: u64,
    lost: u64,
    hours: u64,
}

impl Destination {
    /// Connects, ends what an earlier process left, and finds the last slice of the database.
    pub(crate) fn open(
        config: &LakeConfig,
        reader: &SliceReader,
        now: Nanos,
        stop: &Stop,
    ) -> Result<Self, LakeError> {
        let instance = reader.database_id()?;
        let client = application(&instance, now.value().unsigned_abs());
        let session = Session::open(config, &client, Access::Write)?;
        stop.set_interrupt(session.interrupt());
        fence(&session, &instance, &client, stop)?;
        prepare(&session, reader)?;
        session.run(
            "starting",
            "CREATE TABLE stored_series (id UBIGINT);
             CREATE TABLE stored_origins (id UBIGINT);
             CREATE TABLE new_hours (hour_ns BIGINT, cluster VARCHAR, stored UBIGINT, latest UBIGINT)",
        )?;
        for table in ["series", "origins"] {
            let known = format!(
                "INSERT INTO stored_{table} SELECT id FROM {LAKE}.{table} WHERE instance = ?"
            );
            session.change("reading the names in the lake", &known, [&instance])?;
        }
        let hours = "SELECT hour_ns, cluster, max(revision) FROM lake.cost_hour_rows
                     WHERE instance = ? GROUP BY hour_ns, cluster";
        let hours = session.rows("reading the hours in the lake", hours, [&instance], |row| {
            Ok(((row.get(0)?, row.get(1)?), row.get(2)?))
        })?;
        let position = last_slice(&session, &instance, reader)?;
        let due = due_hours(&session, &instance)?;
        Ok(Self {
            session,
            client,
            instance,
            position,
            due,
            hours: hours.into_iter().collect(),
        })
    }

    /// Copies the next slice, up to the last committed event. Returns `None` if nothing is new.
    ///
    /// An hour that is not due is closed for all events up to that one: due hours are read after the
    /// number of the event, and closed hours after them.
    pub(crate) fn copy(
        &mut self,
        reader: &SliceReader,
        now: Nanos,
    ) -> Result<Option<Written>, LakeError> {
        let committed = *reader.committed().borrow();
        let events = Numbers {
            first: self.position.event.saturating_add(1),
            last: committed.min(self.position.event.saturating_add(MAX_EVENTS)),
        };
        let last = Position {
            event: events.last.max(self.position.event),
            revision: reader.last_revision()?.max(self.position.revision),
        };
        let due = reader.due_hours()?;
        let hours = self.new_hours(reader.closed_hours()?);
        if last == self.position && hours.is_empty() && due == self.due {
            return Ok(None);
        }
        let revisions = Numbers {
            first: self.position.revision.saturating_add(1),
            last: last.revision,
        };
        for table in Table::ALL {
            let numbers = match table {
                Table::Verdicts | Table::Lost => revisions,
                Table::Hours => span(&hours),
                _ => events,
            };
            self.stage(reader, table, numbers)?;
        }
        self.stage_hours(&hours)?;
        let written = self.commit(events.first, (last, &due), now)?;
        self.remember(last, hours)?;
        self.due = due;
        Ok(Some(written))
    }

    /// Hours of which the lake has no or only earlier revisions.
    fn new_hours(&self, closed: Vec<ClosedHour>) -> Vec<(ClosedHour, u64)> {
        let stored = |hour: &ClosedHour| {
            let key = (hour.hour.value(), hour.cluster.clone());
            self.hours.get(&key).copied().unwrap_or(0)
        };
        let closed = closed.into_iter().map(|hour| {
            let stored = stored(&hour);
            (hour, stored)
        });
        closed
            .filter(|(hour, stored)| hour.revision > *stored)
            .collect()
    }

    /// Copies rows to a table in memory.
    fn stage(&self, reader: &SliceReader, table: Table, numbers: Numbers) -> Result<(), LakeError> {
        let doing = "reading a slice";
        let columns: Vec<Column> = reader.columns(table)?;
        let columns: Vec<String> = columns.iter().map(definition).collect();
        let name = format!("new_{}", table.name());
        let create = format!("CREATE OR REPLACE TABLE {name} ({})", columns.join(", "));
        self.session.run(doing, &create)?;
        if numbers.first > numbers.last {
            return Ok(());
        }
        let failed = |error| self.session.error(doing, &error);
        let mut appender = self.session.connection.appender(&name).map_err(failed)?;
        reader.each_batch(table, numbers, |batch| {
            appender.append_record_batch(batch).map_err(failed)
        })?;
        appender.flush().map_err(failed)
    }

    fn stage_hours(&self, hours: &[(ClosedHour, u64)]) -> Result<(), LakeError> {
        let doing = "reading closed hours";
        let failed = |error| self.session.error(doing, &error);
        self.session.run(doing, "DELETE FROM new_hours")?;
        let mut appender = self
            .session
            .connection
            .appender("new_hours")
            .map_err(failed)?;
        for (hour, stored) in hours {
            let row = params![hour.hour.value(), hour.cluster, stored, hour.revision];
            appender.append_row(row).map_err(failed)?;
        }
        appender.flush().map_err(failed)
    }

    /// Writes the rows and the slice that they are, all or nothing.
    fn commit(
        &self,
        first_event: u64,
        (last, due): (Position, &DueHours),
        now: Nanos,
    ) -> Result<Written, LakeError> {
        let doing = "writing a slice";
        self.session.run(doing, "BEGIN")?;
        let written = Written {
            events: self.insert(Table::Events, "ORDER BY day, cluster, series, timestamp_ns")?,
            samples: self.insert(Table::Samples, "ORDER BY day, cluster, event_id, ordinal")?,
            verdicts: self.insert(Table::Verdicts, "ORDER BY revision")?,
            lost: self.insert(Table::Lost, "ORDER BY revision")?,
            hours: self.insert(
                Table::Hours,
                "JOIN new_hours USING (hour_ns, cluster) WHERE revision > stored AND revision <= latest",
            )?,
        };
        for table in [Table::Series, Table::Origins] {
            let new = format!("ANTI JOIN stored_{} USING (id) ORDER BY id", table.name());
            self.insert(table, &new)?;
        }
        let slice = format!(
            "INSERT INTO lake.slices BY NAME
            SELECT $1 AS instance, $2 AS first_event, $3 AS last_event, $4 AS last_revision,
                   (SELECT max(received_ns) FROM new_event_rows WHERE event_id = $3) AS last_received_ns,
                   $5 AS n_events, $6 AS n_samples, $7 AS n_verdicts, $8 AS n_lost, $9 AS n_hours,
                   $10 AS committed_ns, {} AS open_hours, {} AS changed_hours",
            list(&due.open),
            list(&due.changed)
        );
        let values = params![
            self.instance,
            first_event,
            last.event,
            last.revision,
            written.events,
            written.samples,
            written.verdicts,
            written.lost,
            written.hours,
            now.value()
        ];
        self.session.change(doing, &slice, values)?;
        self.session.run(doing, "COMMIT")?;
        Ok(written)
    }

    /// Adds the staged rows that `which` selects, with their instance.
    fn insert(&self, table: Table, which: &str) -> Result<u64, LakeError> {
        let name = table.name();
        let insert = format!(
            "INSERT INTO {LAKE}.{name} BY NAME SELECT {} AS instance, new_{name}.* FROM new_{name} {which}",
            quoted(&self.instance)
        );
        self.session.change("writing a slice", &insert, [])
    }

    /// Records what is in the lake now, and frees the memory of the slice.
    fn remember(&mut self, last: Position, hours: Vec<(ClosedHour, u64)>) -> Result<(), LakeError> {
        for table in ["series", "origins"] {
            let stored = format!(
                "INSERT INTO stored_{table} SELECT id FROM new_{table} ANTI JOIN stored_{table} USING (id)"
            );
            self.session.run("remembering names", &stored)?;
        }
        for table in Table::ALL {
            let drop = format!("DROP TABLE new_{}", table.name());
            self.session.run("freeing memory", &drop)?;
        }
        for (hour, _) in hours {
            let key = (hour.hour.value(), hour.cluster);
            self.hours.insert(key, hour.revision);
        }
        self.position = last;
        Ok(())
    }
}

/// Returns a list as SQL.
fn list(instants: &[Nanos]) -> String {
    let values = instants.iter().map(|instant| instant.value().to_string());
    format!("[{}]::BIGINT[]", values.collect::<Vec<_>>().join(", "))
}

/// Range of the beginnings of hours, as numbers; empty without hours.
fn span(hours: &[(ClosedHour, u64)]) -> Numbers {
    let begins = hours
        .iter()
        .map(|(hour, _)| hour.hour.value().unsigned_abs());
    Numbers {
        first: begins.clone().min().unwrap_or(1),
        last: begins.max().unwrap_or(0),
    }
}

/// Reads the end of the last slice, or a position before all stored events.
fn last_slice(
    session: &Session,
    instance: &str,
    reader: &SliceReader,
) -> Result<Position, LakeError> {
    let last = "SELECT last_event, last_revision FROM lake.slices WHERE instance = ?
                ORDER BY last_event DESC, last_revision DESC LIMIT 1";
    let last = session.rows("reading the last slice", last, [instance], |row| {
        Ok(Position {
            event: row.get(0)?,
            revision: row.get(1)?,
        })
    })?;
    let Some(position) = last.first().copied() else {
        let first = reader.first_event()?;
        let before = first.map_or_else(
            || *reader.committed().borrow(),
            |first| first.saturating_sub(1),
        );
        return Ok(Position {
            event: before,
            revision: 0,
        });
    };
    let end = "SELECT last_event, last_received_ns FROM lake.slices
               WHERE instance = ? AND n_events > 0 AND last_received_ns IS NOT NULL
               ORDER BY last_event DESC LIMIT 1";
    let end = session.rows("reading the last event", end, [instance], |row| {
        Ok((row.get(0)?, Nanos::new(row.get(1)?)))
    })?;
    let has_diverged = match end.first() {
        None => false,
        Some(&(event, received)) => {
            let found = reader.received(event)?;
            event > *reader.committed().borrow() || found.is_some_and(|found| found != received)
        }
    };
    if has_diverged {
        return Err(LakeError::Diverged {
            in_lake: position.event,
        });
    }
    Ok(position)
}

/// Reads the due hours of the last slice.
fn due_hours(session: &Session, instance: &str) -> Result<DueHours, LakeError> {
    let due = "SELECT hour_ns, was_closed FROM lake.due_hours WHERE instance = ? ORDER BY hour_ns";
    let due = session.rows(
        "reading the due hours in the lake",
        due,
        [instance],
        |row| Ok((Nanos::new(row.get(0)?), row.get(1)?)),
    )?;
    Ok(due.into_iter().collect())
}
