//! Directory of a spool: its lock and its files.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use rustix::process::geteuid;

/// Largest valid sequence number, so that there is always a next one.
const LARGEST: u64 = u64::MAX / 2;

/// Name of a spool file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileName {
    /// Complete batch.
    Batch(u64),
    /// Batch that is being written, or was when its writer ended.
    Partial(u64),
}

impl FileName {
    fn parse(name: &OsStr) -> Option<Self> {
        let (digits, kind) = name.to_str()?.split_once('.')?;
        let is_ours = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
        let sequence = is_ours.then(|| digits.parse().ok())??;
        match kind {
            _ if sequence > LARGEST => None,
            "batch" => Some(Self::Batch(sequence)),
            "part" => Some(Self::Partial(sequence)),
            _ => None,
        }
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Batch(sequence) => write!(f, "{sequence:020}.batch"),
            Self::Partial(sequence) => write!(f, "{sequence:020}.part"),
        }
    }
}

/// Contents of a directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Scan {
    /// Sequence numbers and sizes of the batches, oldest first.
    pub(super) files: Vec<(u64, u64)>,
    /// Number of files that are not complete batches.
    pub(super) n_foreign: u64,
}

/// Creates the directory if necessary and locks it; none when another process holds the lock. A
/// directory of another user is an error: its owner could put batches into it that this agent would
/// send under its own credentials.
pub(super) fn lock(dir: &Path) -> io::Result<Option<File>> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // The lock is on the directory itself: that needs no file, so it works on a full disk. The
    // kernel releases it however the process ends.
    let folder = File::open(dir)?;
    let (owner, user) = (folder.metadata()?.uid(), geteuid().as_raw());
    if owner != user {
        let message = format!("it is owned by user {owner}, but the agent runs as user {user}");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    match folder.try_lock() {
        Ok(()) => Ok(Some(folder)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Lists the directory. Partial files are removed; unrelated files are kept.
pub(super) fn scan(dir: &Path) -> io::Result<Scan> {
    let mut found = Scan::default();
    let mut foreign_path = None;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let len = entry.metadata().ok().filter(fs::Metadata::is_file);
        match (FileName::parse(&entry.file_name()), len) {
            (Some(FileName::Batch(sequence)), Some(file)) => {
                found.files.push((sequence, file.len()));
            }
            (Some(FileName::Partial(_)), Some(_)) => {
                found.n_foreign += 1;
                let path = entry.path();
                let removed = fs::remove_file(&path).err();
                let but = removed.map(|error| format!(" failed: {error}"));
                tracing::warn!(
                    "removing incomplete spool file {}{}",
                    path.display(),
                    but.unwrap_or_default()
                );
            }
            _ => {
                found.n_foreign += 1;
                foreign_path.get_or_insert_with(|| entry.path());
            }
        }
    }
    if let Some(path) = foreign_path {
        tracing::warn!(
            "ignored {} and other files in the spool that are not batches",
            path.display()
        );
    }
    found.files.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in [FileName::Batch(1), FileName::Partial(LARGEST)] {
            assert_eq!(FileName::parse(OsStr::new(&name.to_string())), Some(name));
        }
    }

    #[test]
    fn other_names_are_not_spool_files() {
        for name in [
            "",
            "1.batch",
            "0000000000000000000x.batch",
            "00000000000000000001",
            "00000000000000000001.batch.old",
            "99999999999999999999.batch",
            "18446744073709551615.batch",
            "+0000000000000000001.batch",
        ] {
            assert_eq!(FileName::parse(OsStr::new(name)), None, "{name}");
        }
    }
}
