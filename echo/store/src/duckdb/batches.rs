//! Query results as batches of rows.

use std::iter;

use arrow::record_batch::RecordBatch;
use duckdb::{Params, Statement};

use crate::duckdb::engine::EngineResult;

/// Runs a statement and returns the batches of its result as the engine computes them. Iteration
/// must end at the first error.
pub(super) fn stream<'a, P: Params>(
    statement: &'a mut Statement<'_>,
    params: P,
) -> EngineResult<impl Iterator<Item = EngineResult<RecordBatch>> + use<'a, P>> {
    // This only starts the statement. The iterator that it returns panics if a batch cannot be
    // fetched, for example after an interrupt, so it is not used.
    let _started = statement.stream_arrow(params)?;
    let statement = &*statement;
    let next = move || statement.step().transpose();
    Ok(iter::from_fn(next).map(|rows| rows.map(|rows| RecordBatch::from(&rows))))
}

#[cfg(test)]
mod tests {
    use duckdb::Connection;

    use super::stream;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a database of the test's own")]
    fn an_interrupt_between_two_batches_is_an_error_not_a_panic() {
        let connection = Connection::open_in_memory().unwrap();
        let interrupt = connection.interrupt_handle();
        let mut endless = connection
            .prepare("SELECT * FROM range(1_000_000_000_000)")
            .unwrap();
        let mut batches = stream(&mut endless, []).unwrap();
        assert!(batches.next().unwrap().is_ok());
        interrupt.interrupt();
        // Some batches may already be computed.
        let error = batches.take(10_000).find_map(Result::err).unwrap();
        assert!(error.to_string().contains("Interrupted"), "{error}");
    }
}
