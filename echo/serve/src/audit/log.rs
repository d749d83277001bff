//! Destination of the audit log: a rotated file, or standard error.

use std::fs::{File, OpenOptions, rename};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Rotated files that are kept.
const MAX_ROTATED: u32 = 8;

/// Mode of a new file. The lines show who requests what, so only the owner may read them.
const MODE: u32 = 0o600;

/// Destination of audit lines. Clones share it.
#[derive(Debug, Clone)]
pub struct AuditLog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    sink: Mutex<Sink>,
    written: AtomicU64,
    lost: AtomicU64,
}

#[derive(Debug)]
enum Sink {
    Disabled,
    StandardError,
    File(Rotating),
    #[cfg(test)]
    Memory(Vec<String>),
}

/// A file that is rotated by size.
#[derive(Debug)]
struct Rotating {
    path: PathBuf,
    file: File,
    bytes: u64,
    max_bytes: u64,
}

impl AuditLog {
    /// Discards all lines, for a listener without authentication.
    pub fn disabled() -> Self {
        Self::to(Sink::Disabled)
    }

    /// Writes to standard error.
    pub fn standard_error() -> Self {
        Self::to(Sink::StandardError)
    }

    /// Appends to a file, which is renamed to `PATH.1` when it reaches `max_bytes`; eight such
    /// files are kept. The mode of an existing file is not changed.
    pub fn file(path: &Path, max_bytes: u64) -> io::Result<Self> {
        Ok(Self::to(Sink::File(Rotating::open(path, max_bytes)?)))
    }

    fn to(sink: Sink) -> Self {
        Self(Arc::new(Shared {
            sink: Mutex::new(sink),
            written: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }))
    }

    /// Writes a record that is not about a request.
    pub fn record(&self, record: &serde_json::Value) {
        self.write(&record.to_string());
    }

    /// Writes a line. Failures are counted, and the first one is logged.
    pub(super) fn write(&self, line: &str) {
        let mut sink = self.0.sink.lock().unwrap_or_else(PoisonError::into_inner);
        match sink.write(line) {
            Ok(()) => {
                self.0.written.fetch_add(1, Relaxed);
            }
            Err(error) => {
                if self.0.lost.fetch_add(1, Relaxed) == 0 {
                    tracing::error!(%error, "cannot write to the audit log; metrics count the lost lines");
                }
            }
        }
    }

    /// Returns the number of lines written since the start.
    pub fn written(&self) -> u64 {
        self.0.written.load(Relaxed)
    }

    /// Returns the number of lines lost since the start.
    pub fn lost(&self) -> u64 {
        self.0.lost.load(Relaxed)
    }
}

#[cfg(test)]
impl AuditLog {
    /// Keeps the lines in memory.
    pub(crate) fn memory() -> Self {
        Self::to(Sink::Memory(Vec::new()))
    }

    /// Returns the lines so far.
    pub(crate) fn lines(&self) -> Vec<serde_json::Value> {
        let sink = self.0.sink.lock().unwrap();
        match &*sink {
            Sink::Memory(lines) => lines
                .iter()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect(),
            _ => Vec::new(),
        }
    }
}

impl Sink {
    fn write(&mut self, line: &str) -> io::Result<()> {
        match self {
            Self::Disabled => Ok(()),
            // One call, so that lines of several threads are not interleaved.
            Self::StandardError => io::stderr().write_all(format!("{line}\n").as_bytes()),
            Self::File(file) => file.write(line),
            #[cfg(test)]
            Self::Memory(lines) => {
                lines.push(line.to_owned());
                Ok(())
            }
        }
    }
}

impl Rotating {
    fn open(path: &Path, max_bytes: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).mode(MODE).open(path)?;
        Ok(Self {
            path: path.to_owned(),
            bytes: file.metadata()?.len(),
            file,
            max_bytes,
        })
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        if self.bytes >= self.max_bytes {
            self.rotate()?;
        }
        let line = format!("{line}\n");
        self.file.write_all(line.as_bytes())?;
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// Renames each rotated file to the next number, dropping the oldest, and starts a new file.
    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..MAX_ROTATED).rev() {
            match rename(self.rotated_path(number), self.rotated_path(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        rename(&self.path, self.rotated_path(1))?;
        *self = Self::open(&self.path, self.max_bytes)?;
        Ok(())
    }

    fn rotated_path(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, metadata, read_to_string, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::{AuditLog, MAX_ROTATED};

    #[test]
    fn a_full_file_is_rotated_and_the_oldest_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let log = AuditLog::file(&path, 10).unwrap();
        for number in 0..30 {
            log.write(&format!("line {number:02}, long"));
        }
        assert_eq!((log.written(), log.lost()), (30, 0));
        assert_eq!(read_to_string(&path).unwrap(), "line 29, long\n");
        for number in 1..=MAX_ROTATED {
            let older =
                read_to_string(folder.path().join(format!("audit.jsonl.{number}"))).unwrap();
            assert_eq!(older, format!("line {:02}, long\n", 29 - number));
        }
        assert!(!folder.path().join("audit.jsonl.9").exists());
    }

    #[test]
    fn new_files_are_readable_by_their_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let mode = |path: &Path| metadata(path).unwrap().permissions().mode() & 0o777;
        // The mode of an existing file is kept.
        write(&path, "older\n").unwrap();
        set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let log = AuditLog::file(&path, 1).unwrap();
        assert_eq!(mode(&path), 0o640);
        log.write("one");
        log.write("two");
        let aside = |number: u32| folder.path().join(format!("audit.jsonl.{number}"));
        assert_eq!(mode(&aside(2)), 0o640);
        assert_eq!((mode(&aside(1)), mode(&path)), (0o600, 0o600));
    }

    #[test]
    fn an_existing_file_is_appended_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        for line in ["one", "two"] {
            AuditLog::file(&path, 1_000).unwrap().write(line);
        }
        assert_eq!(read_to_string(&path).unwrap(), "one\ntwo\n");
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let log = AuditLog::file("/dev/full".as_ref(), 1_000).unwrap();
        log.write("one");
        assert_eq!((log.written(), log.lost()), (0, 1));
    }
}
