//! Lock by which a backup has the checkpoints of a running instance wait: between two of them, the database file and its
//! log are one state of the database, however long they take to copy.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;

use crate::duckdb::lock::beside;

/// Lock file beside a database.
#[derive(Debug)]
pub(super) struct BackupLock(File);

/// Turn of a checkpoint, ended on drop.
#[derive(Debug)]
pub(super) struct NoBackup<'l>(&'l File);

/// Time in which no checkpoint runs, ended on drop.
#[derive(Debug)]
pub(super) struct NoCheckpoint(File);

impl BackupLock {
    /// Opens the lock of the database at `path`.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(file(path)?))
    }

    /// Keeps backups from beginning; `None` while one is running. Where the file system has no locks, there are no
    /// backups.
    pub(super) fn before_checkpoint(&self) -> Option<NoBackup<'_>> {
        let locked = self.0.try_lock();
        let is_held = matches!(locked, Err(TryLockError::WouldBlock));
        (!is_held).then_some(NoBackup(&self.0))
    }
}

impl NoCheckpoint {
    /// Waits for the end of a running checkpoint of the database at `path`.
    pub(super) fn wait(path: &Path) -> io::Result<Self> {
        let file = file(path)?;
        file.lock_shared()?;
        Ok(Self(file))
    }
}

impl Drop for NoBackup<'_> {
    fn drop(&mut self) {
        // Nothing is locked where there are no locks.
        let _unlocked = self.0.unlock();
    }
}

impl Drop for NoCheckpoint {
    fn drop(&mut self) {
        // Closing the file would do as well.
        let _unlocked = self.0.unlock();
    }
}

fn file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    options.open(beside(path, ".backup.lock"))
}

#[cfg(test)]
mod tests {
    use super::{BackupLock, NoCheckpoint};

    #[test]
    fn a_checkpoint_waits_for_backups_and_a_backup_keeps_no_other_one_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("echo.db");
        let lock = BackupLock::open(&path).unwrap();
        let one = NoCheckpoint::wait(&path).unwrap();
        let other = NoCheckpoint::wait(&path).unwrap();
        assert!(lock.before_checkpoint().is_none());
        drop(one);
        assert!(lock.before_checkpoint().is_none());
        drop(other);
        drop(lock.before_checkpoint().unwrap());
        drop(NoCheckpoint::wait(&path).unwrap());
    }
}
