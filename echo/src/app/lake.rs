//! The copy in a lake and queries over it, if one is configured.

use std::sync::Arc;

use echo_actions::counts::ActionCounts;
use echo_core::clock::{Clock, SystemClock};
use echo_lake::committer::Committer;
use echo_lake::hot_and_cold::HotAndCold;
use echo_store::EventStore;
use echo_store::duckdb::{DuckDbConfig, DuckDbStore};
use echo_store::limits::Amount;
use prometheus_client::collector::Collector;

use crate::app::AppError;
use crate::app::connection_limit::cores;
use crate::config::ServeArgs;

/// A lake that is written and read.
#[derive(Debug)]
pub(super) struct Lake {
    committer: Committer,
    queries: Option<Arc<HotAndCold>>,
}

impl Lake {
    /// Store for queries; `None` if they are answered from the database alone.
    pub(super) fn queries(&self) -> Option<Arc<dyn EventStore>> {
        let queries = self.queries.as_ref()?;
        Some(Arc::<HotAndCold>::clone(queries))
    }
}

/// Starts the thread that copies the database; `None` without a lake.
pub(super) fn start(
    args: &ServeArgs,
    store: &Arc<DuckDbStore>,
    clock: &Arc<dyn Clock>,
) -> Result<Option<Lake>, AppError> {
    let Some(config) = args.lake.committer(&args.db) else {
        return Ok(None);
    };
    let Some(slices) = store.take_slices() else {
        return Ok(None);
    };
    let queries = HotAndCold::new(
        Arc::clone(store),
        slices.try_clone()?,
        config.lake.clone(),
        reading(args),
        Arc::clone(clock),
    );
    let committer = Committer::start(config, slices, Arc::new(SystemClock));
    Ok(Some(Lake {
        committer: committer.map_err(AppError::Thread)?,
        queries: queries.map(Arc::new),
    }))
}

/// Settings of the engine that reads a lake; it opens a database in a folder of its own.
pub(super) fn reading(args: &ServeArgs) -> DuckDbConfig {
    DuckDbConfig {
        memory_limit: Amount::Bytes(args.lake.lake_memory),
        readers: args.bounds.queries(cores()),
        limits: args.limits.limits().without_retention(),
        ..DuckDbConfig::new("")
    }
}

/// Metrics of the copy and of actions, as far as they are configured.
pub(super) fn collectors(
    lake: Option<&Lake>,
    actions: Option<&ActionCounts>,
) -> Vec<Box<dyn Collector>> {
    let mut collectors: Vec<Box<dyn Collector>> = Vec::new();
    if let Some(lake) = lake {
        collectors.push(Box::new(lake.committer.progress()));
    }
    if let Some(actions) = actions {
        collectors.push(Box::new(actions.clone()));
    }
    collectors
}

/// Ends the copy after the current commit, and queries over the lake.
pub(super) async fn stop(lake: Option<Lake>) -> Result<(), AppError> {
    let Some(Lake { committer, queries }) = lake else {
        return Ok(());
    };
    if let Some(queries) = queries {
        queries.stop().await;
    }
    let stopped = tokio::task::spawn_blocking(move || committer.stop());
    Ok(stopped.await?)
}
