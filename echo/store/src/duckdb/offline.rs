//! Work on a database that no Echo has open: a copy of it, its rows as Parquet, and a log that cannot be read.
//!
//! Each takes the lock, so that no Echo starts meanwhile, and leaves the database itself as it is.

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

/// A database under its lock.
#[derive(Debug)]
struct LockedDatabase {
    path: PathBuf,
    _lock: Lock,
}

impl LockedDatabase {
    /// Takes the lock of a database that exists.
    fn lock(db: &Path, clock: &dyn Clock) -> Result<Self, StoreError> {
        let path = canonical(db)?;
        if !path.is_file() {
            return Err(unreadable(&path, "there is no such file".to_owned()));
        }
        let lock = Lock::acquire(&path, clock.now())?;
        Ok(Self { path, _lock: lock })
    }

    /// Checks that the database is one of Echo, then opens it for reading. Its log is read, too, and left as it is.
    fn read(&self) -> Result<Connection, StoreError> {
        inspect(&self.path, MIGRATIONS)?;
        read_only(&self.path)
    }

    /// The files of the log: while the engine writes the log to the database there are several.
    fn log(&self) -> Result<Vec<PathBuf>, StoreError> {
        let failed = |error: io::Error| unreadable(&self.path, error.to_string());
        let folder = self.path.parent().unwrap_or(&self.path);
        let mut files = Vec::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if ending(&self.path, &path).is_some_and(|ending| LOGS.contains(&ending.as_str())) {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }
}

/// What the names of the log's files have more than the name of the database.
const LOGS: [&str; 3] = [".wal", ".wal.checkpoint", ".wal.recovery"];

/// What `path` has more than `db`.
fn ending(db: &Path, path: &Path) -> Option<String> {
    let ending = path.to_str()?.strip_prefix(db.to_str()?)?;
    Some(ending.to_owned())
}

/// The path with `ending` more.
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
