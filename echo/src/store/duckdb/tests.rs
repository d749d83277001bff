use std::sync::Arc;

use tempfile::TempDir;

use super::{DuckDbConfig, DuckDbStore};
use crate::clock::ManualClock;
use crate::store::contract::sample::at;

fn store() -> (DuckDbStore, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let config = DuckDbConfig::new(folder.path().join("echo.db"));
    (open(&config), folder)
}

fn open(config: &DuckDbConfig) -> DuckDbStore {
    DuckDbStore::open(config, Arc::new(ManualClock::at(at(60_000)))).unwrap()
}

crate::store::contract::keeps_the_contract!(store());
