//! Culprits of past incidents.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use echo_core::ids::{ClusterId, IncidentId};
use echo_core::units::{Nanos, Window};

use crate::duckdb::engine::EngineResult;
use crate::duckdb::query::Query;
use crate::duckdb::rows::row::Row;
use crate::incident_history::PastCulprit;

/// Latest states of incidents raised in the window, if they name a culprit.
pub(in crate::duckdb) fn query(cluster: Option<&ClusterId>, raised: Window) -> Query {
    Query::new(
        "SELECT
            incident, cluster, job, node, gpu_uuid, raised_ns, first_seen_ns,
            coalesce(cleared_ns, last_seen_ns) AS until_ns
         FROM (
            SELECT
                incident, cluster, job, node, gpu_uuid, finding, raised_ns, first_seen_ns, cleared_ns,
                last_seen_ns
            FROM verdict_rows WHERE TRUE",
    )
    .bind_some(
        "AND cluster = ?",
        cluster.map(|cluster| cluster.as_str().to_owned()),
    )
    .then("QUALIFY row_number() OVER (PARTITION BY incident ORDER BY revision DESC) = 1)")
    .then("WHERE finding = 'culprit'")
    .bind("AND raised_ns >= ?", raised.from().value())
    .bind("AND raised_ns < ?", raised.to().value())
    .then("ORDER BY raised_ns, incident")
}

/// Culprits in a batch of rows.
pub(in crate::duckdb) fn read(batch: &RecordBatch) -> EngineResult<Vec<PastCulprit>> {
    (0..batch.num_rows())
        .map(|row| culprit(&Row::new(batch, row)))
        .collect()
}

fn culprit(row: &Row<'_>) -> EngineResult<PastCulprit> {
    Ok(PastCulprit {
        incident: IncidentId::new(row.u64("incident")?),
        cluster: row.id("cluster")?,
        job: row.maybe_id("job")?,
        node: row.id("node")?,
        gpu_uuid: row.maybe_text("gpu_uuid")?.map(Arc::from),
        raised_at: Nanos::new(row.i64("raised_ns")?),
        first_seen: Nanos::new(row.i64("first_seen_ns")?),
        until: Nanos::new(row.i64("until_ns")?),
    })
}
