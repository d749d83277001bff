//! The volume that the database lies on: how large it is and how much of it is free.

use std::io;
use std::path::{Path, PathBuf};

/// The folder of the database, asked for its volume.
#[derive(Debug, Clone)]
pub(super) struct Volume {
    folder: PathBuf,
}

/// Room on a volume, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// All of it.
    pub(super) total: u64,
    /// What a program without privileges can still get.
    pub(super) available: u64,
}

impl Volume {
    /// The volume of the database at `path`.
    pub(super) fn of(path: &Path) -> Self {
        let folder = path.parent().unwrap_or_else(|| Path::new("/"));
        Self {
            folder: folder.to_owned(),
        }
    }

    /// The room on it at the moment.
    pub(super) fn room(&self) -> io::Result<Room> {
        let stat = fs2::statvfs(&self.folder)?;
        Ok(Room {
            total: stat.total_space(),
            available: stat.available_space(),
        })
    }
}
