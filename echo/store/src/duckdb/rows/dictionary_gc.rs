//! Garbage collection of series and origins that no event refers to.

use duckdb::{Connection, params};

use crate::duckdb::dictionary::Kind;
use crate::duckdb::engine::EngineResult;

/// Ids deleted per transaction: about sixty milliseconds of the writer's time.
const STEP: usize = 20_000;

/// Ids of one kind that nothing referred to when they were searched for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::duckdb) struct UnusedEntries {
    kind: Kind,
    ids: Vec<u64>,
    /// Number of the last event at that time.
    seen: u64,
}

impl Kind {
    /// Table of the kind, and the column of events that refers to it.
    const fn table_and_column(self) -> (&'static str, &'static str) {
        match self {
            Self::Series => ("series", "series"),
            Self::Origin => ("origins", "origin"),
        }
    }
}

/// Scans all events. Returns the unreferenced ids, in steps for the writer.
pub(in crate::duckdb) fn find(connection: &Connection) -> EngineResult<Vec<UnusedEntries>> {
    // Read first: events that are added from here on are checked again.
    let seen: u64 = connection.query_row(
        "SELECT coalesce(max(event_id), 0)::UBIGINT FROM event_rows",
        [],
        |row| row.get(0),
    )?;
    let mut steps = Vec::new();
    for kind in [Kind::Series, Kind::Origin] {
        let (table, column) = kind.table_and_column();
        let mut statement = connection.prepare(&format!(
            "SELECT id FROM {table} WHERE id NOT IN (SELECT {column} FROM event_rows)"
        ))?;
        let ids: Vec<u64> = statement
            .query_map([], |row| row.get(0))?
            .collect::<EngineResult<_>>()?;
        steps.extend(ids.chunks(STEP).map(|ids| UnusedEntries {
            kind,
            ids: ids.to_vec(),
            seen,
        }));
    }
    Ok(steps)
}

/// Deletes the entries that are still unreferenced; called between commits. Returns their kind and
/// the deleted ids.
pub(in crate::duckdb) fn delete(
    connection: &Connection,
    UnusedEntries { kind, ids, seen }: &UnusedEntries,
) -> EngineResult<(Kind, Vec<u64>)> {
    let (table, column) = kind.table_and_column();
    // One text: the engine takes a second to parse as many numbers in a statement.
    let list: Vec<String> = ids.iter().map(u64::to_string).collect();
    let mut statement = connection.prepare(&format!(
        "DELETE FROM {table}
         WHERE id IN (SELECT unnest(string_split(?1, ','))::UBIGINT) AND id NOT IN (SELECT {column} FROM event_rows WHERE event_id > ?2)
         RETURNING id"
    ))?;
    let gone = statement.query_map(params![list.join(","), seen], |row| row.get(0))?;
    Ok((*kind, gone.collect::<EngineResult<_>>()?))
}
