//! GPUs that have reported.

use duckdb::Connection;

use crate::duckdb::engine::EngineResult;
use crate::duckdb::inventory::Gpus;

/// GPU of each rank; reports sent before the model was known are ignored.
const GPUS: &str = "\
    SELECT cluster, node, model, count(*)::UBIGINT \
    FROM (SELECT cluster, node, job, rank, max(gpu_model) AS model FROM origins WHERE rank IS NOT NULL \
          GROUP BY cluster, node, job, rank) \
    GROUP BY cluster, node, model ORDER BY cluster, node, model";

/// GPUs, by cluster, node and model.
pub(in crate::duckdb) fn read(connection: &Connection) -> EngineResult<Vec<Gpus>> {
    let mut statement = connection.prepare(GPUS)?;
    let rows = statement.query_map([], |row| {
        let (cluster, node): (String, String) = (row.get(0)?, row.get(1)?);
        let (model, n_ranks) = (row.get(2)?, row.get(3)?);
        // Names were validated before they were stored.
        let names = cluster.parse().ok().zip(node.parse().ok());
        Ok(names.map(|(cluster, node)| Gpus {
            cluster,
            node,
            model,
            n_ranks,
        }))
    })?;
    rows.filter_map(Result::transpose).collect()
}
