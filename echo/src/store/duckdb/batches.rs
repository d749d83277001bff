//! Results of statements, a batch of rows at a time.

use std::iter;

use arrow::record_batch::RecordBatch;
use duckdb::{Params, Statement};

use crate::store::duckdb::EngineResult;

/// Runs a statement and returns the batches of its result as the engine computes them. The first error is the last item
/// that is of use.
pub(super) fn stream<'a, P: Params>(
    statement: &'a mut Statement<'_>,
    params: P,
) -> EngineResult<impl Iterator<Item = EngineResult<RecordBatch>> + use<'a, P>> {
    // This only starts the statement: the iterator that it returns panics when a batch cannot be fetched, as after an
    // interrupt, so it is not used.
    let _started = statement.stream_arrow(params)?;
    let statement = &*statement;
    let next = move || statement.step().transpose();
    Ok(iter::from_fn(next).map(|rows| rows.map(|rows| RecordBatch::from(&rows))))
}
