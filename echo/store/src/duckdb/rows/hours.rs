//! Hourly costs: due hours, and revisions of closed hours.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use duckdb::{Connection, params, params_from_iter};
use echo_core::ids::ClusterId;
use echo_core::model::cost::{NodeHour, NodeSum, StoredHour};
use echo_core::units::{GpuTime, Hour, Nanos, Window};

use crate::duckdb::batches;
use crate::duckdb::engine::EngineResult;
use crate::duckdb::query::Query;
use crate::duckdb::rows::column;
use crate::duckdb::rows::row::Row;
use crate::hours::Hours;

/// Selects the latest revisions.
const LATEST: &str = "QUALIFY revision = max(revision) OVER (PARTITION BY hour_ns, cluster)";

/// Upper bound of the number of rows.
const MOST_ROWS: i64 = 1 << 40;

/// Due and closed hours of a database whose last event has the number `last_event`.
pub(in crate::duckdb) fn load(connection: &Connection, last_event: u64) -> EngineResult<Hours> {
    let hours = |sql: &str| -> EngineResult<Vec<Hour>> {
        let mut statement = connection.prepare(sql)?;
        let hours =
            statement.query_map([], |row| row.get(0).map(Nanos::new).map(Hour::containing))?;
        hours.collect()
    };
    let due = hours("SELECT DISTINCT hour_ns FROM due_hour_rows")?;
    let closed = hours("SELECT DISTINCT hour_ns FROM cost_hour_rows")?;
    Ok(Hours::load(due, BTreeSet::from_iter(closed), last_event))
}

/// Adds due hours.
pub(in crate::duckdb) fn append_due(connection: &Connection, hours: &[Hour]) -> EngineResult<()> {
    column::append(connection, "due_hour_rows", hours, |columns| {
        columns.i64("hour_ns", |hour| hour.begin().value())
    })
}

/// Clears the due mark of an hour.
pub(in crate::duckdb) fn forget_due(connection: &Connection, hour: Hour) -> EngineResult<()> {
    connection.execute(
        "DELETE FROM due_hour_rows WHERE hour_ns = ?",
        params![hour.begin().value()],
    )?;
    Ok(())
}

/// Adds rows, each with its revision.
pub(in crate::duckdb) fn append(
    connection: &Connection,
    rows: &[(u64, NodeHour)],
    now: Nanos,
) -> EngineResult<()> {
    column::append(connection, "cost_hour_rows", rows, |columns| {
        columns
            .i64("hour_ns", |(_, row)| row.hour.begin().value())
            .text("cluster", |(_, row)| row.cluster.as_str())
            .text("node", |(_, row)| row.node.as_str())
            .maybe_text("gpu_model", |(_, row)| row.gpu_model.as_deref())
            .u64("revision", |(revision, _)| *revision)
            .i64("computed_ns", |_| now.value())
            .u32("gpus", |(_, row)| row.gpus)
            .i64("allocated_us", |(_, row)| row.allocated.micros())
            .i64("lost_us", |(_, row)| row.lost.micros())
            .u32("ranks_reporting", |(_, row)| row.ranks_reporting)
            .u32("ranks_expected", |(_, row)| row.ranks_expected)
    })
}

fn of_window(head: &'static str, cluster: Option<&ClusterId>, window: Window) -> Query {
    Query::new(head)
        .bind("WHERE hour_ns >= ?", window.from().value())
        .bind("AND hour_ns < ?", window.to().value())
        .bind_some(
            "AND cluster = ?",
            cluster.map(|cluster| cluster.as_str().to_owned()),
        )
}

/// Latest revisions of hours that begin in the window.
pub(in crate::duckdb) fn in_window(
    cluster: Option<&ClusterId>,
    window: Window,
    limit: usize,
) -> Query {
    // The engine accepts no limit beyond 2^62.
    let limit = i64::try_from(limit).map_or(MOST_ROWS, |limit| limit.min(MOST_ROWS));
    of_window("SELECT * FROM cost_hour_rows", cluster, window)
        .then(LATEST)
        .then("ORDER BY hour_ns, cluster, node, gpu_model NULLS FIRST")
        .bind("LIMIT ?", limit)
}

/// Latest revision of one hour.
pub(in crate::duckdb) fn latest(
    connection: &Connection,
    hour: Hour,
) -> EngineResult<Vec<StoredHour>> {
    let query = in_window(None, hour.window(), usize::MAX);
    let mut statement = connection.prepare(&query.sql)?;
    let mut rows = Vec::new();
    for batch in batches::stream(&mut statement, params_from_iter(query.values.iter()))? {
        rows.extend(read(&batch?)?);
    }
    Ok(rows)
}

/// Rows in a batch.
pub(in crate::duckdb) fn read(batch: &RecordBatch) -> EngineResult<Vec<StoredHour>> {
    let stored = |row| {
        let row = Row::new(batch, row);
        Ok(StoredHour {
            revision: row.u64("revision")?,
            computed: Nanos::new(row.i64("computed_ns")?),
            row: NodeHour {
                hour: Hour::containing(Nanos::new(row.i64("hour_ns")?)),
                cluster: row.id("cluster")?,
                node: row.id("node")?,
                gpu_model: row.maybe_text("gpu_model")?.map(Arc::from),
                gpus: row.u32("gpus")?,
                allocated: GpuTime::new(row.i64("allocated_us")?),
                lost: GpuTime::new(row.i64("lost_us")?),
                ranks_reporting: row.u32("ranks_reporting")?,
                ranks_expected: row.u32("ranks_expected")?,
            },
        })
    };
    (0..batch.num_rows()).map(stored).collect()
}

/// Sums of closed hours that begin in the window, by node and model.
pub(in crate::duckdb) fn sums(cluster: Option<&ClusterId>, window: Window) -> Query {
    let latest = of_window(
        "SELECT cluster, node, gpu_model, min(hour_ns) AS hour_ns, count(*)::UBIGINT AS hours, \
         if(sum(allocated_us) > 9223372036854775807, 9223372036854775807, sum(allocated_us))::BIGINT AS allocated_us, if(sum(lost_us) > 9223372036854775807, 9223372036854775807, sum(lost_us))::BIGINT AS lost_us, \
         sum(ranks_reporting)::UBIGINT AS ranks_reporting, sum(ranks_expected)::UBIGINT AS ranks_expected \
         FROM (SELECT * FROM cost_hour_rows",
        cluster,
        window,
    );
    latest
        .then(LATEST)
        .then(") GROUP BY cluster, node, gpu_model ORDER BY cluster, node, gpu_model NULLS FIRST")
}

/// Sums in a batch.
pub(in crate::duckdb) fn read_sums(batch: &RecordBatch) -> EngineResult<Vec<NodeSum>> {
    let sum = |row| {
        let row = Row::new(batch, row);
        Ok(NodeSum {
            cluster: row.id("cluster")?,
            node: row.id("node")?,
            gpu_model: row.maybe_text("gpu_model")?.map(Arc::from),
            first: Hour::containing(Nanos::new(row.i64("hour_ns")?)),
            hours: row.u64("hours")?,
            allocated: GpuTime::new(row.i64("allocated_us")?),
            lost: GpuTime::new(row.i64("lost_us")?),
            ranks_reporting: row.u64("ranks_reporting")?,
            ranks_expected: row.u64("ranks_expected")?,
        })
    };
    (0..batch.num_rows()).map(sum).collect()
}

/// Clusters with closed hours in the window.
pub(in crate::duckdb) fn clusters(window: Window) -> Query {
    of_window("SELECT DISTINCT cluster FROM cost_hour_rows", None, window)
}

/// Clusters in a batch of rows.
pub(in crate::duckdb) fn read_clusters(batch: &RecordBatch) -> EngineResult<Vec<ClusterId>> {
    (0..batch.num_rows())
        .map(|row| Row::new(batch, row).id("cluster"))
        .collect()
}

/// GPU time allocated in closed hours that begin in the window.
pub(in crate::duckdb) fn allocation(cluster: Option<&ClusterId>, window: Window) -> Query {
    let latest = of_window(
        "SELECT if(sum(allocated_us) > 9223372036854775807, 9223372036854775807, sum(allocated_us))::BIGINT AS allocated_us FROM (SELECT * FROM cost_hour_rows",
        cluster,
        window,
    );
    latest.then(LATEST).then(")")
}

/// Sum in a batch of one row.
pub(in crate::duckdb) fn read_allocation(batch: &RecordBatch) -> EngineResult<GpuTime> {
    let sum = Row::new(batch, 0).maybe_i64("allocated_us")?;
    Ok(GpuTime::new(sum.unwrap_or(0)))
}

/// Deletes closed hours that begin before `cutoff`.
pub(in crate::duckdb) fn forget_before(connection: &Connection, cutoff: Nanos) -> EngineResult<()> {
    connection.execute(
        "DELETE FROM cost_hour_rows WHERE hour_ns < ?",
        params![cutoff.value()],
    )?;
    Ok(())
}
