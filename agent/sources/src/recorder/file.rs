//! File of a recording. Its header line is overwritten in place, so that the file is valid at any
//! time, even if the agent is killed.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

/// Recording being written.
#[derive(Debug)]
pub struct RecordingFile {
    file: File,
    body: Body,
    is_compressed: bool,
    header_bytes: usize,
}

#[derive(Debug)]
enum Body {
    Plain(BufWriter<File>),
    Gzip(GzEncoder<File>),
}

impl RecordingFile {
    /// Creates a file with this header line; its name determines whether it is compressed.
    pub fn create(path: &Path, overwrite: Overwrite, header: &str) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true);
        let mut file = match overwrite {
            Overwrite::Never => options.create_new(true).open(path)?,
            Overwrite::Existing => options.create(true).truncate(true).open(path)?,
        };
        let is_compressed = path.extension().is_some_and(|extension| extension == "gz");
        let first = first_bytes(header, is_compressed)?;
        file.write_all(&first)?;
        let rest = file.try_clone()?;
        let body = if is_compressed {
            Body::Gzip(GzEncoder::new(rest, Compression::fast()))
        } else {
            Body::Plain(BufWriter::new(rest))
        };
        Ok(Self {
            file,
            body,
            is_compressed,
            header_bytes: first.len(),
        })
    }

    /// Replaces the header line by another one of the same length.
    pub fn set_header(&self, header: &str) -> io::Result<()> {
        let first = first_bytes(header, self.is_compressed)?;
        if first.len() != self.header_bytes {
            let reason = "the header line of the recording is too short for its processes";
            return Err(io::Error::new(ErrorKind::InvalidData, reason));
        }
        self.file.write_all_at(&first, 0)
    }

    /// Appends lines.
    pub fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        match &mut self.body {
            Body::Plain(body) => body.write_all(lines),
            Body::Gzip(body) => body.write_all(lines),
        }
    }

    /// Flushes everything so far.
    pub fn flush(&mut self) -> io::Result<()> {
        match &mut self.body {
            Body::Plain(body) => body.flush(),
            Body::Gzip(body) => body.flush(),
        }
    }

    /// Returns the size of the file so far, bytes.
    pub fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Finishes the file and returns its size, bytes.
    pub fn finish(mut self) -> io::Result<u64> {
        self.flush()?;
        if let Body::Gzip(body) = self.body {
            body.finish()?;
        }
        Ok(self.file.metadata()?.len())
    }
}

/// Treatment of an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overwrite {
    /// Keep it and fail.
    Never,
    /// Replace it.
    Existing,
}

/// Encodes the header line. In a compressed file it is a stream of its own, stored uncompressed:
/// its length must not change.
fn first_bytes(header: &str, is_compressed: bool) -> io::Result<Vec<u8>> {
    if !is_compressed {
        return Ok(header.as_bytes().to_vec());
    }
    let mut stored = GzEncoder::new(Vec::new(), Compression::none());
    stored.write_all(header.as_bytes())?;
    stored.finish()
}
