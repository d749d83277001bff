//! Detector output as a whole, lost time and policies.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use duckdb::{Connection, params};
use echo_core::ids::{ClusterId, IncidentId};
use echo_core::model::detector_output::{DetectorOutput, LostTime, PolicyRecord};
use echo_core::units::{Nanos, Window};

use crate::duckdb::engine::EngineResult;
use crate::duckdb::query::Query;
use crate::duckdb::rows::column::{self, Unexpected, malformed};
use crate::duckdb::rows::row::Row;
use crate::duckdb::rows::verdicts;
use crate::resume::{Resume, WarmUp};

/// Appends detector output; its rows are numbered from `revision` on. Returns the number after the
/// last.
pub(in crate::duckdb) fn append(
    connection: &Connection,
    output: &DetectorOutput,
    revision: u64,
    now: Nanos,
) -> EngineResult<u64> {
    verdicts::append(connection, &output.incidents, revision, now)?;
    let revision = revision + output.incidents.len() as u64;
    let lost: Vec<_> = (revision..).zip(&output.lost).collect();
    column::append(connection, "lost_rows", &lost, |columns| {
        columns
            .u64("revision", |(revision, _)| *revision)
            .u64("incident", |(_, lost)| lost.incident.value())
            .text("cluster", |(_, lost)| lost.cluster.as_str())
            .text("node", |(_, lost)| lost.node.as_str())
            .maybe_text("gpu_model", |(_, lost)| lost.gpu_model.as_deref())
            .i64("from_ns", |(_, lost)| lost.interval.from().value())
            .i64("to_ns", |(_, lost)| lost.interval.to().value())
            .u32("n_ranks", |(_, lost)| lost.n_ranks)
            .f64("iterations", |(_, lost)| lost.iterations)
            .f64("lost_gpu_ms", |(_, lost)| lost.lost_gpu_ms)
            .maybe_f64("peer_wait_gpu_ms", |(_, lost)| lost.peer_wait_gpu_ms)
            .f64("saved_gpu_ms", |(_, lost)| lost.saved_gpu_ms)
    })?;
    let revision = revision + output.lost.len() as u64;
    let policies: Vec<_> = (revision..).zip(&output.policies).collect();
    column::append(connection, "policy_rows", &policies, |columns| {
        columns
            .u64("revision", |(revision, _)| *revision)
            .text("cluster", |(_, policy)| policy.cluster.as_str())
            .u64("version", |(_, policy)| policy.version)
            .i64("computed_ns", |(_, policy)| policy.computed_at.value())
            .bytes("encoded", |(_, policy)| &policy.encoded)
    })?;
    column::append(
        connection,
        "judged_rows",
        output.judged.as_slice(),
        |columns| columns.u64("event_id", |judged| *judged),
    )?;
    Ok(revision + output.policies.len() as u64)
}

/// Returns the first unused revision number.
pub(in crate::duckdb) fn next_revision(connection: &Connection) -> EngineResult<u64> {
    connection.query_row(
        "SELECT 1 + greatest(
            (SELECT coalesce(max(revision), 0) FROM verdict_rows),
            (SELECT coalesce(max(revision), 0) FROM lost_rows),
            (SELECT coalesce(max(revision), 0) FROM policy_rows))",
        [],
        |row| row.get(0),
    )
}

/// Deletes states of incidents before `cutoff`, except the first, those that changed the finding,
/// and the last of each hour and state; and lost time that was corrected later.
pub(in crate::duckdb) fn compact(connection: &Connection, cutoff: Nanos) -> EngineResult<()> {
    connection.execute(
        "DELETE FROM verdict_rows
         WHERE revised_ns < ? AND revision NOT IN (
            SELECT max(revision) FROM verdict_rows
            GROUP BY incident, state, revised_ns // 3600000000000
            UNION ALL
            SELECT revision FROM verdict_rows
            QUALIFY (state, finding, rank, class, severity, provisional) IS DISTINCT FROM
                lag((state, finding, rank, class, severity, provisional))
                    OVER (PARTITION BY incident ORDER BY revision))",
        params![cutoff.value()],
    )?;
    connection.execute(
        "DELETE FROM lost_rows WHERE revision NOT IN (
            SELECT max(revision) FROM lost_rows
            GROUP BY incident, node, gpu_model, from_ns, to_ns)",
        [],
    )?;
    connection.execute(
        "DELETE FROM judged_rows WHERE event_id < (SELECT max(event_id) FROM judged_rows)",
        [],
    )?;
    Ok(())
}

/// Reads the point at which a detector resumes, and the last policies.
pub(in crate::duckdb) fn resume(connection: &Connection, warm_up: WarmUp) -> EngineResult<Resume> {
    let judged: u64 = connection.query_row("SELECT max(event_id) FROM judged_rows", [], |row| {
        row.get(0)
    })?;
    // Measured from the last event alone: a clock that once ran ahead must not make all others look
    // old.
    let last: Option<i64> = connection.query_row(
        "SELECT arg_max(received_ns, event_id) FROM event_rows WHERE event_id <= ?",
        params![judged],
        |row| row.get(0),
    )?;
    let begin = last.map_or(Nanos::EARLIEST, |last| {
        Nanos::new(last).before(warm_up.span)
    });
    // An event with a much older time, from a clock that was once behind, does not end the window
    // either: only events just before its beginning do.
    let old: u64 = connection.query_row(
        "SELECT coalesce(max(event_id), 0) FROM event_rows
         WHERE event_id <= ? AND received_ns < ? AND received_ns >= ?",
        params![judged, begin.value(), begin.before(WarmUp::EDGE).value()],
        |row| row.get(0),
    )?;
    let mut policies = connection.prepare(
        "SELECT cluster, version, computed_ns, encoded FROM policy_rows
         WHERE revision IN (SELECT max(revision) FROM policy_rows GROUP BY cluster) ORDER BY cluster",
    )?;
    let policies = policies.query_map([], |row| {
        let cluster: String = row.get(0)?;
        Ok(PolicyRecord {
            cluster: cluster
                .parse()
                .map_err(|_unprintable| malformed(Unexpected("cluster")))?,
            version: row.get(1)?,
            computed_at: Nanos::new(row.get(2)?),
            encoded: row.get(3)?,
        })
    })?;
    Ok(Resume {
        after: old.max(judged.saturating_sub(warm_up.events)),
        judged,
        policies: policies.collect::<EngineResult<_>>()?,
    })
}

/// Latest revision of each interval of lost time that begins in the window.
pub(in crate::duckdb) fn lost_time(cluster: Option<&ClusterId>, window: Window) -> Query {
    Query::new("SELECT * FROM lost_rows WHERE TRUE")
        .bind("AND from_ns >= ?", window.from().value())
        .bind("AND from_ns < ?", window.to().value())
        .bind_some(
            "AND cluster = ?",
            cluster.map(|cluster| cluster.as_str().to_owned()),
        )
        .then(
            "QUALIFY row_number() OVER (
                PARTITION BY incident, node, gpu_model, from_ns, to_ns ORDER BY revision DESC) = 1
             ORDER BY from_ns, to_ns, incident, node, gpu_model NULLS FIRST",
        )
}

/// Lost time in a batch of rows.
pub(in crate::duckdb) fn read_lost_time(batch: &RecordBatch) -> EngineResult<Vec<LostTime>> {
    (0..batch.num_rows())
        .map(|row| Row::new(batch, row).lost_time())
        .collect()
}

impl Row<'_> {
    fn lost_time(&self) -> EngineResult<LostTime> {
        let interval = Window::new(
            Nanos::new(self.i64("from_ns")?),
            Nanos::new(self.i64("to_ns")?),
        );
        Ok(LostTime {
            incident: IncidentId::new(self.u64("incident")?),
            cluster: self.id("cluster")?,
            node: self.id("node")?,
            gpu_model: self.maybe_text("gpu_model")?.map(Arc::from),
            interval: interval.ok_or_else(|| malformed(Unexpected("to_ns")))?,
            n_ranks: self.u32("n_ranks")?,
            iterations: self.f64("iterations")?,
            lost_gpu_ms: self.f64("lost_gpu_ms")?,
            peer_wait_gpu_ms: self.maybe_f64("peer_wait_gpu_ms")?,
            saved_gpu_ms: self.f64("saved_gpu_ms")?,
        })
    }
}
