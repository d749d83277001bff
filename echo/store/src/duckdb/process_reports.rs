//! Reports on processes in the database.

use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use echo_core::ids::ClusterId;
use echo_core::units::Window;

use crate::StoreError;
use crate::duckdb::DuckDbStore;
use crate::duckdb::connection_pool::Reader;
use crate::duckdb::engine::EngineResult;
use crate::duckdb::query::Query;
use crate::duckdb::rows::{process_queries, process_results};
use crate::process_reports::{
    CallTotals, ChainState, NodeReport, ProcessQuery, ProcessReports, ProcessSeen, StackTotals,
};

#[async_trait]
impl ProcessReports for DuckDbStore {
    async fn processes(&self, query: ProcessQuery) -> Result<Vec<ProcessSeen>, StoreError> {
        let read = rows(process_queries::processes(&query), process_results::seen);
        self.readers.run("listing processes", read).await
    }

    async fn call_totals(&self, query: ProcessQuery) -> Result<Vec<CallTotals>, StoreError> {
        let read = rows(process_queries::calls(&query), process_results::calls);
        self.readers.run("summing calls of processes", read).await
    }

    async fn chains(&self, query: ProcessQuery) -> Result<Vec<ChainState>, StoreError> {
        let read = rows(process_queries::chains(&query), process_results::chains);
        self.readers.run("reading causal chains", read).await
    }

    async fn stack_totals(&self, query: ProcessQuery) -> Result<Vec<StackTotals>, StoreError> {
        let read = rows(process_queries::stacks(&query), process_results::stacks);
        self.readers.run("summing stack samples", read).await
    }

    async fn node_reports(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
    ) -> Result<Vec<NodeReport>, StoreError> {
        let query = process_queries::nodes(cluster, window);
        let read = rows(query, process_results::nodes);
        self.readers.run("reading what nodes report", read).await
    }
}

/// Returns a function that runs the query and reads its rows.
fn rows<T>(
    query: Query,
    read: fn(&RecordBatch) -> EngineResult<Vec<T>>,
) -> impl FnOnce(&Reader) -> EngineResult<Vec<T>> {
    move |reader| {
        let mut found = Vec::new();
        reader.each_batch(&query, |batch| {
            found.extend(read(batch)?);
            Ok(())
        })?;
        Ok(found)
    }
}
