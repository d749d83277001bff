//! Headers of a database file. Each checkpoint ends with a new one, so equal headers before and after reading mean that
//! one state was read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Length of the headers, bytes.
const HEADER_BYTES: usize = 3 * 4096;

/// Headers of an open file.
#[derive(Debug)]
pub(super) struct FileHeaders {
    file: File,
    first_read: [u8; HEADER_BYTES],
}

impl FileHeaders {
    /// Reads those of the database at `path`.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let first_read = read(&file)?;
        Ok(Self { file, first_read })
    }

    /// Returns whether a checkpoint has ended since.
    pub(super) fn have_changed(&self) -> io::Result<bool> {
        Ok(read(&self.file)? != self.first_read)
    }
}

fn read(file: &File) -> io::Result<[u8; HEADER_BYTES]> {
    let mut bytes = [0; HEADER_BYTES];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}
