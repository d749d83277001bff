//! Backup: a complete, verified copy of a database without a log.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use echo_core::clock::Clock;

use crate::StoreError;
use crate::duckdb::engine::engine;
use crate::duckdb::inventory::Contents;
use crate::duckdb::migrations::MIGRATIONS;
use crate::duckdb::offline::{LockedDatabase, cannot_write, ending, with_ending};
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

/// Copies the database at `db` to `target`, which must not exist. The log is replayed into the
/// copy, and the copy is opened and compared before it gets its name. The source is only read.
pub fn backup(db: &Path, target: &Path, clock: &dyn Clock) -> Result<Backup, StoreError> {
    let locked = LockedDatabase::lock(db, clock)?;
    if fs::symlink_metadata(target).is_ok() {
        return Err(StoreError::Unwritable {
            path: target.display().to_string(),
            reason: "it already exists, and a backup does not overwrite files".to_owned(),
        });
    }
    // Opened and closed before the file is copied: the engine's own lock would be released by
    // closing any other handle of the file.
    let contents = contents_of(&locked)?;
    let partial = Partial::new(target);
    let copied = partial.copy(&locked)?;
    fold_log(&copied)?;
    let schema_version = inspect(&copied, MIGRATIONS)?;
    let copy = read_only(&copied)?;
    let found = identity::contents(&copy).map_err(engine("reading the copy"))?;
    drop(copy);
    if found != contents {
        return Err(StoreError::Unwritable {
            path: target.display().to_string(),
            reason: format!("the copy contains {found:?}, but the database {contents:?}"),
        });
    }
    let bytes = partial.finish(target)?;
    Ok(Backup {
        source: locked.path,
        bytes,
        contents,
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

fn contents_of(locked: &LockedDatabase) -> Result<Contents, StoreError> {
    let connection = locked.read()?;
    identity::contents(&connection).map_err(engine("reading the database"))
}

/// Incomplete copy, removed on drop.
#[derive(Debug)]
struct Partial(PathBuf);

impl Partial {
    fn new(target: &Path) -> Self {
        Self(with_ending(target, ".partial"))
    }

    fn copy(&self, locked: &LockedDatabase) -> Result<PathBuf, StoreError> {
        let files = [vec![locked.path.clone()], locked.log()?].concat();
        for file in files {
            let more = ending(&locked.path, &file).unwrap_or_default();
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
