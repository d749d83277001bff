//! Tables of the lake. They have the columns of the tables of the database, so that a column of a
//! later version is added to the lake by itself, and the instance that a row came from.

use std::collections::{BTreeMap, BTreeSet};

use echo_store::duckdb::slices::{Column, SliceReader, Table};

use crate::error::LakeError;
use crate::session::{LAKE, Session};

/// Column of the day, by which events and samples are partitioned.
const DAY: &str = "day";

/// Column of the instance.
const INSTANCE: &str = "instance VARCHAR NOT NULL";

/// Table of the slices that were committed. A slice and its row are one transaction.
const SLICES: &str = "slices";

/// Columns of slices. The last two are the beginnings of hours that are due to be closed: those that
/// were never closed, and those that have changed since.
const OF_SLICES: [(&str, &str); 12] = [
    ("first_event", "UBIGINT NOT NULL"),
    ("last_event", "UBIGINT NOT NULL"),
    ("last_revision", "UBIGINT NOT NULL"),
    ("last_received_ns", "BIGINT"),
    ("n_events", "UBIGINT NOT NULL"),
    ("n_samples", "UBIGINT NOT NULL"),
    ("n_verdicts", "UBIGINT NOT NULL"),
    ("n_lost", "UBIGINT NOT NULL"),
    ("n_hours", "UBIGINT NOT NULL"),
    ("committed_ns", "BIGINT NOT NULL"),
    ("open_hours", "BIGINT[]"),
    ("changed_hours", "BIGINT[]"),
];

/// Rows that were deleted because of their age, which slices count still.
const DELETIONS: &str = "CREATE TABLE IF NOT EXISTS lake.deletions (
    instance   VARCHAR NOT NULL,
    before_day DATE    NOT NULL,
    n_events   UBIGINT NOT NULL,
    n_samples  UBIGINT NOT NULL,
    deleted_ns BIGINT  NOT NULL
)";

/// Views for readers of the lake: name and query. Three have the names of views of an instance; the
/// last one has the hours that were due at the last slice of each instance.
const VIEWS: [(&str, &str); 4] = [
    (
        "events",
        "SELECT rows.instance, rows.event_id, rows.timestamp_ns, rows.received_ns, rows.cluster AS cluster_id,
                origins.node AS node_id, origins.rank, origins.nranks, origins.job, series.metric AS metric_name,
                series.unit, series.op, format('{:016x}', series.comm) AS comm_id, rows.seq_first, rows.seq_last,
                rows.number, rows.value, rows.min, rows.max, rows.attrs, rows.day
         FROM event_rows AS rows
         JOIN origins ON origins.instance = rows.instance AND origins.id = rows.origin
         JOIN series ON series.instance = rows.instance AND series.id = rows.series",
    ),
    (
        "verdicts",
        "SELECT * FROM verdict_rows
         QUALIFY row_number() OVER (PARTITION BY instance, incident ORDER BY revision DESC) = 1",
    ),
    (
        "cost_hours",
        "SELECT * FROM cost_hour_rows
         QUALIFY revision = max(revision) OVER (PARTITION BY instance, hour_ns, cluster)",
    ),
    (
        "due_hours",
        "WITH last AS (
             SELECT instance, open_hours, changed_hours FROM slices
             QUALIFY row_number() OVER (
                 PARTITION BY instance ORDER BY last_event DESC, last_revision DESC, committed_ns DESC
             ) = 1)
         SELECT instance, unnest(open_hours) AS hour_ns, false AS was_closed FROM last
         UNION ALL SELECT instance, unnest(changed_hours), true FROM last",
    ),
];

/// Creates missing tables, columns and views.
pub(crate) fn prepare(session: &Session, reader: &SliceReader) -> Result<(), LakeError> {
    let doing = "preparing the tables";
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let columns = "SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = ?";
    let columns = session.rows(doing, columns, [LAKE], |row| Ok((row.get(0)?, row.get(1)?)))?;
    for (table, column) in columns {
        found.entry(table).or_default().insert(column);
    }
    let mut tables = vec![(SLICES, of_slices())];
    for table in Table::ALL {
        tables.push((table.name(), reader.columns(table)?));
    }
    let mut changes = Vec::new();
    for (table, columns) in tables {
        match found.get(table) {
            None => changes.extend(created(table, &columns)),
            Some(known) => changes.extend(added(table, &columns, known)),
        }
    }
    if !found.contains_key("deletions") {
        changes.push(DELETIONS.to_owned());
    }
    let missing = VIEWS.iter().filter(|(name, _)| !found.contains_key(*name));
    changes.extend(
        missing.map(|(name, query)| format!("CREATE VIEW IF NOT EXISTS {LAKE}.{name} AS {query}")),
    );
    if changes.is_empty() {
        return Ok(());
    }
    let changes = changes.join(";\n");
    session.run(doing, &format!("BEGIN;\n{changes};\nCOMMIT"))
}

fn of_slices() -> Vec<Column> {
    let column = |(name, kind): (&str, &str)| Column {
        name: name.to_owned(),
        kind: kind.to_owned(),
    };
    OF_SLICES.into_iter().map(column).collect()
}

/// Returns the statements that create a table.
fn created(table: &str, columns: &[Column]) -> Vec<String> {
    let definitions: Vec<String> = columns.iter().map(definition).collect();
    let mut created = vec![format!(
        "CREATE TABLE IF NOT EXISTS {LAKE}.{table} ({INSTANCE}, {})",
        definitions.join(", ")
    )];
    if columns.iter().any(|column| column.name == DAY) {
        created.push(format!(
            "ALTER TABLE {LAKE}.{table} SET PARTITIONED BY ({DAY}, cluster)"
        ));
    }
    created
}

/// Returns the statements that add missing columns.
fn added(table: &str, columns: &[Column], known: &BTreeSet<String>) -> Vec<String> {
    let missing = columns
        .iter()
        .filter(|column| !known.contains(&column.name));
    missing
        .map(|column| {
            format!(
                "ALTER TABLE {LAKE}.{table} ADD COLUMN {}",
                definition(column)
            )
        })
        .collect()
}

/// Returns the definition of a column.
pub(crate) fn definition(Column { name, kind }: &Column) -> String {
    format!("\"{name}\" {kind}")
}
