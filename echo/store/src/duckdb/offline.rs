//! Operations on a database in other processes than its instance: backup, export to Parquet, and repair of an
//! unreadable log.
//!
//! Each leaves the database itself unchanged. A backup can be made while an instance is running; the others acquire the
//! lock, so that none starts meanwhile.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use duckdb::Connection;
use echo_core::clock::Clock;

use crate::StoreError;
use crate::duckdb::engine::unreadable;
use crate::duckdb::lock::{Lock, canonical};
use crate::duckdb::migrations::MIGRATIONS;
use crate::duckdb::open::{inspect, read_only};

pub mod backup;
pub mod export;
pub mod gpus;
pub mod repair;

/// Database under its lock.
#[derive(Debug)]
struct LockedDatabase {
    path: PathBuf,
    _lock: Lock,
}

impl LockedDatabase {
    /// Acquires the lock of an existing database.
    fn lock(db: &Path, clock: &dyn Clock) -> Result<Self, StoreError> {
        let path = existing(db)?;
        let lock = Lock::acquire(&path, clock.now())?;
        Ok(Self { path, _lock: lock })
    }

    /// Checks that the file is a database of Echo, then opens it for reading. Its log is read, too,
    /// and left unchanged.
    fn read(&self) -> Result<Connection, StoreError> {
        inspect(&self.path, MIGRATIONS)?;
        read_only(&self.path)
    }
}

/// Canonical path of an existing database.
fn existing(db: &Path) -> Result<PathBuf, StoreError> {
    let path = canonical(db)?;
    if !path.is_file() {
        return Err(unreadable(&path, "no such file".to_owned()));
    }
    Ok(path)
}

/// Files of the log of a database: while the engine checkpoints there are several.
fn logs(db: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let failed = |error: io::Error| unreadable(db, error.to_string());
    let folder = db.parent().unwrap_or(db);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if ending(db, &path).is_some_and(|ending| LOGS.contains(&ending.as_str())) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Name suffixes of the log files.
const LOGS: [&str; 3] = [".wal", ".wal.checkpoint", ".wal.recovery"];

/// Suffix that `path` adds to `db`.
fn ending(db: &Path, path: &Path) -> Option<String> {
    let ending = path.to_str()?.strip_prefix(db.to_str()?)?;
    Some(ending.to_owned())
}

/// Path extended by `ending`.
fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}

fn cannot_write(path: &Path) -> impl Fn(io::Error) -> StoreError {
    move |error| StoreError::Unwritable {
        path: path.display().to_string(),
        reason: error.to_string(),
    }
}
