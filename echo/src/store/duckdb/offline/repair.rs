//! A log that the engine refuses to read is set aside, so that what was in the database file can be used again.

use std::fs;
use std::path::{Path, PathBuf};

use crate::clock::Clock;
use crate::store::StoreError;
use crate::store::duckdb::engine;
use crate::store::duckdb::migrate::MIGRATIONS;
use crate::store::duckdb::offline::{Contents, Held, cannot_write, with_ending};
use crate::store::duckdb::open::{look, read_only};
use crate::store::duckdb::rows::identity;

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repaired {
    /// The database can be opened with its log; nothing was changed.
    Sound,
    /// The log was set aside.
    SetAside {
        /// Where the files of the log are now, and their sizes in bytes.
        files: Vec<(PathBuf, u64)>,
        /// What was wrong with it.
        reason: String,
        /// What the database has without it.
        contents: Contents,
    },
}

/// Sets the log of the database at `db` aside if that makes it readable again. Nothing is deleted.
pub fn drop_wal(db: &Path, clock: &dyn Clock) -> Result<Repaired, StoreError> {
    let held = Held::take(db, clock)?;
    let Err(broken) = look(&held.path, MIGRATIONS) else {
        return Ok(Repaired::Sound);
    };
    let StoreError::Unreadable { reason, .. } = &broken else {
        return Err(broken);
    };
    let moves: Vec<(PathBuf, PathBuf)> = held
        .log()?
        .into_iter()
        .map(|file| {
            let aside = with_ending(&file, &format!(".dropped-{}", clock.now().value()));
            (file, aside)
        })
        .collect();
    if moves.is_empty() {
        return Err(broken);
    }
    let mut files = Vec::new();
    for (file, aside) in &moves {
        let bytes = fs::metadata(file).map_err(cannot_write(file))?.len();
        fs::rename(file, aside).map_err(cannot_write(aside))?;
        files.push((aside.clone(), bytes));
    }
    match contents(&held) {
        Ok(contents) => Ok(Repaired::SetAside {
            files,
            reason: reason.clone(),
            contents,
        }),
        Err(still_broken) => {
            // It was not the log's fault: everything goes back to where it was.
            for (file, aside) in &moves {
                fs::rename(aside, file).map_err(cannot_write(file))?;
            }
            Err(still_broken)
        }
    }
}

fn contents(held: &Held) -> Result<Contents, StoreError> {
    look(&held.path, MIGRATIONS)?;
    let connection = read_only(&held.path)?;
    identity::contents(&connection).map_err(engine("reading the database"))
}
