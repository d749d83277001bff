//! Culprits of past incidents in the database.

use async_trait::async_trait;
use echo_core::ids::ClusterId;
use echo_core::units::Window;

use crate::StoreError;
use crate::duckdb::DuckDbStore;
use crate::duckdb::rows::past_culprits;
use crate::incident_history::{IncidentHistory, PastCulprit};

#[async_trait]
impl IncidentHistory for DuckDbStore {
    async fn past_culprits(
        &self,
        cluster: Option<&ClusterId>,
        raised: Window,
    ) -> Result<Vec<PastCulprit>, StoreError> {
        let query = past_culprits::query(cluster, raised);
        let doing = "reading past culprits";
        self.readers
            .collect(doing, query, past_culprits::read)
            .await
    }
}
