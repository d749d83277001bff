//! The copy in a lake, if one is configured.

use std::sync::Arc;

use echo_actions::counts::ActionCounts;
use echo_core::clock::SystemClock;
use echo_lake::committer::Committer;
use echo_store::duckdb::{DuckDbConfig, DuckDbStore};
use echo_store::limits::Amount;
use prometheus_client::collector::Collector;

use crate::app::AppError;
use crate::app::connection_limit::cores;
use crate::config::ServeArgs;

/// A lake that is written.
#[derive(Debug)]
pub(super) struct Lake(Committer);

/// Starts the thread that copies the database; `None` without a lake.
pub(super) fn start(args: &ServeArgs, store: &DuckDbStore) -> Result<Option<Lake>, AppError> {
    let copy = args.lake.committer(&args.db).zip(store.take_slices());
    let Some((config, slices)) = copy else {
        return Ok(None);
    };
    let committer = Committer::start(config, slices, Arc::new(SystemClock));
    committer
        .map(|committer| Some(Lake(committer)))
        .map_err(AppError::Thread)
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
        collectors.push(Box::new(lake.0.progress()));
    }
    if let Some(actions) = actions {
        collectors.push(Box::new(actions.clone()));
    }
    collectors
}

/// Ends the copy after the current commit.
pub(super) async fn stop(lake: Option<Lake>) -> Result<(), AppError> {
    let Some(Lake(committer)) = lake else {
        return Ok(());
    };
    let stopped = tokio::task::spawn_blocking(move || committer.stop());
    Ok(stopped.await?)
}
