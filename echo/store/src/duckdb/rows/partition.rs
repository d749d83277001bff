//! Slices of received time: contents, size and deletion.

use duckdb::{Connection, OptionalExt, params};
use echo_core::units::Nanos;

use crate::duckdb::engine::EngineResult;

/// Blocks of the database file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::duckdb) struct Blocks {
    /// In use.
    pub(in crate::duckdb) used: u64,
    /// Free for reuse.
    pub(in crate::duckdb) free: u64,
}

/// Events received in a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::duckdb) struct Events {
    /// Lowest number.
    pub(in crate::duckdb) first: u64,
    /// Highest number.
    pub(in crate::duckdb) last: u64,
}

/// Part of a slice that is deleted in one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::duckdb) struct DeleteRange {
    /// Beginning of the slice.
    pub(in crate::duckdb) from: Nanos,
    /// End of the slice; events in the range of numbers that were received before it are deleted.
    pub(in crate::duckdb) until: Nanos,
    /// Range of event numbers.
    pub(in crate::duckdb) events: Events,
    /// Name of the limit that caused the deletion.
    pub(in crate::duckdb) reason: &'static str,
}

/// Received times of the first and the last stored event.
pub(in crate::duckdb) fn ends(connection: &Connection) -> EngineResult<Option<(Nanos, Nanos)>> {
    let (first, last): (Option<i64>, Option<i64>) = connection.query_row(
        "SELECT min(received_ns), max(received_ns) FROM event_rows",
        [],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    Ok(first.map(Nanos::new).zip(last.map(Nanos::new)))
}

/// Beginnings of the minutes in which the stored events were received, in order.
pub(in crate::duckdb) fn minutes(connection: &Connection) -> EngineResult<Vec<Nanos>> {
    let mut statement = connection.prepare(
        "SELECT DISTINCT received_ns - received_ns % 60000000000 AS minute FROM event_rows ORDER BY minute",
    )?;
    statement
        .query_map([], |row| row.get(0).map(Nanos::new))?
        .collect()
}

/// Events numbered from `from` on that were received before `until`, if any.
pub(in crate::duckdb) fn events_before(
    connection: &Connection,
    until: Nanos,
    from: u64,
) -> EngineResult<Option<Events>> {
    let (first, last): (Option<u64>, Option<u64>) = connection.query_row(
        "SELECT min(event_id), max(event_id) FROM event_rows WHERE received_ns < ? AND event_id >= ?",
        params![until.value(), from],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    Ok(first.zip(last).map(|(first, last)| Events { first, last }))
}

/// Number of jobs with events received before `until` and others received since `lately`.
pub(in crate::duckdb) fn running_jobs(
    connection: &Connection,
    until: Nanos,
    lately: Nanos,
) -> EngineResult<u64> {
    connection.query_row(
        "SELECT count(*)::UBIGINT FROM (
            SELECT cluster, job FROM origins WHERE id IN (SELECT origin FROM event_rows WHERE received_ns < ?)
            INTERSECT
            SELECT cluster, job FROM origins WHERE id IN (SELECT origin FROM event_rows WHERE received_ns >= ?))",
        params![until.value(), lately.value()],
        |row| row.get(0),
    )
}

/// Usage of the file.
pub(in crate::duckdb) fn blocks(connection: &Connection) -> EngineResult<Blocks> {
    connection.query_row(
        "SELECT (block_size * used_blocks)::UBIGINT, (block_size * free_blocks)::UBIGINT
         FROM pragma_database_size()",
        [],
        |row| {
            Ok(Blocks {
                used: row.get(0)?,
                free: row.get(1)?,
            })
        },
    )
}

/// Event times in the part of a slice, rounded down to ten seconds.
pub(in crate::duckdb) fn times(
    connection: &Connection,
    range: &DeleteRange,
) -> EngineResult<Vec<Nanos>> {
    let mut statement = connection.prepare(
        "SELECT DISTINCT timestamp_ns - timestamp_ns % 10000000000 FROM event_rows
         WHERE event_id BETWEEN ? AND ? AND received_ns < ?",
    )?;
    let Events { first, last } = range.events;
    let which = params![first, last, range.until.value()];
    let times = statement.query_map(which, |row| row.get(0).map(Nanos::new))?;
    times.collect()
}

/// Deletes a part of a slice and records it. Returns the number of deleted events.
pub(in crate::duckdb) fn delete(
    connection: &Connection,
    range: &DeleteRange,
    now: Nanos,
) -> EngineResult<u64> {
    let Events { first, last } = range.events;
    let which = params![first, last, range.until.value()];
    connection.execute(
        "DELETE FROM sample_rows WHERE event_id BETWEEN ?1 AND ?2 AND event_id IN (
            SELECT event_id FROM event_rows WHERE event_id BETWEEN ?1 AND ?2 AND received_ns < ?3)",
        which,
    )?;
    let gone = connection.execute(
        "DELETE FROM event_rows WHERE event_id BETWEEN ?1 AND ?2 AND received_ns < ?3",
        which,
    )?;
    let gone = u64::try_from(gone).unwrap_or(u64::MAX);
    let (from, until) = (range.from.value(), range.until.value());
    let before: Option<u64> = connection
        .query_row(
            "DELETE FROM dropped_rows WHERE from_ns = ? AND until_ns = ? RETURNING n_events",
            params![from, until],
            |row| row.get(0),
        )
        .optional()?;
    let total = before.unwrap_or(0).saturating_add(gone);
    connection.execute(
        "INSERT INTO dropped_rows (from_ns, until_ns, n_events, last_event_id, dropped_ns, reason)
         VALUES (?, ?, ?, ?, ?, ?)",
        params![from, until, total, last, now.value(), range.reason],
    )?;
    Ok(gone)
}

/// Received time up to which events were deleted, if any were.
pub(in crate::duckdb) fn dropped_until(connection: &Connection) -> EngineResult<Option<Nanos>> {
    let until: Option<i64> =
        connection.query_row("SELECT max(until_ns) FROM dropped_rows", [], |row| {
            row.get(0)
        })?;
    Ok(until.map(Nanos::new))
}

/// Deletes policies computed before `cutoff`, except the last of each cluster.
pub(in crate::duckdb) fn forget_policies(
    connection: &Connection,
    cutoff: Nanos,
) -> EngineResult<()> {
    connection.execute(
        "DELETE FROM policy_rows WHERE computed_ns < ? AND revision NOT IN (
            SELECT max(revision) FROM policy_rows GROUP BY cluster)",
        params![cutoff.value()],
    )?;
    Ok(())
}
