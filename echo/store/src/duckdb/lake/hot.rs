//! Rows of the own database that are not in the lake yet.
//!
//! The engine that reads the lake has tables of them beside the views of the lake. Each refresh
//! appends what was committed since the last one, and removes what a newer snapshot has, in the
//! transaction that shows the snapshot, so that a query sees each row once.

use arrow::record_batch::RecordBatch;
use duckdb::Connection;

use crate::StoreError;
use crate::duckdb::engine::{EngineResult, engine};
use crate::duckdb::lake_source::LAKE;
use crate::duckdb::slices::{CopyError, Numbers, SliceReader, Table};

/// Operation in errors.
const DOING: &str = "copying rows that are not in the lake";

/// Small tables that are copied as a whole when they have changed: name in the own database, name
/// of the copy, and an aggregate that differs after every change.
const WHOLE: [(&str, &str, &str); 4] = [
    ("cost_hour_rows", "hot_cost_hour_rows", "max(computed_ns)"),
    ("dropped_rows", "dropped_rows", "sum(n_events)"),
    ("judged_rows", "judged_rows", "max(event_id)"),
    ("policy_rows", "policy_rows", "max(revision)"),
];

/// Rows of the own database.
#[derive(Debug)]
pub(super) struct HotRows {
    slices: SliceReader,
    /// Identity of the own database, under which its rows are in the lake.
    pub(super) instance: String,
    copied: Copied,
}

/// State of the copy.
#[derive(Debug, Default, Clone)]
pub(super) struct Copied {
    /// Last event and revision that are in the lake or copied.
    last: Border,
    /// Last event and revision in the lake.
    border: Border,
    /// State of each small table.
    whole: [Option<u64>; WHOLE.len()],
    /// Whether series or origins were added.
    pub(super) has_names: bool,
    /// Whether any row was added or removed.
    pub(super) has_changed: bool,
}

/// End of what is in the lake.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Border {
    event: u64,
    revision: u64,
}

impl HotRows {
    /// Rows of this database; nothing is copied yet.
    pub(super) fn new(slices: SliceReader) -> Result<Self, StoreError> {
        Ok(Self {
            instance: slices.database_id()?,
            slices,
            copied: Copied::default(),
        })
    }

    /// Copies what is missing into the tables of a connection, in its transaction. `is_new` if it
    /// shows another snapshot than before.
    pub(super) fn copy(&self, connection: &Connection, is_new: bool) -> Result<Copied, StoreError> {
        let mut copied = Copied {
            has_names: false,
            has_changed: is_new,
            ..self.copied.clone()
        };
        if is_new {
            let pruned = border(connection, &self.instance)
                .and_then(|border| prune(connection, border).map(|()| border));
            copied.border = pruned.map_err(engine(DOING))?;
            copied.last.event = copied.last.event.max(copied.border.event);
            copied.last.revision = copied.last.revision.max(copied.border.revision);
        }
        self.copy_whole(connection, &mut copied)?;
        // Conclusions before events, so that none refers to an event that is not there.
        let revisions = Numbers {
            first: copied.last.revision.saturating_add(1),
            last: self.slices.last_revision()?,
        };
        let committed = *self.slices.committed().borrow();
        let events = Numbers {
            first: copied.last.event.saturating_add(1),
            last: committed,
        };
        for (table, numbers) in [
            (Table::Verdicts, revisions),
            (Table::Lost, revisions),
            (Table::Events, events),
            (Table::Samples, events),
        ] {
            self.append(connection, table, &format!("hot_{}", table.name()), numbers)?;
        }
        if events.first <= events.last {
            for table in [Table::Series, Table::Origins] {
                copied.has_names |= self.append_names(connection, table, events)?;
            }
        }
        copied.has_changed |= events.first <= events.last || revisions.first <= revisions.last;
        copied.last.event = copied.last.event.max(events.last);
        copied.last.revision = copied.last.revision.max(revisions.last);
        Ok(copied)
    }

    /// Returns whether lake and copy have all rows together: the slices of the lake are those of
    /// this database, and no event after them was deleted.
    pub(super) fn is_whole(&self, copied: &Copied) -> bool {
        copied.border.event <= self.slices.confirmed()
            && self.slices.deleted() <= copied.border.event
    }

    /// Records a copy that was committed.
    pub(super) fn record(&mut self, copied: Copied) {
        self.copied = copied;
    }

    fn copy_whole(&self, connection: &Connection, copied: &mut Copied) -> Result<(), StoreError> {
        for ((table, target, aggregate), known) in WHOLE.into_iter().zip(&mut copied.whole) {
            let state = format!("SELECT hash(count(*), {aggregate}) FROM {table}");
            let state = self
                .slices
                .query(DOING, |own| own.query_row(&state, [], |row| row.get(0)))?;
            if *known == Some(state) {
                continue;
            }
            *known = Some(state);
            copied.has_changed = true;
            let empty = format!("DELETE FROM main.{target}");
            connection.execute_batch(&empty).map_err(engine(DOING))?;
            let mut appender = connection.appender(target).map_err(engine(DOING))?;
            let rows = format!("SELECT * FROM {table}");
            let appended = self
                .slices
                .stream(&rows, [], |batch| appender.append_record_batch(batch));
            appended.map_err(store_error)?;
            appender.flush().map_err(engine(DOING))?;
        }
        Ok(())
    }

    /// Appends rows to a table with the columns of the own one.
    fn append(
        &self,
        connection: &Connection,
        table: Table,
        target: &str,
        numbers: Numbers,
    ) -> Result<(), StoreError> {
        if numbers.first > numbers.last {
            return Ok(());
        }
        let mut appender = connection.appender(target).map_err(engine(DOING))?;
        let appended = self.slices.each_batch(table, numbers, |batch| {
            appender.append_record_batch(own_columns(table, &batch)?)
        });
        appended.map_err(store_error)?;
        appender.flush().map_err(engine(DOING))
    }

    /// Adds the series or origins that events refer to. Returns whether any is new.
    fn append_names(
        &self,
        connection: &Connection,
        table: Table,
        events: Numbers,
    ) -> Result<bool, StoreError> {
        let name = table.name();
        let prepare = format!("CREATE OR REPLACE TEMP TABLE hot_names AS FROM main.{name} LIMIT 0");
        connection.execute_batch(&prepare).map_err(engine(DOING))?;
        self.append(connection, table, "hot_names", events)?;
        let add = format!(
            "INSERT INTO main.{name} SELECT hot_names.* FROM hot_names ANTI JOIN main.{name} USING (id)"
        );
        let added = connection.execute(&add, []).map_err(engine(DOING))?;
        Ok(added > 0)
    }
}

/// Creates the tables of the copy, like the own ones.
pub(super) fn create_tables(
    connection: &Connection,
    tables: impl Iterator<Item = &'static str>,
) -> EngineResult<()> {
    let create = |table| format!("CREATE TABLE main.hot_{table} AS FROM main.{table} LIMIT 0;");
    connection.execute_batch(&tables.map(create).collect::<String>())
}

/// Reads the end of what the lake has of an instance.
fn border(connection: &Connection, instance: &str) -> EngineResult<Border> {
    let last = format!(
        "SELECT coalesce(max(last_event), 0), coalesce(max(last_revision), 0)
         FROM {LAKE}.main.slices WHERE instance = ?"
    );
    connection.query_row(&last, [instance], |row| {
        Ok(Border {
            event: row.get(0)?,
            revision: row.get(1)?,
        })
    })
}

/// Removes rows that the lake has. Closed hours are compared when they are read.
fn prune(connection: &Connection, border: Border) -> EngineResult<()> {
    let Border { event, revision } = border;
    connection.execute_batch(&format!(
        "DELETE FROM main.hot_event_rows WHERE event_id <= {event};
         DELETE FROM main.hot_sample_rows WHERE event_id <= {event};
         DELETE FROM main.hot_verdict_rows WHERE revision <= {revision};
         DELETE FROM main.hot_lost_rows WHERE revision <= {revision}"
    ))
}

/// Events and samples are selected with their day and cluster first, which only the lake has.
fn own_columns(table: Table, batch: &RecordBatch) -> EngineResult<RecordBatch> {
    let first = match table {
        Table::Events | Table::Samples => 2,
        _ => 0,
    };
    let columns: Vec<usize> = (first..batch.num_columns()).collect();
    let batch = batch.project(&columns);
    batch.map_err(|error| duckdb::Error::ToSqlConversionFailure(Box::new(error)))
}

fn store_error(error: CopyError<duckdb::Error>) -> StoreError {
    match error {
        CopyError::Read(error) => error,
        CopyError::Write(error) => engine(DOING)(error),
    }
}
