//! The copy in a lake, if one is configured.

use echo_actions::counts::ActionCounts;
use echo_core::clock::SystemClock;
use echo_lake::committer::Committer;
use echo_store::duckdb::DuckDbStore;
use prometheus_client::collector::Collector;
use std::sync::Arc;

use crate::app::AppError;
use crate::config::ServeArgs;

/// Starts the thread that copies the database; `None` without a lake.
pub(super) fn start(args: &ServeArgs, store: &DuckDbStore) -> Result<Option<Committer>, AppError> {
    let Some(config) = args.lake.committer(&args.db) else {
        return Ok(None);
    };
    let Some(slices) = store.take_slices() else {
        return Ok(None);
    };
    let started = Committer::start(config, slices, Arc::new(SystemClock));
    started.map(Some).map_err(AppError::Thread)
}

/// Metrics of the copy and of actions, as far as they are configured.
pub(super) fn collectors(
    lake: Option<&Committer>,
    actions: Option<&ActionCounts>,
) -> Vec<Box<dyn Collector>> {
    let mut collectors: Vec<Box<dyn Collector>> = Vec::new();
    if let Some(lake) = lake {
        collectors.push(Box::new(lake.progress()));
    }
    if let Some(actions) = actions {
        collectors.push(Box::new(actions.clone()));
    }
    collectors
}

/// Ends the copy after the current commit.
pub(super) async fn stop(lake: Option<Committer>) -> Result<(), AppError> {
    let Some(lake) = lake else {
        return Ok(());
    };
    let stopped = tokio::task::spawn_blocking(move || lake.stop());
    Ok(stopped.await?)
}
