//! Repair: renames an unreadable log, so that the database file can be used again.

use std::fs;
use std::path::{Path, PathBuf};

use echo_core::clock::Clock;

use crate::StoreError;
use crate::duckdb::acknowledged;
use crate::duckdb::engine::engine;
use crate::duckdb::inventory::Contents;
use crate::duckdb::migrations::MIGRATIONS;
use crate::duckdb::offline::{LockedDatabase, cannot_write, logs, with_ending};
use crate::duckdb::open::{inspect, read_only};
use crate::duckdb::rows::identity;

/// Result of a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repaired {
    /// The database can be opened with its log; nothing was changed.
    Sound,
    /// The log was set aside.
    SetAside {
        /// New names of the log files, and their sizes in bytes.
        files: Vec<(PathBuf, u64)>,
        /// Error that the log caused.
        reason: String,
        /// Contents of the database without the log.
        contents: Contents,
    },
}

/// Renames the log of the database at `db` if that makes the database readable again. Nothing is
/// deleted.
pub fn drop_wal(db: &Path, clock: &dyn Clock) -> Result<Repaired, StoreError> {
    let locked = LockedDatabase::lock(db, clock)?;
    let Err(broken) = inspect(&locked.path, MIGRATIONS) else {
        return Ok(Repaired::Sound);
    };
    let StoreError::DamagedLog { reason, .. } = &broken else {
        return Err(not_the_log(broken));
    };
    let moves: Vec<(PathBuf, PathBuf)> = logs(&locked.path)?
        .into_iter()
        .map(|file| {
            let aside = with_ending(&file, &format!(".dropped-{}", clock.now().value()));
            (file, aside)
        })
        .collect();
    if moves.is_empty() {
        return Err(broken);
    }
    let files = set_aside(&moves)?;
    match contents(&locked) {
        Ok(contents) => {
            acknowledged::accept_loss(&locked.path, contents.last_event)?;
            Ok(Repaired::SetAside {
                files,
                reason: reason.clone(),
                contents,
            })
        }
        Err(still_broken) => {
            // The log was not the cause: restore all names.
            put_back(&moves)?;
            Err(still_broken)
        }
    }
}

/// Accepts that acknowledged events are missing from the database at `db`. Returns how many, and its contents.
pub fn accept_loss(db: &Path, clock: &dyn Clock) -> Result<(u64, Contents), StoreError> {
    let locked = LockedDatabase::lock(db, clock)?;
    let contents = contents(&locked)?;
    let missing = acknowledged::accept_loss(&locked.path, contents.last_event)?;
    Ok((missing, contents))
}

/// Renames all files or none. Returns the new names, and their sizes in bytes.
fn set_aside(moves: &[(PathBuf, PathBuf)]) -> Result<Vec<(PathBuf, u64)>, StoreError> {
    let mut files = Vec::with_capacity(moves.len());
    for (index, (file, aside)) in moves.iter().enumerate() {
        let moved = fs::metadata(file).and_then(|found| {
            fs::rename(file, aside)?;
            Ok(found.len())
        });
        match moved {
            Ok(bytes) => files.push((aside.clone(), bytes)),
            Err(error) => {
                // A partial log is worse than none.
                put_back(moves.get(..index).unwrap_or_default())?;
                return Err(cannot_write(aside)(error));
            }
        }
    }
    Ok(files)
}

/// Restores the names of the files, as many as possible.
fn put_back(moves: &[(PathBuf, PathBuf)]) -> Result<(), StoreError> {
    let mut outcome = Ok(());
    for (file, aside) in moves {
        let moved = fs::rename(aside, file).map_err(|error| StoreError::Unwritable {
            path: file.display().to_string(),
            reason: format!(
                "{error}; the log is at {}: rename it before anything else opens the database",
                aside.display()
            ),
        });
        outcome = outcome.and(moved);
    }
    outcome
}

/// Adds a hint to an error that renaming the log would not fix.
fn not_the_log(broken: StoreError) -> StoreError {
    let hint = |reason: &str| {
        format!(
            "{reason}; the log is not the cause and was left unchanged: fix that, then try again"
        )
    };
    match broken {
        StoreError::Unreadable { path, reason } => StoreError::Unreadable {
            path,
            reason: hint(&reason),
        },
        StoreError::Fatal { reason } => StoreError::Fatal {
            reason: hint(&reason),
        },
        other => other,
    }
}

fn contents(locked: &LockedDatabase) -> Result<Contents, StoreError> {
    inspect(&locked.path, MIGRATIONS)?;
    let connection = read_only(&locked.path)?;
    identity::contents(&connection).map_err(engine("reading the database"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use echo_core::clock::ManualClock;
    use echo_core::units::Nanos;

    use super::{drop_wal, set_aside};
    use crate::StoreError;

    #[test]
    fn all_log_files_are_renamed_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let moves = [
            (path("a.wal"), path("a.wal.dropped")),
            (path("a.wal.checkpoint"), path("a.wal.checkpoint.dropped")),
        ];
        for (file, _) in &moves {
            fs::write(file, "log").unwrap();
        }
        // A file cannot take the name of a folder.
        fs::create_dir(&moves[1].1).unwrap();
        let refused = set_aside(&moves);
        assert!(
            matches!(&refused, Err(StoreError::Unwritable { path, .. }) if path.ends_with("checkpoint.dropped")),
            "{refused:?}"
        );
        assert!(moves.iter().all(|(file, _)| file.is_file()));
        assert!(!moves[0].1.exists());

        fs::remove_dir(&moves[1].1).unwrap();
        let files = set_aside(&moves).unwrap();
        assert_eq!(files, moves.map(|(_, aside)| (aside, 3)));
    }

    #[test]
    fn the_log_is_not_renamed_when_the_database_file_is_unreadable() {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("echo.db");
        let log = folder.path().join("echo.db.wal");
        fs::write(&db, vec![7; 20_000]).unwrap();
        fs::write(&log, "log").unwrap();
        let clock = ManualClock::at(Nanos::new(1));
        let refused = drop_wal(&db, &clock).unwrap_err();
        assert!(
            matches!(refused, StoreError::Unreadable { .. }),
            "{refused:?}"
        );
        assert!(refused.to_string().contains("left unchanged"), "{refused}");
        assert_eq!(fs::read(&log).unwrap(), b"log");
    }
}
