//! A store that answers nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::ids::{ClusterId, MetricName};
use crate::model::conclusion::{Conclusions, Incident, LostTime};
use crate::model::event::{EventBatch, StoredEvent};
use crate::store::obstacle::Obstacle;
use crate::store::resume::{Resume, WarmUp};
use crate::store::{
    Appended, Coverage, EventQuery, EventStore, EvidenceQuery, EvidenceSum, JobQuery, Page,
    StoreError, Tail, Vitals,
};
use crate::units::{Nanos, Window};

/// A store that answers nothing.
#[derive(Debug, Clone, Copy)]
pub(super) enum Broken {
    Defect,
    Closed,
    Silent,
}

impl Broken {
    async fn fail<T>(self) -> Result<T, StoreError> {
        match self {
            Self::Closed => Err(StoreError::Closed),
            Self::Silent => std::future::pending().await,
            Self::Defect => Err(StoreError::Engine {
                doing: "reading a page of /secret/place",
                reason: "a bad sector".to_owned(),
            }),
        }
    }
}

#[async_trait]
impl EventStore for Broken {
    async fn append(&self, _batch: EventBatch) -> Result<Appended, StoreError> {
        self.fail().await
    }

    async fn events(&self, _query: EventQuery) -> Result<Page, StoreError> {
        self.fail().await
    }

    async fn tail(
        &self,
        _after: u64,
        _metrics: &[MetricName],
        _limit: usize,
    ) -> Result<Tail, StoreError> {
        self.fail().await
    }

    async fn conclude(&self, _conclusions: Conclusions) -> Result<(), StoreError> {
        self.fail().await
    }

    async fn resume(&self, _warm_up: WarmUp) -> Result<Resume, StoreError> {
        self.fail().await
    }

    async fn incidents(
        &self,
        _cluster: Option<&ClusterId>,
        _window: Window,
    ) -> Result<Vec<Incident>, StoreError> {
        self.fail().await
    }

    async fn lost_time(
        &self,
        _cluster: Option<&ClusterId>,
        _window: Window,
    ) -> Result<Vec<LostTime>, StoreError> {
        self.fail().await
    }

    async fn coverage(
        &self,
        _cluster: Option<&ClusterId>,
        _window: Window,
    ) -> Result<Vec<Coverage>, StoreError> {
        self.fail().await
    }

    async fn host_evidence(&self, _query: EvidenceQuery) -> Result<Vec<EvidenceSum>, StoreError> {
        self.fail().await
    }

    async fn job_events(&self, _query: JobQuery) -> Result<Vec<StoredEvent>, StoreError> {
        self.fail().await
    }

    async fn clusters(&self) -> Result<BTreeSet<ClusterId>, StoreError> {
        self.fail().await
    }

    async fn extent(
        &self,
        _cluster: Option<&ClusterId>,
    ) -> Result<Option<(Nanos, Nanos)>, StoreError> {
        self.fail().await
    }

    fn vitals(&self) -> Vitals {
        let waits = matches!(self, Self::Silent).then_some(Duration::from_secs(11));
        Vitals {
            oldest_wait: waits,
            ..Vitals::default()
        }
    }

    fn obstacles(&self) -> Vec<Obstacle> {
        match self {
            Self::Silent => Vec::new(),
            Self::Closed => vec![Obstacle::Closed],
            Self::Defect => vec![Obstacle::Failed {
                reason: "a bad sector".to_owned(),
            }],
        }
    }

    fn committed(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }
}
