//! Free space on the volume of the database, and the floor below which no events are accepted.
//!
//! A full disk must not happen: the engine fails permanently, and deleting needs space, too. So no
//! events are accepted once free space falls below a floor. A reserved file beside the database,
//! the ballast, is removed at that moment to free space for deleting. That space is for deleting
//! alone: while there is no ballast, its size does not count as free. Unused blocks of the database
//! file count as free.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fs2::FileExt;

use crate::duckdb::lock::beside;
use crate::duckdb::rows::partition::Blocks;
use crate::limits::Limits;

/// Fraction of the floor that has to be free on the volume itself, for the log of the engine.
const LOG_PART: u64 = 4;

/// Disk space of a database.
#[derive(Debug)]
pub(super) struct DiskSpace {
    folder: PathBuf,
    ballast: PathBuf,
    /// Temporary name of the ballast while it is written.
    part: PathBuf,
    limits: Limits,
    /// Unused blocks of the database file, bytes.
    reusable: AtomicU64,
    /// True if space was too low at the last check.
    is_low: AtomicBool,
}

/// Space on a volume, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VolumeSpace {
    /// Total.
    pub(super) total: u64,
    /// Available to unprivileged programs.
    pub(super) available: u64,
}

/// Required free space, bytes.
#[derive(Debug, Clone, Copy)]
struct RequiredSpace {
    /// On the volume and in the file together, a fraction of it on the volume.
    floor: u64,
    /// On the volume in addition: the size of a missing ballast.
    reserved: u64,
}

impl DiskSpace {
    /// Disk space of the database at `path`.
    pub(super) fn new(path: &Path, limits: Limits) -> Self {
        let folder = path.parent().unwrap_or_else(|| Path::new("/"));
        Self {
            folder: folder.to_owned(),
            ballast: beside(path, ".ballast"),
            part: beside(path, ".ballast.part"),
            limits,
            reusable: AtomicU64::new(0),
            is_low: AtomicBool::new(false),
        }
    }

    /// Current space on the volume.
    pub(super) fn space(&self) -> io::Result<VolumeSpace> {
        let stat = fs2::statvfs(&self.folder)?;
        Ok(VolumeSpace {
            total: stat.total_space(),
            available: stat.available_space(),
        })
    }

    /// Checks that there is space for more rows. If not, removes the ballast and returns the free
    /// and the required bytes.
    pub(super) fn admit(&self) -> Result<(), (u64, u64)> {
        // If the volume cannot be queried, the engine reports errors itself.
        let Some((available, floor)) = self.shortage() else {
            if self.is_low.swap(false, Ordering::AcqRel) {
                tracing::info!("the volume has free space again: accepting events");
            }
            return Ok(());
        };
        if !self.is_low.swap(true, Ordering::AcqRel) {
            let freed = self.remove_ballast();
            tracing::error!(
                volume.available_bytes = available,
                volume.floor_bytes = floor,
                "the volume of the database is nearly full: {} bytes are free, the floor is {floor}; no events are accepted \
                 until space is free{}",
                available,
                if freed {
                    ", the ballast was removed"
                } else {
                    ""
                },
            );
        }
        Err((available, floor))
    }

    /// Prepares the volume before the database is opened: removes the ballast if space is low,
    /// since replaying the log takes space as well, and a partial ballast left behind by a killed
    /// process.
    pub(super) fn prepare(&self) {
        let _absent = fs::remove_file(&self.part);
        // An earlier version left a partial ballast under its final name, and the configured size
        // may have changed.
        let is_another = |file: fs::Metadata| file.len() != self.limits.ballast_bytes;
        if fs::metadata(&self.ballast).is_ok_and(is_another) {
            self.remove_ballast();
        }
        if let Some((available, floor)) = self.shortage()
            && self.remove_ballast()
        {
            tracing::warn!(
                "the volume of the database is nearly full: {available} bytes are free, the floor is {floor}; the ballast \
                 was removed"
            );
        }
    }

    /// Free and required bytes, if there is too little space.
    pub(super) fn shortage(&self) -> Option<(u64, u64)> {
        let space = self.space().ok()?;
        let needed = self.needed(space.total);
        let reusable = self.reusable.load(Ordering::Acquire);
        (!needed.is_met_by(space.available, reusable)).then_some((
            space.available,
            needed.floor.saturating_add(needed.reserved),
        ))
    }

    /// Returns true if deleting rows could free enough space: at most all blocks of a file of this
    /// size become unused.
    pub(super) fn can_be_freed_by_deleting(&self, file: u64) -> bool {
        let space = self.space();
        space.is_ok_and(|space| self.needed(space.total).is_met_by(space.available, file))
    }

    fn needed(&self, total: u64) -> RequiredSpace {
        let reserved = if self.ballast.exists() {
            0
        } else {
            self.limits.ballast_bytes
        };
        RequiredSpace {
            floor: self.limits.floor_bytes(total),
            reserved,
        }
    }

    /// Records the usage of the file, and creates the ballast if there is space for it.
    pub(super) fn refresh(&self, blocks: Blocks) {
        self.reusable.store(blocks.free, Ordering::Release);
        let Ok(space) = self.space() else {
            return;
        };
        let size = self.limits.ballast_bytes;
        // Twice its size, so that it is not created and removed in turn.
        let needed = self
            .limits
            .floor_bytes(space.total)
            .saturating_add(2 * size);
        if size > 0
            && space.available >= needed
            && !self.ballast.exists()
            && let Err(error) = make(&self.part, &self.ballast, size)
        {
            tracing::warn!(%error, "cannot create the ballast {}", self.ballast.display());
            // A partial ballast only takes up space.
            let _absent = fs::remove_file(&self.part);
        }
    }

    /// Removes the ballast. Returns whether there was one.
    fn remove_ballast(&self) -> bool {
        fs::remove_file(&self.ballast).is_ok()
    }
}

impl RequiredSpace {
    /// Returns true if a volume with this space accepts more rows.
    const fn is_met_by(self, available: u64, reusable: u64) -> bool {
        let available = available.saturating_sub(self.reserved);
        available.saturating_add(reusable) >= self.floor && available >= self.floor / LOG_PART
    }
}

/// Writes the file under another name first, so that a ballast is always complete even if the
/// process is killed.
fn make(part: &Path, ballast: &Path, bytes: u64) -> io::Result<()> {
    let file = File::create(part)?;
    file.allocate(bytes)?;
    file.sync_all()?;
    fs::rename(part, ballast)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::{DiskSpace, RequiredSpace};
    use crate::duckdb::rows::partition::Blocks;
    use crate::limits::{Amount, Limits};

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn free_blocks_of_the_file_count_while_there_is_space_for_the_log() {
        let needed = RequiredSpace {
            floor: 100,
            reserved: 0,
        };
        assert!(needed.is_met_by(100, 0));
        assert!(!needed.is_met_by(99, 0));
        assert!(needed.is_met_by(25, 75));
        assert!(
            !needed.is_met_by(24, 1_000),
            "the log needs space of its own"
        );
    }

    #[test]
    fn space_freed_by_the_ballast_is_not_used_for_events() {
        let needed = RequiredSpace {
            floor: 100,
            reserved: 50,
        };
        assert!(!needed.is_met_by(149, 0));
        assert!(needed.is_met_by(149, 1), "something was deleted");
        assert!(
            !needed.is_met_by(74, 1_000),
            "it is not used for the log either"
        );
        assert!(needed.is_met_by(150, 0));
    }

    #[test]
    fn a_missing_ballast_raises_the_required_space_by_its_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("echo.db");
        let available = fs2::available_space(folder.path()).unwrap();
        let disk_space = DiskSpace::new(
            &path,
            Limits {
                floor: Some(Amount::Bytes(available / 2)),
                ballast_bytes: available,
                ..Limits::default()
            },
        );
        assert!(disk_space.admit().is_err(), "the ballast was removed");
        File::create(folder.path().join("echo.db.ballast")).unwrap();
        disk_space.admit().unwrap();
    }

    #[test]
    fn a_partial_ballast_of_a_killed_process_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("echo.db");
        let ballast = folder.path().join("echo.db.ballast");
        let part = folder.path().join("echo.db.ballast.part");
        let limits = Limits {
            floor: Some(Amount::Bytes(MIB)),
            ballast_bytes: MIB,
            ..Limits::default()
        };
        fs::write(&part, "half").unwrap();
        // An earlier version wrote it under its final name.
        fs::write(&ballast, "half").unwrap();
        let disk_space = DiskSpace::new(&path, limits);
        disk_space.prepare();
        assert!(!part.exists() && !ballast.exists());
        fs::write(&part, "half").unwrap();
        disk_space.refresh(Blocks::default());
        assert_eq!(ballast.metadata().unwrap().len(), MIB);
        assert!(!part.exists());
        disk_space.prepare();
        assert!(ballast.exists(), "a whole one stays");
    }

    #[test]
    fn the_ballast_is_created_when_there_is_space_and_removed_at_the_floor() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("echo.db");
        let ballast = folder.path().join("echo.db.ballast");
        let limits = |floor| Limits {
            floor: Some(Amount::Bytes(floor)),
            ballast_bytes: MIB,
            ..Limits::default()
        };
        let roomy = DiskSpace::new(&path, limits(MIB));
        roomy.refresh(Blocks::default());
        assert_eq!(ballast.metadata().unwrap().len(), MIB);
        roomy.admit().unwrap();
        assert_eq!(roomy.shortage(), None);

        let full = DiskSpace::new(&path, limits(u64::MAX));
        full.prepare();
        assert!(!ballast.exists(), "the next process does the same");
        roomy.refresh(Blocks::default());
        assert!(full.admit().is_err() && full.shortage().is_some());
        assert!(!ballast.exists());
        full.refresh(Blocks::default());
        assert!(!ballast.exists(), "there is no space for it");
    }
}
