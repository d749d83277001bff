//! Queries of costs, past incidents and processes.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use echo_core::ids::ClusterId;
use echo_core::model::cost::{NodeSum, StoredHour};
use echo_core::units::{GpuTime, Window};
use echo_store::duckdb::DuckDbStore;
use echo_store::hours::{Closed, ClosingHour, CostHours, DueHour, UnsettledHour};
use echo_store::incident_history::{IncidentHistory, PastCulprit};
use echo_store::process_reports::{
    CallTotals, ChainState, FilePart, NodeReport, ProcessQuery, ProcessReports, ProcessSeen,
    StackTotals,
};
use echo_store::{EventStore, StoreError};

use crate::hot_and_cold::{HotAndCold, NO_EVENTS};

#[async_trait]
impl CostHours for HotAndCold {
    fn due_hours(&self) -> Vec<DueHour> {
        self.own.due_hours()
    }

    async fn unsettled_hours(
        &self,
        cluster: Option<&ClusterId>,
    ) -> Result<Vec<UnsettledHour>, StoreError> {
        let mut hours = self.own.unsettled_hours(cluster).await?;
        if self.is_whole((cluster, NO_EVENTS)) && self.is_own(cluster).await? {
            return Ok(hours);
        }
        if let Some(all) = self.all().await {
            let own = Some(Arc::new(self.own.clusters().await?));
            for hour in &mut hours {
                hour.clusters.clone_from(&own);
            }
            hours.extend(all.unsettled_hours(cluster).await?);
        }
        hours.retain(|hour| cluster.is_none_or(|cluster| hour.concerns(cluster)));
        Ok(hours)
    }

    async fn close_hour(&self, closing: ClosingHour) -> Result<Closed, StoreError> {
        self.own.close_hour(closing).await
    }

    async fn cost_hours(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
        limit: usize,
    ) -> Result<Vec<StoredHour>, StoreError> {
        let question =
            |store: Arc<DuckDbStore>| async move { store.cost_hours(cluster, window, limit).await };
        self.ask((cluster, window.from()), question).await
    }

    async fn cost_sums(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
    ) -> Result<Vec<NodeSum>, StoreError> {
        let question =
            |store: Arc<DuckDbStore>| async move { store.cost_sums(cluster, window).await };
        self.ask((cluster, window.from()), question).await
    }

    async fn cost_clusters(&self, window: Window) -> Result<BTreeSet<ClusterId>, StoreError> {
        let question = |store: Arc<DuckDbStore>| async move { store.cost_clusters(window).await };
        self.ask((None, window.from()), question).await
    }

    async fn closed_allocation(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
    ) -> Result<GpuTime, StoreError> {
        let question =
            |store: Arc<DuckDbStore>| async move { store.closed_allocation(cluster, window).await };
        self.ask((cluster, window.from()), question).await
    }
}

#[async_trait]
impl IncidentHistory for HotAndCold {
    async fn past_culprits(
        &self,
        cluster: Option<&ClusterId>,
        raised: Window,
    ) -> Result<Vec<PastCulprit>, StoreError> {
        // With every verdict comes its history: verdicts must not wait for the lake.
        self.own.past_culprits(cluster, raised).await
    }
}

/// Forwards a query about processes.
macro_rules! about_processes {
    ($self:ident, $query:ident, $method:ident) => {{
        let part = ($query.cluster.as_ref(), $query.window.from());
        let question = |store: Arc<DuckDbStore>| {
            let query = $query.clone();
            async move { store.$method(query).await }
        };
        $self.ask(part, question).await
    }};
}

#[async_trait]
impl ProcessReports for HotAndCold {
    async fn processes(&self, query: ProcessQuery) -> Result<Vec<ProcessSeen>, StoreError> {
        about_processes!(self, query, processes)
    }

    async fn call_totals(&self, query: ProcessQuery) -> Result<Vec<CallTotals>, StoreError> {
        about_processes!(self, query, call_totals)
    }

    async fn chains(&self, query: ProcessQuery) -> Result<Vec<ChainState>, StoreError> {
        about_processes!(self, query, chains)
    }

    async fn stack_totals(&self, query: ProcessQuery) -> Result<Vec<StackTotals>, StoreError> {
        about_processes!(self, query, stack_totals)
    }

    async fn file_parts(&self, query: ProcessQuery) -> Result<Vec<FilePart>, StoreError> {
        about_processes!(self, query, file_parts)
    }

    async fn node_reports(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
        metric: Option<&'static str>,
    ) -> Result<Vec<NodeReport>, StoreError> {
        let question = |store: Arc<DuckDbStore>| async move {
            store.node_reports(cluster, window, metric).await
        };
        self.ask((cluster, window.from()), question).await
    }
}
