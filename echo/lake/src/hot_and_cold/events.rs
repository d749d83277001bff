//! Queries of events and incidents, and SQL.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use echo_core::ids::{ClusterId, MetricName};
use echo_core::model::detector_output::{DetectorOutput, Incident, LostTime};
use echo_core::model::event::{Event, EventBatch, StoredEvent};
use echo_core::units::{Nanos, Window};
use echo_store::duckdb::DuckDbStore;
use echo_store::readiness::NotReadyReason;
use echo_store::resume::{Resume, WarmUp};
use echo_store::sql::{SqlError, SqlQuery, SqlTable, ViewDocs};
use echo_store::timeseries::{TimeseriesPoint, TimeseriesQuery};
use echo_store::{
    Appended, Coverage, EventQuery, EventStore, EvidenceQuery, EvidenceSum, ExceededLimit,
    JobQuery, Page, Reach, StoreError, Tail, TimedOperations, Vitals,
};
use tokio::sync::watch;

use crate::hot_and_cold::{EVERYTHING, HotAndCold, NO_EVENTS};

#[async_trait]
impl EventStore for HotAndCold {
    async fn append(&self, batch: EventBatch) -> Result<Appended, StoreError> {
        self.own.append(batch).await
    }

    fn over_entry_limits(
        &self,
        events: &[Event],
        token: Option<&str>,
    ) -> Vec<(usize, ExceededLimit)> {
        self.own.over_entry_limits(events, token)
    }

    async fn events(&self, query: EventQuery) -> Result<Page, StoreError> {
        let part = (query.cluster.as_ref(), query.window.from());
        let question = |store: Arc<DuckDbStore>| {
            let query = query.clone();
            async move { store.events(query).await }
        };
        self.ask(part, question).await
    }

    async fn tail(
        &self,
        after: u64,
        metrics: &[MetricName],
        limit: usize,
    ) -> Result<Tail, StoreError> {
        self.own.tail(after, metrics, limit).await
    }

    async fn store_verdicts(&self, output: DetectorOutput) -> Result<(), StoreError> {
        self.own.store_verdicts(output).await
    }

    async fn resume(&self, warm_up: WarmUp) -> Result<Resume, StoreError> {
        self.own.resume(warm_up).await
    }

    async fn incidents(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
    ) -> Result<Vec<Incident>, StoreError> {
        let question =
            |store: Arc<DuckDbStore>| async move { store.incidents(cluster, window).await };
        self.ask((cluster, NO_EVENTS), question).await
    }

    async fn lost_time(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
    ) -> Result<Vec<LostTime>, StoreError> {
        let question =
            |store: Arc<DuckDbStore>| async move { store.lost_time(cluster, window).await };
        self.ask((cluster, NO_EVENTS), question).await
    }

    async fn coverage(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
    ) -> Result<Vec<Coverage>, StoreError> {
        let question =
            |store: Arc<DuckDbStore>| async move { store.coverage(cluster, window).await };
        self.ask((cluster, window.from()), question).await
    }

    async fn host_evidence(&self, query: EvidenceQuery) -> Result<Vec<EvidenceSum>, StoreError> {
        let part = (Some(&query.cluster), query.window.from());
        let question = |store: Arc<DuckDbStore>| {
            let query = query.clone();
            async move { store.host_evidence(query).await }
        };
        self.ask(part, question).await
    }

    async fn job_events(&self, query: JobQuery) -> Result<Vec<StoredEvent>, StoreError> {
        let part = (Some(&query.cluster), query.window.from());
        let question = |store: Arc<DuckDbStore>| {
            let query = query.clone();
            async move { store.job_events(query).await }
        };
        self.ask(part, question).await
    }

    async fn timed_operations(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
    ) -> Result<Vec<TimedOperations>, StoreError> {
        let question = |store: Arc<DuckDbStore>| {
            let cluster = cluster.cloned();
            async move { store.timed_operations(cluster.as_ref(), window).await }
        };
        self.ask((cluster, window.from()), question).await
    }

    async fn timeseries(&self, query: TimeseriesQuery) -> Result<Vec<TimeseriesPoint>, StoreError> {
        let part = (Some(&query.cluster), query.buckets.window().from());
        let question = |store: Arc<DuckDbStore>| {
            let query = query.clone();
            async move { store.timeseries(query).await }
        };
        self.ask(part, question).await
    }

    async fn clusters(&self) -> Result<BTreeSet<ClusterId>, StoreError> {
        let question = |store: Arc<DuckDbStore>| async move { store.clusters().await };
        let mut clusters = self.ask(EVERYTHING, question).await?;
        clusters.extend(self.own.clusters().await?);
        Ok(clusters)
    }

    async fn extent(
        &self,
        cluster: Option<&ClusterId>,
    ) -> Result<Option<(Nanos, Nanos)>, StoreError> {
        let question = |store: Arc<DuckDbStore>| async move { store.extent(cluster).await };
        self.ask((cluster, Nanos::EARLIEST), question).await
    }

    fn vitals(&self) -> Vitals {
        self.own.vitals()
    }

    fn not_ready_reasons(&self) -> Vec<NotReadyReason> {
        self.own.not_ready_reasons()
    }

    async fn dropped_until(&self) -> Result<Option<Nanos>, StoreError> {
        self.own.dropped_until().await
    }

    async fn run_sql(&self, query: SqlQuery) -> Result<SqlTable, SqlError> {
        if let Some(all) = self.all().await {
            match all.run_sql(query.clone()).await {
                Err(SqlError::Store(error)) => self.report_away(&error),
                answer => return answer,
            }
        }
        self.own.run_sql(query).await
    }

    async fn views(&self) -> Result<Vec<ViewDocs>, StoreError> {
        self.own.views().await
    }

    fn reach(&self, cluster: Option<&ClusterId>, from: Nanos) -> Reach {
        if self.is_whole((cluster, from)) {
            Reach::Own
        } else if self.is_away.load(Ordering::Relaxed) {
            Reach::OwnForNow
        } else {
            Reach::Lake
        }
    }

    async fn has_cluster(&self, cluster: &ClusterId) -> Result<bool, StoreError> {
        Ok(self.own.has_cluster(cluster).await? || self.clusters().await?.contains(cluster))
    }

    fn committed(&self) -> watch::Receiver<u64> {
        self.own.committed()
    }
}
