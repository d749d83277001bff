//! Backup: a complete, verified copy of a database without a log.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use echo_core::clock::Clock;

use crate::StoreError;
use crate::duckdb::backup_lock::NoCheckpoint;
use crate::duckdb::engine::{engine, unreadable};
use crate::duckdb::file_headers::FileHeaders;
use crate::duckdb::inventory::Contents;
use crate::duckdb::lock::Lock;
use crate::duckdb::migrations::MIGRATIONS;
use crate::duckdb::offline::{cannot_write, ending, existing, logs, with_ending};
use crate::duckdb::open::{fold_log, inspect, read_only};
use crate::duckdb::permissions::PRIVATE;
use crate::duckdb::rows::identity;

/// Result of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// Database that was copied.
    pub source: PathBuf,
    /// Size of the copy, bytes.
    pub bytes: u64,
    /// Contents.
    pub contents: Contents,
    /// Schema version.
    pub schema_version: i64,
}

/// Copies the database at `db` to `target`, which must not exist, also while an instance has it open. The log is
/// replayed into the copy, and the copy is opened and counted before it gets its name. The source is only read.
pub fn backup(db: &Path, target: &Path, clock: &dyn Clock) -> Result<Backup, StoreError> {
    let path = existing(db)?;
    // Keeps an instance from starting, if none is running.
    let lock = match Lock::acquire(&path, clock.now()) {
        Ok(lock) => Some(lock),
        Err(StoreError::Locked { .. }) => None,
        Err(error) => return Err(error),
    };
    if fs::symlink_metadata(target).is_ok() {
        return Err(StoreError::Unwritable {
            path: target.display().to_string(),
            reason: "it already exists, and a backup does not overwrite files".to_owned(),
        });
    }
    // Of a running instance they are different at once. Read before the file is copied: the engine's own lock would be
    // released by closing any other handle of the file.
    let expected = lock.as_ref().map(|_lock| contents(&path)).transpose()?;
    let unreadable = |error: io::Error| unreadable(&path, error.to_string());
    let no_checkpoint = NoCheckpoint::wait(&path).map_err(unreadable)?;
    let headers = FileHeaders::read(&path).map_err(unreadable)?;
    let partial = Partial::new(target);
    let copied = partial.copy(&path)?;
    if headers.have_changed().map_err(unreadable)? {
        return Err(StoreError::Unwritable {
            path: target.display().to_string(),
            reason: "the instance had to write its log to the database meanwhile; take a snapshot of the volume, or a \
                     backup when fewer events arrive"
                .to_owned(),
        });
    }
    drop(no_checkpoint);
    fold_log(&copied)?;
    let schema_version = inspect(&copied, MIGRATIONS)?.version;
    let copied = contents(&copied)?;
    if let Some(expected) = expected.filter(|expected| *expected != copied) {
        return Err(StoreError::Unwritable {
            path: target.display().to_string(),
            reason: format!("the copy contains {copied:?}, but the database {expected:?}"),
        });
    }
    let bytes = partial.finish(target)?;
    drop(lock);
    Ok(Backup {
        source: path,
        bytes,
        contents: copied,
        schema_version,
    })
}

/// Copies a file with access for its owner alone, whatever the mode of the source.
fn copy_private(source: &Path, target: &Path) -> io::Result<u64> {
    // Remove the remains of a killed backup, which keep their mode.
    let _absent = fs::remove_file(target);
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(PRIVATE);
    io::copy(&mut File::open(source)?, &mut options.open(target)?)
}

fn contents(path: &Path) -> Result<Contents, StoreError> {
    inspect(path, MIGRATIONS)?;
    identity::contents(&read_only(path)?).map_err(engine("reading the database"))
}

/// Incomplete copy, removed on drop.
#[derive(Debug)]
struct Partial(PathBuf);

impl Partial {
    fn new(target: &Path) -> Self {
        Self(with_ending(target, ".partial"))
    }

    /// Copies the log, then the file: records of the log refer to rows that are in the file before.
    fn copy(&self, path: &Path) -> Result<PathBuf, StoreError> {
        let files = [logs(path)?, vec![path.to_owned()]].concat();
        for file in files {
            let more = ending(path, &file).unwrap_or_default();
            let copy = with_ending(&self.0, &more);
            copy_private(&file, &copy).map_err(cannot_write(&copy))?;
        }
        Ok(self.0.clone())
    }

    /// Renames the copy to `target`, durably. Returns its size.
    fn finish(&self, target: &Path) -> Result<u64, StoreError> {
        let failed = cannot_write(target);
        let copy = File::open(&self.0).map_err(&failed)?;
        copy.sync_all().map_err(&failed)?;
        let bytes = copy.metadata().map_err(&failed)?.len();
        fs::rename(&self.0, target).map_err(&failed)?;
        let folder = match target.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            Some(_) | None => Path::new("."),
        };
        let folder = File::open(folder).map_err(&failed)?;
        folder.sync_all().map_err(&failed)?;
        Ok(bytes)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        for more in ["", ".wal", ".wal.checkpoint", ".wal.recovery"] {
            // Most of them do not exist.
            let _absent = fs::remove_file(with_ending(&self.0, more));
        }
    }
}
