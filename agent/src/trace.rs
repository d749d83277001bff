//! Export of recordings as Chrome traces, which Perfetto opens.

mod alignment;
mod chrome;
mod kernel;
mod perfetto;
mod timeline;

use std::fmt::{self, Display};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use fleet_agent_sources::recording::Recording;
use fleet_agent_sources::source::{EventSource, SourceError};
use thiserror::Error;

use crate::config::ExportArgs;
use crate::trace::alignment::{Alignment, align};
use crate::trace::timeline::{RankTimeline, TimelineBuilder};

/// Error of an export.
#[derive(Debug, Error)]
pub enum ExportError {
    /// A recording cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// No rank of the recordings has issued a collective.
    #[error("no collective found in {0}; nothing was written")]
    Empty(String),
    /// The trace cannot be written.
    #[error("{path}: cannot be written ({source}); choose another --output")]
    Write {
        /// File.
        path: String,
        /// Error of the system.
        source: io::Error,
    },
}

/// Result of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportSummary {
    /// Written file.
    pub file: PathBuf,
    /// Number of ranks.
    pub ranks: usize,
    /// Number of collectives, over all ranks.
    pub collectives: usize,
    /// Recordings that share no collective with the first one, so that their clocks differ.
    pub unaligned: Vec<String>,
    /// Reasons why the ends of recordings were not read.
    pub unread_ends: Vec<String>,
}

impl Display for ExportSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        write!(
            f,
            "{} ranks, {} collectives: {file}",
            self.ranks, self.collectives
        )?;
        if !self.unaligned.is_empty() {
            let names = self.unaligned.join(", ");
            write!(
                f,
                "\nno common collective, so clocks are not aligned: {names}"
            )?;
        }
        for reason in &self.unread_ends {
            write!(f, "\n{reason}")?;
        }
        Ok(())
    }
}

/// Exports recordings.
pub fn export(args: &ExportArgs) -> Result<ExportSummary, ExportError> {
    let mut ranks = Vec::new();
    let (mut names, mut unread_ends) = (Vec::new(), Vec::new());
    for (host, path) in args.files.iter().enumerate() {
        names.push(path.display().to_string());
        let (own, unread_end) = read(path, host)?;
        ranks.extend(own);
        unread_ends.extend(unread_end.map(|error| error.to_string()));
    }
    let collectives = ranks.iter().map(|rank| rank.collectives.len()).sum();
    if collectives == 0 {
        return Err(ExportError::Empty(names.join(", ")));
    }
    let Alignment { unaligned } = align(&mut ranks);
    ranks.sort_by_key(|rank| (rank.process.rank, rank.host));
    write_file(&args.output, |file| perfetto::write(file, &ranks))?;
    Ok(ExportSummary {
        file: args.output.clone(),
        ranks: ranks.len(),
        collectives,
        unaligned: unaligned
            .into_iter()
            .filter_map(|host| names.get(host).cloned())
            .collect(),
        unread_ends,
    })
}

/// Reads the ranks of a recording, which is the one with this index. Returns as well why its end
/// cannot be read.
fn read(path: &Path, host: usize) -> Result<(Vec<RankTimeline>, Option<SourceError>), SourceError> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|source| SourceError::Open {
        path: name.clone(),
        source,
    })?;
    let mut recording = Recording::new(&name, file)?;
    let mut builder = TimelineBuilder::new(host, recording.processes());
    let unread_end = loop {
        match recording.next_event() {
            Ok(Some(event)) => builder.on_event(&event),
            Ok(None) => break None,
            Err(error @ (SourceError::Truncated { .. } | SourceError::Damaged { .. })) => {
                break Some(error);
            }
            Err(error) => return Err(error),
        }
    };
    Ok((builder.finish(), unread_end))
}

/// Writes a file, compressed if its name ends with `.gz`.
fn write_file(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), ExportError> {
    let written = || {
        let mut file = BufWriter::new(File::create(path)?);
        if path.extension().is_some_and(|extension| extension == "gz") {
            let mut compressed = GzEncoder::new(file, Compression::default());
            content(&mut compressed)?;
            file = compressed.finish()?;
        } else {
            content(&mut file)?;
        }
        file.flush()
    };
    written().map_err(|source| write_error(path, source))
}

fn write_error(path: &Path, source: io::Error) -> ExportError {
    ExportError::Write {
        path: path.display().to_string(),
        source,
    }
}

#[cfg(test)]
mod tests;
