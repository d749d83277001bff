//! Checks that the database file is still where it was opened.
//!
//! A file that is removed, renamed or replaced stays open and writable, but is lost for the next
//! process that opens the path. So a commit counts only while the path leads to the open file.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::duckdb::fatal::Fatal;
use crate::duckdb::lock::Lock;

/// Checks the file of an open database.
#[derive(Debug, Clone)]
pub(super) struct FileCheck {
    path: PathBuf,
    file: FileId,
    fatal: Fatal,
}

/// Device and inode, which identify the file whatever its name.
type FileId = (u64, u64);

impl FileCheck {
    /// Check of the open database at `path`. Its loss is reported to `fatal`.
    pub(super) fn new(path: &Path, fatal: Fatal) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            file: file_at(path)?,
            fatal,
        })
    }

    /// Fatal errors of the database.
    pub(super) const fn fatal(&self) -> &Fatal {
        &self.fatal
    }

    /// Path of the database.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the reason if the file is lost. Once lost, it stays lost.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.fatal.reason().is_none()
            && let Some(reason) = self.loss()
        {
            self.fatal.set(reason);
        }
        self.fatal.reason().map_or(Ok(()), Err)
    }

    /// Reason why the file is lost; `None` while it is there.
    pub(super) fn loss(&self) -> Option<String> {
        let what = match file_at(&self.path) {
            Ok(file) if file == self.file => return None,
            Ok(_other) => "another file has its name".to_owned(),
            Err(error) => error.to_string(),
        };
        let path = self.path.display();
        Some(format!(
            "{path} is no longer the file that was opened ({what}); acknowledged data is in that file"
        ))
    }

    /// Checks that the file system accepts writes. While it does not, commits fail by themselves.
    pub(super) fn check_writable(&self, lock: &Lock) {
        if let Err(error) = lock.touch()
            && error.kind() == io::ErrorKind::ReadOnlyFilesystem
        {
            self.fatal.set(format!("{}: {error}", self.path.display()));
        }
    }
}

// Uses the path: opening the file would release the engine's lock.
fn file_at(path: &Path) -> io::Result<FileId> {
    let file = fs::metadata(path)?;
    Ok((file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::FileCheck;
    use crate::duckdb::fatal::Fatal;

    #[test]
    fn a_lost_file_stays_lost() {
        let folder = tempfile::tempdir().unwrap();
        let [path, aside] = ["echo.db", "aside"].map(|name| folder.path().join(name));
        fs::write(&path, "rows").unwrap();
        let fatal = Fatal::default();
        let file_check = FileCheck::new(&path, fatal.clone()).unwrap();
        assert_eq!(file_check.check(), Ok(()));
        fs::write(&path, "more rows").unwrap();
        assert_eq!(file_check.check(), Ok(()), "it is the same file");

        fs::rename(&path, &aside).unwrap();
        let reason = file_check.check().unwrap_err();
        assert!(reason.contains("No such file"), "{reason}");
        assert_eq!(fatal.reason(), Some(reason.clone()));
        fs::write(&path, "others").unwrap();
        assert!(file_check.loss().unwrap().contains("another"));
        fs::rename(&aside, &path).unwrap();
        assert_eq!(file_check.loss(), None);
        assert_eq!(file_check.check(), Err(reason), "something may be missing");
    }
}
