//! File with the state, beside the database.
//!
//! It is a file and not a table: the writer of the database is busy with events, a backup must not
//! bring old deliveries back, and the state is small. It is replaced as a whole, after it has
//! reached the disk.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::state::State;

/// Version of the format.
const VERSION: u32 = 1;

/// File with the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    path: PathBuf,
}

#[derive(Deserialize)]
struct Stored {
    version: u32,
    #[serde(flatten)]
    state: State,
}

#[derive(Serialize)]
struct Storing<'a> {
    version: u32,
    #[serde(flatten)]
    state: &'a State,
}

impl Journal {
    /// File beside a database.
    pub fn beside(db: &Path) -> Self {
        Self {
            path: with_suffix(db, ".actions.json"),
        }
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Loads the state; empty if there is no file.
    pub fn load(&self) -> io::Result<State> {
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(State::default()),
            Err(error) => return Err(error),
        };
        let stored: Stored = serde_json::from_slice(&bytes).map_err(io::Error::from)?;
        if stored.version != VERSION {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                format!("version {} is not {VERSION}", stored.version),
            ));
        }
        Ok(stored.state)
    }

    /// Replaces the file. After a failure the previous one is there.
    pub fn save(&self, state: &State) -> io::Result<()> {
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mut file = NamedTempFile::new_in(folder)?;
        let stored = Storing {
            version: VERSION,
            state,
        };
        serde_json::to_writer(&mut file, &stored)?;
        file.flush()?;
        file.as_file().sync_all()?;
        file.persist(&self.path).map_err(|error| error.error)?;
        File::open(folder)?.sync_all()
    }
}

/// File beside a database whose existence turns the kill switch on.
pub fn kill_switch_file(db: &Path) -> PathBuf {
    with_suffix(db, ".stop-actions")
}

fn with_suffix(db: &Path, suffix: &str) -> PathBuf {
    let mut path = db.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

#[cfg(test)]
mod tests {
    use super::Journal;
    use crate::notice::Phase;
    use crate::sample::{notice, open_action};
    use crate::state::State;
    use echo_core::units::Nanos;

    #[test]
    fn the_state_survives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::beside(&folder.path().join("fleet.duckdb"));
        assert_eq!(journal.load().unwrap(), State::default());
        let mut action = open_action("slurm", &notice("node-1", 1));
        let delivery = action.next_delivery(Phase::Raised, Nanos::new(7));
        let mut state = State::default();
        state.seen.insert("a/1".to_owned(), 5);
        state.open.push(action);
        state.queue.push(delivery);
        journal.save(&state).unwrap();
        journal.save(&state).unwrap();
        assert_eq!(journal.load().unwrap(), state);
        let files = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(files, 1, "no temporary file is left");
    }

    #[test]
    fn a_file_of_another_version_or_format_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::beside(&folder.path().join("fleet.duckdb"));
        for text in ["{}", "", r#"{"version":2,"seen":{},"open":[],"queue":[]}"#] {
            std::fs::write(journal.path(), text).unwrap();
            assert!(journal.load().is_err(), "{text}");
        }
    }
}
