//! Spool of batches on disk while the receiver is unreachable: a directory of numbered files,
//! oldest first, with a size limit.
//!
//! A file is written under another name and then renamed, so a killed process leaves complete files
//! and at most one partial one, which is removed at the next start. Files that a power loss damaged
//! are detected by their checksum. All operations block on the disk; the caller keeps them off the
//! runtime's threads.

mod folder;
mod record;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use thiserror::Error;

use crate::encoded::EncodedBatch;
use crate::spool::folder::FileName;
use crate::spool::record::{Damage, HEADER_BYTES, Header};
use crate::vitals::Amount;

/// Allocation unit of file systems, so that the limit applies to disk usage and not to contents.
const BLOCK_BYTES: u64 = 4096;

/// Error of opening a spool.
#[derive(Debug, Error)]
pub enum SpoolError {
    /// The directory cannot be created or read.
    #[error(
        "--spool: cannot use {dir}: {source}; use a directory that the agent owns and can write"
    )]
    Unusable {
        /// The directory.
        dir: String,
        /// Error of the system.
        source: io::Error,
    },
    /// Another agent uses the directory.
    #[error(
        "--spool {0} is in use by another agent; stop that agent, or use a separate directory per agent"
    )]
    InUse(String),
}

/// Losses since the previous call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Losses {
    /// Batches evicted for newer ones.
    pub evicted: Amount,
    /// Files that were damaged, or are not those of an agent.
    pub damaged_files: u64,
}

/// Reason that a batch was not spooled.
#[derive(Debug, Error)]
pub enum PushError {
    /// The batch alone is larger than the limit.
    #[error("a batch of {bytes} bytes is larger than --spool-limit")]
    TooLarge {
        /// Size on disk.
        bytes: u64,
    },
    /// The disk cannot be written.
    #[error("{0}")]
    Disk(#[from] io::Error),
}

/// File of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    sequence: u64,
    bytes: u64,
}

/// Queue of batches in a directory that only this process uses.
#[derive(Debug)]
pub struct Spool {
    dir: PathBuf,
    limit_bytes: u64,
    entries: VecDeque<Entry>,
    bytes: u64,
    next: u64,
    losses: Losses,
    /// Lock on the directory while the spool is open.
    _lock: File,
}

impl Spool {
    /// Opens a directory, including the batches that an earlier agent left.
    pub fn open(dir: &Path, limit_bytes: u64) -> Result<Self, SpoolError> {
        let unusable = |source| SpoolError::Unusable {
            dir: dir.display().to_string(),
            source,
        };
        let lock = folder::lock(dir)
            .map_err(unusable)?
            .ok_or_else(|| SpoolError::InUse(dir.display().to_string()))?;
        let found = folder::scan(dir).map_err(unusable)?;
        let mut spool = Self {
            dir: dir.to_owned(),
            limit_bytes,
            next: found.files.last().map_or(1, |(sequence, _)| sequence + 1),
            entries: VecDeque::new(),
            bytes: 0,
            losses: Losses {
                damaged_files: found.n_foreign,
                ..Losses::default()
            },
            _lock: lock,
        };
        for (sequence, len) in found.files {
            let bytes = on_disk(len);
            spool.bytes += bytes;
            spool.entries.push_back(Entry { sequence, bytes });
        }
        spool.evict_until_fits(0, None);
        Ok(spool)
    }

    /// Returns the number of batches.
    pub fn n_batches(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Returns their size on disk, in whole blocks.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the losses since the previous call.
    pub fn take_losses(&mut self) -> Losses {
        std::mem::take(&mut self.losses)
    }

    /// Returns whether the batch with this sequence number is still spooled.
    pub fn contains(&self, sequence: u64) -> bool {
        let found = self
            .entries
            .binary_search_by_key(&sequence, |entry| entry.sequence);
        found.is_ok()
    }

    /// Appends a batch, and evicts the oldest ones except `protected` until all are within the
    /// limit.
    pub fn push(&mut self, batch: &EncodedBatch, protected: Option<u64>) -> Result<u64, PushError> {
        let header = record::encode_header(batch);
        let bytes = on_disk(HEADER_BYTES + batch.request.len() as u64);
        let protected_bytes = self
            .protected_entry(protected)
            .map_or(0, |entry| entry.bytes);
        if bytes > self.limit_bytes.saturating_sub(protected_bytes) {
            return Err(PushError::TooLarge { bytes });
        }
        self.evict_until_fits(bytes, protected);
        let sequence = self.next;
        let partial = self.path(FileName::Partial(sequence));
        let written = write(&partial, &header, &batch.request)
            .and_then(|()| fs::rename(&partial, self.path(FileName::Batch(sequence))));
        if let Err(error) = written {
            // A partial file is removed at the next start, or overwritten before.
            drop(fs::remove_file(&partial));
            return Err(error.into());
        }
        self.next += 1;
        self.bytes += bytes;
        self.entries.push_back(Entry { sequence, bytes });
        Ok(sequence)
    }

    /// Returns the oldest batch with its sequence number; unreadable files before it are removed
    /// and counted.
    pub fn front(&mut self) -> Option<(u64, EncodedBatch)> {
        let (mut first, mut others) = (None, 0_u64);
        let front = loop {
            let Some(entry) = self.entries.front().copied() else {
                break None;
            };
            let path = self.path(FileName::Batch(entry.sequence));
            let read = fs::read(&path).map_err(Damage::from);
            match read.and_then(|bytes| record::parse(&Bytes::from(bytes))) {
                Ok(batch) => break Some((entry.sequence, batch)),
                Err(damage) if first.is_none() => first = Some((path, damage)),
                Err(_) => others += 1,
            }
            self.losses.damaged_files += 1;
            self.remove(entry.sequence);
        };
        if let Some((path, damage)) = first {
            tracing::error!(
                "removed damaged spool file {}: {damage} ({others} more removed after it)",
                path.display()
            );
        }
        front
    }

    /// Removes a batch that is stored by the receiver or never will be. On a read-only disk the
    /// file stays, and the receiver still stores the batch once.
    pub fn remove(&mut self, sequence: u64) {
        let found = self
            .entries
            .binary_search_by_key(&sequence, |entry| entry.sequence);
        if let Some(entry) = found.ok().and_then(|index| self.entries.remove(index)) {
            self.bytes -= entry.bytes;
            let path = self.path(FileName::Batch(sequence));
            if let Err(error) = fs::remove_file(&path)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!("cannot remove {}: {error}", path.display());
            }
        }
    }

    fn evict_until_fits(&mut self, bytes: u64, protected: Option<u64>) {
        while self.bytes.saturating_add(bytes) > self.limit_bytes {
            let is_protected = |entry: &&Entry| Some(entry.sequence) == protected;
            let oldest = self.entries.iter().find(|entry| !is_protected(entry));
            let Some(sequence) = oldest.map(|entry| entry.sequence) else {
                return;
            };
            match self.read_points(sequence) {
                Ok(points) => self.losses.evicted.add(Amount::batch(points)),
                Err(_) => self.losses.damaged_files += 1,
            }
            self.remove(sequence);
        }
    }

    fn protected_entry(&self, protected: Option<u64>) -> Option<&Entry> {
        let sequence = protected?;
        self.entries.iter().find(|entry| entry.sequence == sequence)
    }

    fn read_points(&self, sequence: u64) -> Result<u64, Damage> {
        let file = File::open(self.path(FileName::Batch(sequence)))?;
        Ok(Header::read(file)?.points)
    }

    fn path(&self, name: FileName) -> PathBuf {
        self.dir.join(name.to_string())
    }
}

fn on_disk(bytes: u64) -> u64 {
    bytes
        .checked_next_multiple_of(BLOCK_BYTES)
        .unwrap_or(u64::MAX)
        .max(BLOCK_BYTES)
}

fn write(path: &Path, header: &[u8], request: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(header)?;
    file.write_all(request)?;
    // Without this sync a name could survive a power loss that its contents do not.
    file.sync_data()
}

#[cfg(test)]
mod tests;
