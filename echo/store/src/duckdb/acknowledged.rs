//! Record of the last event that was acknowledged, in a file beside the database. The engine opens a database whose log
//! is missing, or cut off, without a word; with the record, what is missing is known.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::StoreError;
use crate::duckdb::lock::beside;

/// Ending of the name of the file.
const ENDING: &str = ".acknowledged";

/// Length of the record: two numbers of 20 digits.
const BYTES: usize = 42;

/// The record, in an open file.
#[derive(Debug)]
pub(super) struct Acknowledged {
    file: File,
    lost: u64,
}

/// What is recorded.
#[derive(Debug, Clone, Copy, Default)]
struct Record {
    /// Number of the last event that was acknowledged.
    last_event: u64,
    /// Number of events whose loss was accepted.
    lost: u64,
}

impl Acknowledged {
    /// Opens the record of the database at `path`, whose last event is `stored`, if that is known. Fails if a later one
    /// was acknowledged.
    pub(super) fn open(path: &Path, stored: Option<u64>) -> Result<Self, StoreError> {
        let (file, record) = open(path).map_err(unsuitable(path))?;
        let stored = stored.unwrap_or(record.last_event);
        let missing = record.last_event.saturating_sub(stored);
        if missing > 0 {
            return Err(StoreError::Lost {
                path: path.display().to_string(),
                missing,
            });
        }
        let lost = record.lost;
        let opened = Self { file, lost };
        opened.record(stored);
        Ok(opened)
    }

    /// Number of events whose loss was accepted.
    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }

    /// Records the last event of a commit, before it is acknowledged. The record is not flushed to the disk: after a
    /// power failure it may be an earlier one, which asserts less.
    pub(super) fn record(&self, last_event: u64) {
        let record = Record {
            last_event,
            lost: self.lost,
        };
        if let Err(error) = write(&self.file, record) {
            tracing::debug!(%error, "cannot record the last acknowledged event");
        }
    }
}

/// Accepts that the database at `path` ends with the event `stored`. Returns how many acknowledged events are missing.
pub(super) fn accept_loss(path: &Path, stored: u64) -> Result<u64, StoreError> {
    let (file, record) = open(path).map_err(unsuitable(path))?;
    let missing = record.last_event.saturating_sub(stored);
    let accepted = Record {
        last_event: stored,
        lost: record.lost.saturating_add(missing),
    };
    write(&file, accepted).map_err(unsuitable(path))?;
    Ok(missing)
}

fn open(path: &Path) -> io::Result<(File, Record)> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(beside(path, ENDING))?;
    let mut bytes = [0; BYTES];
    let n = file.read_at(&mut bytes, 0)?;
    let text = String::from_utf8_lossy(bytes.get(..n).unwrap_or_default());
    let record = text.split_once(' ').and_then(|(last_event, lost)| {
        Some(Record {
            last_event: last_event.parse().ok()?,
            lost: lost.trim_end().parse().ok()?,
        })
    });
    // A new database has none, and one that cannot be read asserts nothing.
    Ok((file, record.unwrap_or_default()))
}

fn write(file: &File, Record { last_event, lost }: Record) -> io::Result<()> {
    let text = format!("{last_event:020} {lost:020}\n");
    file.write_all_at(text.as_bytes(), 0)
}

fn unsuitable(path: &Path) -> impl Fn(io::Error) -> StoreError {
    let path = path.display().to_string();
    move |error| StoreError::Unsuitable {
        path: path.clone(),
        reason: format!("cannot write its record of acknowledged events ({error})"),
    }
}
