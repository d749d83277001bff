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
pub(super) enum Name {
    /// Complete batch.
    Batch(u64),
    /// Batch that is being written, or was when its writer ended.
    HalfWritten(u64),
}

impl Name {
    fn parse(name: &OsStr) -> Option<Self> {
        let (digits, kind) = name.to_str()?.split_once('.')?;
        let is_ours = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
        let sequence = is_ours.then(|| digits.parse().ok())??;
        match kind {
            _ if sequence > LARGEST => None,
            "batch" => Some(Self::Batch(sequence)),
            "part" => Some(Self::HalfWritten(sequence)),
            _ => None,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Batch(sequence) => write!(f, "{sequence:020}.batch"),
            Self::HalfWritten(sequence) => write!(f, "{sequence:020}.part"),
        }
    }
}

/// Contents of a directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Sequence numbers and sizes of the batches, oldest first.
    pub(super) files: Vec<(u64, u64)>,
    /// Number of files that are not complete batches.
    pub(super) foreign: u64,
}

/// Creates the directory if necessary and locks it; none when another process holds the lock. A
/// directory of another user is an error: its owner could put batches into it that this agent would
/// send under its own credentials.
pub(super) fn take(dir: &Path) -> io::Result<Option<File>> {
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
pub(super) fn scan(dir: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    let mut stranger = None;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let len = entry.metadata().ok().filter(fs::Metadata::is_file);
        match (Name::parse(&entry.file_name()), len) {
            (Some(Name::Batch(sequence)), Some(file)) => found.files.push((sequence, file.len())),
            (Some(Name::HalfWritten(_)), Some(_)) => {
                found.foreign += 1;
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
                found.foreign += 1;
                stranger.get_or_insert_with(|| entry.path());
            }
        }
    }
    if let Some(path) = stranger {
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
        for name in [Name::Batch(1), Name::HalfWritten(LARGEST)] {
            assert_eq!(Name::parse(OsStr::new(&name.to_string())), Some(name));
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
            assert_eq!(Name::parse(OsStr::new(name)), None, "{name}");
        }
    }
}
