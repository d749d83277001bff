//! Reports on processes in the database.

use async_trait::async_trait;
use echo_core::ids::ClusterId;
use echo_core::units::Window;

use crate::StoreError;
use crate::duckdb::DuckDbStore;
use crate::duckdb::rows::{process_queries, process_results};
use crate::process_reports::{
    CallTotals, ChainState, FilePart, NodeReport, ProcessQuery, ProcessReports, ProcessSeen,
    StackTotals,
};

#[async_trait]
impl ProcessReports for DuckDbStore {
    async fn processes(&self, query: ProcessQuery) -> Result<Vec<ProcessSeen>, StoreError> {
        let query = process_queries::processes(&query);
        let doing = "listing processes";
        self.readers
            .collect(doing, query, process_results::seen)
            .await
    }

    async fn call_totals(&self, query: ProcessQuery) -> Result<Vec<CallTotals>, StoreError> {
        let query = process_queries::calls(&query);
        let doing = "summing calls of processes";
        self.readers
            .collect(doing, query, process_results::calls)
            .await
    }

    async fn chains(&self, query: ProcessQuery) -> Result<Vec<ChainState>, StoreError> {
        let query = process_queries::chains(&query);
        let doing = "reading causal chains";
        self.readers
            .collect(doing, query, process_results::chains)
            .await
    }

    async fn stack_totals(&self, query: ProcessQuery) -> Result<Vec<StackTotals>, StoreError> {
        let query = process_queries::stacks(&query);
        let doing = "summing stack samples";
        self.readers
            .collect(doing, query, process_results::stacks)
            .await
    }

    async fn file_parts(&self, query: ProcessQuery) -> Result<Vec<FilePart>, StoreError> {
        let query = process_queries::file_parts(&query);
        let doing = "reading files about processes";
        self.readers
            .collect(doing, query, process_results::file_parts)
            .await
    }

    async fn node_reports(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
        metric: Option<&'static str>,
    ) -> Result<Vec<NodeReport>, StoreError> {
        let query = process_queries::nodes(cluster, window, metric);
        let doing = "reading what nodes report";
        self.readers
            .collect(doing, query, process_results::nodes)
            .await
    }
}
