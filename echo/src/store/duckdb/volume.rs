//! The volume that the database lies on: how much of it is free, and when that is too little to go on.
//!
//! A full disk is a dead end: the engine fails for good, and deleting needs room, too. So nothing is taken any more once
//! the room falls below a floor. Beside the database lies a file without use, the ballast; it is given up at that moment,
//! so that there is room for deleting. Blocks that the database has and does not use count as room.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fs2::FileExt;

use crate::store::duckdb::lock::beside;
use crate::store::duckdb::rows::slices::Blocks;
use crate::store::limits::Limits;

/// Part of the floor that has to be free on the volume itself, for the log of the engine.
const LOG_PART: u64 = 4;

/// The volume of a database.
#[derive(Debug)]
pub(super) struct Volume {
    folder: PathBuf,
    ballast: PathBuf,
    limits: Limits,
    /// Bytes that the database has and does not use.
    reusable: AtomicU64,
    /// Whether the room was too little when it was last looked at.
    is_low: AtomicBool,
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
    pub(super) fn of(path: &Path, limits: Limits) -> Self {
        let folder = path.parent().unwrap_or_else(|| Path::new("/"));
        Self {
            folder: folder.to_owned(),
            ballast: beside(path, ".ballast"),
            limits,
            reusable: AtomicU64::new(0),
            is_low: AtomicBool::new(false),
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

    /// Whether there is room for more rows. When there is not, the ballast is given up, and the error is what is free and
    /// what has to be, in bytes.
    pub(super) fn admit(&self) -> Result<(), (u64, u64)> {
        // A volume that cannot be asked is left to the engine.
        let Some((available, floor)) = self.shortage() else {
            if self.is_low.swap(false, Ordering::AcqRel) {
                tracing::info!("there is room again: events are taken");
            }
            return Ok(());
        };
        if !self.is_low.swap(true, Ordering::AcqRel) {
            let freed = self.give_up_ballast();
            tracing::error!(
                volume.available_bytes = available,
                volume.floor_bytes = floor,
                "the volume of the database is nearly full: {} bytes are free, the floor is {floor}; no events are taken \
                 until there is room{}",
                available,
                if freed {
                    ", the ballast was given up"
                } else {
                    ""
                },
            );
        }
        Err((available, floor))
    }

    /// Before the database is opened: where there is too little room, the ballast is given up, since reading the log back
    /// takes room as well.
    pub(super) fn prepare(&self) {
        if let Some((available, floor)) = self.shortage()
            && self.give_up_ballast()
        {
            tracing::warn!(
                "the volume of the database is nearly full: {available} bytes are free, the floor is {floor}; the ballast \
                 was given up"
            );
        }
    }

    /// What is free and what has to be, in bytes, when that is too little.
    pub(super) fn shortage(&self) -> Option<(u64, u64)> {
        let room = self.room().ok()?;
        let floor = self.limits.floor_bytes(room.total);
        let reusable = self.reusable.load(Ordering::Acquire);
        (!is_enough(room.available, reusable, floor)).then_some((room.available, floor))
    }

    /// Notes how the file is used, and makes the ballast where there is room for it.
    pub(super) fn look(&self, blocks: Blocks) {
        self.reusable.store(blocks.free, Ordering::Release);
        let Ok(room) = self.room() else {
            return;
        };
        let size = self.limits.ballast_bytes;
        // Twice, so that it does not come and go.
        let needed = self.limits.floor_bytes(room.total).saturating_add(2 * size);
        if size > 0
            && room.available >= needed
            && !self.ballast.exists()
            && let Err(error) = make(&self.ballast, size)
        {
            tracing::warn!(%error, "the ballast {} could not be made", self.ballast.display());
            // Half a ballast only takes up room.
            let _absent = fs::remove_file(&self.ballast);
        }
    }

    /// Removes the ballast. Says whether there was one.
    fn give_up_ballast(&self) -> bool {
        fs::remove_file(&self.ballast).is_ok()
    }
}

/// Whether a volume with so much room takes more rows.
const fn is_enough(available: u64, reusable: u64, floor: u64) -> bool {
    available.saturating_add(reusable) >= floor && available >= floor / LOG_PART
}

/// Whether deleting rows could make it enough, when all blocks of a file of that size were free.
pub(super) const fn is_cured_by_deleting((available, file): (u64, u64), floor: u64) -> bool {
    is_enough(available, file, floor)
}

fn make(path: &Path, bytes: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.allocate(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::{Volume, is_cured_by_deleting, is_enough};
    use crate::store::duckdb::rows::slices::Blocks;
    use crate::store::limits::{Amount, Limits};

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn free_blocks_of_the_file_count_as_long_as_there_is_room_for_the_log() {
        assert!(is_enough(100, 0, 100));
        assert!(!is_enough(99, 0, 100));
        assert!(is_enough(25, 75, 100));
        assert!(!is_enough(24, 1_000, 100), "the log needs room of its own");
    }

    #[test]
    fn a_volume_that_others_fill_is_not_cured_by_deleting() {
        assert!(is_cured_by_deleting((30, 70), 100));
        assert!(
            !is_cured_by_deleting((30, 69), 100),
            "the file is too small"
        );
        assert!(
            !is_cured_by_deleting((24, 1_000), 100),
            "no room for the log"
        );
    }

    #[test]
    fn the_ballast_is_made_where_there_is_room_and_given_up_at_the_floor() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("echo.db");
        let ballast = folder.path().join("echo.db.ballast");
        let limits = |floor| Limits {
            floor: Some(Amount::Bytes(floor)),
            ballast_bytes: MIB,
            ..Limits::default()
        };
        let roomy = Volume::of(&path, limits(MIB));
        roomy.look(Blocks::default());
        assert_eq!(ballast.metadata().unwrap().len(), MIB);
        roomy.admit().unwrap();
        assert_eq!(roomy.shortage(), None);

        let full = Volume::of(&path, limits(u64::MAX));
        full.prepare();
        assert!(!ballast.exists(), "the next process does the same");
        roomy.look(Blocks::default());
        assert!(full.admit().is_err() && full.shortage().is_some());
        assert!(!ballast.exists());
        full.look(Blocks::default());
        assert!(!ballast.exists(), "there is no room for it");
    }
}
