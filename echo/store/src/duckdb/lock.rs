//! Lock that keeps a second instance away from a database.
//!
//! The lock is on a file of its own, never on the database: the engine holds record locks there,
//! and closing any other handle of the same file would release them.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;

use echo_core::units::Nanos;
use fs2::FileExt;
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};

use crate::StoreError;
use crate::duckdb::engine::unreadable;

/// Lock, held until dropped.
#[derive(Debug)]
pub(super) struct Lock(File);

impl Lock {
    /// Acquires the lock of the database at `path` and records the holder; fails at once if another
    /// process holds it.
    pub(super) fn acquire(path: &Path, now: Nanos) -> Result<Self, StoreError> {
        let failed = |error: io::Error| StoreError::Unsuitable {
            path: path.display().to_string(),
            reason: format!("cannot write its lock file ({error})"),
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(beside(path, ".lock"))
            .map_err(failed)?;
        if let Err(error) = file.try_lock_exclusive() {
            if error.raw_os_error() != fs2::lock_contended_error().raw_os_error() {
                return Err(failed(error));
            }
            return Err(StoreError::Locked {
                path: path.display().to_string(),
                holder: holder(&mut file),
            });
        }
        let pid = process::id();
        let written = file
            .set_len(0)
            .and_then(|()| writeln!(file, "pid {pid} on {} since {now}", node_name()));
        if let Err(error) = written {
            // The lock is held nevertheless: a full disk must not keep an operator from opening the
            // database and freeing space.
            tracing::warn!(%error, "cannot write the holder to the lock file of {}", path.display());
        }
        Ok(Self(file))
    }

    /// Fails if another process holds the lock of the database at `path`. Creates no file.
    pub(super) fn check_unlocked(path: &Path) -> Result<(), StoreError> {
        let Ok(mut file) = File::open(beside(path, ".lock")) else {
            return Ok(());
        };
        // Closing the file releases the lock that this takes.
        if let Err(TryLockError::WouldBlock) = file.try_lock_shared() {
            return Err(StoreError::Locked {
                path: path.display().to_string(),
                holder: holder(&mut file),
            });
        }
        Ok(())
    }

    /// Writes the time to the file's inode, which fails on a file system with errors even if it
    /// reports none.
    pub(super) fn touch(&self) -> io::Result<()> {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        let times = Timestamps {
            last_access: now,
            last_modification: now,
        };
        Ok(futimens(&self.0, &times)?)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The file stays: a waiting process has it open, and a new file under its name would be
        // another lock.
        if let Err(error) = self.0.set_len(0) {
            tracing::debug!(%error, "cannot clear the holder in the lock file");
        }
    }
}

/// Path of the file beside the database whose name is extended by `ending`.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}

/// Canonical path of a file, so that all its names lead to one lock.
pub(super) fn canonical(path: &Path) -> Result<PathBuf, StoreError> {
    let failed = |error: io::Error| unreadable(path, error.to_string());
    if fs::symlink_metadata(path).is_ok() {
        return path.canonicalize().map_err(failed);
    }
    let name = path
        .file_name()
        .ok_or_else(|| unreadable(path, "the path has no file name".to_owned()))?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    let parent = parent.canonicalize().map_err(|error| {
        let parent = parent.display();
        unreadable(path, format!("its folder {parent}: {error}"))
    })?;
    Ok(parent.join(name))
}

fn holder(file: &mut File) -> String {
    match io::read_to_string(file) {
        Ok(text) if !text.trim().is_empty() => text.trim().to_owned(),
        // Between acquiring the lock and writing the name there is a moment.
        Ok(_) | Err(_) => "another process".to_owned(),
    }
}

fn node_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(
        |_no_proc| "this node".to_owned(),
        |name| name.trim().to_owned(),
    )
}
