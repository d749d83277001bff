//! Export of views to Parquet files, with Hive partitions by cluster and day:
//! `cluster=NAME/day=2026-11-21/`.

use std::path::Path;

use duckdb::{Connection, params_from_iter};

use crate::duckdb::engine::EngineResult;
use crate::duckdb::inventory::{Partition, Scope};
use crate::duckdb::query::Query;

/// View that is exported.
#[derive(Debug, Clone, Copy)]
pub(in crate::duckdb) struct Dataset {
    /// Name of the view and of its folder.
    pub(in crate::duckdb) name: &'static str,
    /// Statement up to the filter, with cluster and day.
    select: &'static str,
    /// The same statement, counting rows.
    count: &'static str,
    /// Conditions of the window.
    ends: [&'static str; 2],
}

macro_rules! dataset {
    ($view:literal, $time:literal) => {
        Dataset {
            name: $view,
            select: concat!(
                "SELECT *, cluster_id AS cluster, strftime(make_timestamp_ns(",
                $time,
                "), '%Y-%m-%d') AS day FROM ",
                $view
            ),
            count: concat!(
                "SELECT cluster_id, strftime(make_timestamp_ns(",
                $time,
                "), '%Y-%m-%d') AS day, count(*)::UBIGINT FROM ",
                $view
            ),
            ends: [
                concat!("WHERE ", $time, " >= ?"),
                concat!("AND ", $time, " < ?"),
            ],
        }
    };
}

/// All exported views.
pub(in crate::duckdb) const DATASETS: [Dataset; 4] = [
    dataset!("events", "timestamp_ns"),
    dataset!("op_waits", "timestamp_ns"),
    dataset!("verdict_history", "last_seen_ns"),
    dataset!("lost_time", "from_ns"),
];

fn filtered(head: &'static str, dataset: Dataset, scope: &Scope) -> Query {
    let [from, to] = dataset.ends;
    let cluster = scope.cluster.as_ref();
    Query::new(head)
        .bind(from, scope.window.from().value())
        .bind(to, scope.window.to().value())
        .bind_some(
            "AND cluster_id = ?",
            cluster.map(|cluster| cluster.as_str().to_owned()),
        )
}

/// Counts the rows of each partition, in order.
pub(in crate::duckdb) fn partitions(
    connection: &Connection,
    dataset: Dataset,
    scope: &Scope,
) -> EngineResult<Vec<Partition>> {
    let query = filtered(dataset.count, dataset, scope).then("GROUP BY ALL ORDER BY ALL");
    let mut statement = connection.prepare(&query.sql)?;
    let rows = statement.query_map(params_from_iter(query.values.iter()), |row| {
        Ok(Partition {
            dataset: dataset.name,
            cluster: row.get(0)?,
            day: row.get(1)?,
            rows: row.get(2)?,
        })
    })?;
    rows.collect()
}

/// Writes the files of one view below `folder`.
pub(in crate::duckdb) fn write(
    connection: &Connection,
    dataset: Dataset,
    scope: &Scope,
    folder: &Path,
) -> EngineResult<()> {
    let query = filtered(dataset.select, dataset, scope);
    // A path cannot be bound; it is the operator's own, and quotes in it are doubled.
    let folder = folder.display().to_string().replace('\'', "''");
    let sql = format!(
        "COPY ({}) TO '{folder}' (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (cluster, day))",
        query.sql
    );
    connection.execute(&sql, params_from_iter(query.values.iter()))?;
    Ok(())
}
