//! The folder of a spool: who has it, and what is in it.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use rustix::process::geteuid;

/// Sequence numbers above it are nobody's, so that there is always a next one.
const LARGEST: u64 = u64::MAX / 2;

/// Name of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    /// A batch.
    Batch(u64),
    /// One that is being written, or was when its writer ended.
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

/// What is in a folder.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Sequence numbers and lengths of the batches, oldest first.
    pub(super) files: Vec<(u64, u64)>,
    /// Number of files that are no whole batches.
    pub(super) foreign: u64,
}

/// Makes the folder, if need be, and takes it into use; none when another process has. A folder of another user is an error: what
/// its owner puts into it would be sent in the name of this agent.
pub(super) fn take(dir: &Path) -> io::Result<Option<File>> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // The folder itself is locked: that needs no file, so a full disk is no obstacle. The kernel takes the lock back
    // however the process ends.
    let folder = File::open(dir)?;
    let (owner, user) = (folder.metadata()?.uid(), geteuid().as_raw());
    if owner != user {
        let message = format!("it belongs to user {owner}, and this is user {user}");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    match folder.try_lock() {
        Ok(()) => Ok(Some(folder)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Looks through the folder. What was half written is removed; what is somebody else's is left alone.
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
                let but = removed.map(|error| format!(", but cannot be: {error}"));
                tracing::warn!(
                    "{} was not written to its end and is removed{}",
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
            "{} is no batch of an agent and is left alone, as is all else of that kind there",
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
    fn other_names_are_none_of_ours() {
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
