//! Statements that make the tables of a lake visible under the names of own tables.

use std::collections::{BTreeMap, BTreeSet};

use duckdb::Connection;

use crate::duckdb::engine::EngineResult;
use crate::duckdb::lake_source::LAKE;

/// Tables whose rows are read in the lake, with their columns.
pub(super) type Columns = BTreeMap<&'static str, Vec<(String, String)>>;

/// Tables that are read in the lake.
const TABLES: [&str; 5] = [
    "event_rows",
    "sample_rows",
    "verdict_rows",
    "lost_rows",
    "cost_hour_rows",
];

/// Tables that are copied from the lake: series and origins.
const NAMES: [&str; 2] = ["series", "origins"];

/// Distance between the event numbers of two instances: each numbers its events from 1. JSON holds
/// the numbers of 512 instances exactly.
const NUMBERS_AN_INSTANCE: u64 = 1 << 44;

/// Columns of the own tables, which the queries expect.
pub(super) fn columns(connection: &Connection) -> EngineResult<Columns> {
    let mut columns = Columns::new();
    for table in TABLES {
        let mut statement = connection.prepare(
            "SELECT column_name, data_type FROM duckdb_columns()
             WHERE database_name = current_database() AND table_name = ? ORDER BY column_index",
        )?;
        let rows = statement.query_map([table], |row| Ok((row.get(0)?, row.get(1)?)))?;
        columns.insert(table, rows.collect::<EngineResult<_>>()?);
    }
    Ok(columns)
}

/// Columns of the tables in the lake.
pub(super) fn stored_columns(
    connection: &Connection,
) -> EngineResult<BTreeMap<String, BTreeSet<String>>> {
    let mut statement = connection
        .prepare("SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = ?")?;
    let mut stored: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in statement.query_map([LAKE], |row| Ok((row.get(0)?, row.get(1)?)))? {
        let (table, column): (String, String) = row?;
        stored.entry(table).or_default().insert(column);
    }
    Ok(stored)
}

/// Instances in the order of their first commits, which does not change.
pub(super) fn instances(connection: &Connection) -> EngineResult<Vec<String>> {
    let instances = format!(
        "SELECT instance FROM {LAKE}.main.slices GROUP BY instance ORDER BY min(committed_ns), instance"
    );
    let mut statement = connection.prepare(&instances)?;
    let instances = statement.query_map([], |row| row.get(0))?;
    instances.collect()
}

/// Instances, each with the clusters that it has sent events of.
pub(super) fn clusters(connection: &Connection) -> EngineResult<Vec<(String, String)>> {
    let clusters = format!("SELECT DISTINCT instance, cluster FROM {LAKE}.main.origins");
    let mut statement = connection.prepare(&clusters)?;
    let clusters = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    clusters.collect()
}

/// Hour that an instance had due at its last slice.
#[derive(Debug)]
pub(super) struct DueHour {
    /// Instance.
    pub(super) instance: String,
    /// Beginning of the hour.
    pub(super) hour_ns: i64,
    /// True if it was closed before.
    pub(super) was_closed: bool,
}

/// Due hours of the instances, in the order of hours.
pub(super) fn due_hours(connection: &Connection) -> EngineResult<Vec<DueHour>> {
    let due = format!(
        "SELECT instance, hour_ns, was_closed FROM {LAKE}.main.due_hours ORDER BY hour_ns, instance"
    );
    let mut statement = connection.prepare(&due)?;
    let due = statement.query_map([], |row| {
        Ok(DueHour {
            instance: row.get(0)?,
            hour_ns: row.get(1)?,
            was_closed: row.get(2)?,
        })
    })?;
    due.collect()
}

/// Numbers of series and of origins in the lake.
pub(super) fn count_names(connection: &Connection) -> EngineResult<(u64, u64)> {
    let count = format!(
        "SELECT (SELECT count(*) FROM {LAKE}.main.series)::UBIGINT, (SELECT count(*) FROM {LAKE}.main.origins)::UBIGINT"
    );
    connection.query_row(&count, [], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Copies series and origins that are new. Fails if two instances use an id for different ones:
/// ids are hashes, and the rows of one would get the names of the other.
pub(super) fn copy_names(connection: &Connection) -> EngineResult<()> {
    for table in NAMES {
        connection.execute_batch(&format!(
            "CREATE OR REPLACE TEMP TABLE lake_names AS
             SELECT DISTINCT COLUMNS(c -> c <> 'instance') FROM {LAKE}.main.{table};
             INSERT INTO main.{table} BY NAME
             SELECT lake_names.* FROM lake_names ANTI JOIN main.{table} USING (id);
             SELECT CASE WHEN count(*) <> count(DISTINCT id)
                 THEN error('two instances have different {table} with one id') END FROM lake_names;
             DROP TABLE lake_names"
        ))?;
    }
    Ok(())
}

/// Drops the own tables, which are empty.
pub(super) fn drop_tables(connection: &Connection) -> EngineResult<()> {
    let drop = |table| format!("DROP TABLE main.{table};");
    let drops: String = TABLES.map(drop).concat();
    connection.execute_batch(&drops)
}

/// Returns the statement that shows the rows of a table at a snapshot; `stored` are its columns in
/// the lake, which may be those of an earlier version. Of the `instances`, the events of the first
/// have the numbers that it gave them.
pub(super) fn definition(
    (table, columns): (&str, &[(String, String)]),
    stored: &BTreeSet<String>,
    snapshot: i64,
    instances: &[String],
) -> String {
    let rows = format!("FROM {LAKE}.main.{table} AT (VERSION => {snapshot})");
    let selected = |first_number: u64| -> String {
        let columns = columns.iter().map(|(name, kind)| {
            if !stored.contains(name) {
                format!("NULL::{kind} AS \"{name}\"")
            } else if name == "event_id" && first_number > 0 {
                format!("event_id + {first_number}::UBIGINT AS event_id")
            } else {
                format!("\"{name}\"")
            }
        });
        columns.collect::<Vec<_>>().join(", ")
    };
    let has_events = columns.iter().any(|(name, _)| name == "event_id");
    let select = if has_events && instances.len() > 1 {
        // One part per instance, so that ranges of event numbers select files.
        let parts = instances
            .iter()
            .zip(0..)
            .map(|(instance, index): (_, u64)| {
                let columns = selected(index * NUMBERS_AN_INSTANCE);
                format!(
                    "SELECT {columns} {rows} WHERE instance = '{}'",
                    instance.replace('\'', "''")
                )
            });
        parts.collect::<Vec<_>>().join("\nUNION ALL\n")
    } else {
        format!("SELECT {} {rows}", selected(0))
    };
    format!("CREATE OR REPLACE VIEW main.{table} AS\n{select}")
}

#[cfg(test)]
mod tests {
    use super::definition;

    #[test]
    fn the_events_of_each_instance_have_numbers_of_their_own() {
        let columns = [("event_id", "UBIGINT"), ("value", "DOUBLE")];
        let columns = columns.map(|(name, kind)| (name.to_owned(), kind.to_owned()));
        let stored = ["event_id".to_owned()].into();
        let instances = ["a", "b"].map(str::to_owned);
        let view = definition(("event_rows", &columns), &stored, 7, &instances);
        assert_eq!(
            view,
            "CREATE OR REPLACE VIEW main.event_rows AS
SELECT \"event_id\", NULL::DOUBLE AS \"value\" FROM lake.main.event_rows AT (VERSION => 7) WHERE instance = 'a'
UNION ALL
SELECT event_id + 17592186044416::UBIGINT AS event_id, NULL::DOUBLE AS \"value\" FROM lake.main.event_rows AT (VERSION => 7) WHERE instance = 'b'"
        );
    }
}
