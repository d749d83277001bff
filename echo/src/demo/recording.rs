//! Recordings of the demo: built-in ones, and headers of files. The ground truth rows are not read.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde::Deserialize;

/// Recordings that are part of the program, in the order of their replay.
const BUILT_IN: [(&str, &[u8]); 7] = [
    (
        "hf-ddp-loader1.jsonl.gz",
        include_bytes!("../../../testdata/recordings/real-loops/hf-ddp-loader1.jsonl.gz"),
    ),
    (
        "cpu-contention-rank1.jsonl.gz",
        include_bytes!("../../../testdata/recordings/cpu-contention-rank1.jsonl.gz"),
    ),
    (
        "gpu-extra-rank1.jsonl.gz",
        include_bytes!("../../../testdata/recordings/gpu-extra-rank1.jsonl.gz"),
    ),
    (
        "healthy.jsonl.gz",
        include_bytes!("../../../testdata/recordings/healthy.jsonl.gz"),
    ),
    (
        "host-sleep-rank2.jsonl.gz",
        include_bytes!("../../../testdata/recordings/host-sleep-rank2.jsonl.gz"),
    ),
    (
        "mesh-host-sleep-rank3.jsonl.gz",
        include_bytes!("../../../testdata/recordings/mesh-host-sleep-rank3.jsonl.gz"),
    ),
    (
        "nosync-host-sleep-rank0.jsonl.gz",
        include_bytes!("../../../testdata/recordings/nosync-host-sleep-rank0.jsonl.gz"),
    ),
];

/// GPU-hour rates that are part of the program.
const RATES: &[u8] = include_bytes!("../../../testdata/rates.yaml");

/// Header of a recording.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Recording {
    /// File.
    pub(super) path: PathBuf,
    /// Name, which becomes the name of the cluster.
    pub(super) name: String,
    /// Number of ranks of the job.
    pub(super) n_ranks: u32,
    /// Fault injected into the job while it was recorded, if known.
    pub(super) scenario: Option<String>,
}

/// Error from finding or reading recordings.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The path cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// A built-in file cannot be written to the temporary folder.
    #[error("cannot write {}: set TMPDIR to a folder with space for the demo", path.display())]
    Unwritable {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The file is not a recording.
    #[error("{} is not a recording: the first line is not a recording header", path.display())]
    NotRecording {
        /// File.
        path: PathBuf,
        /// Cause.
        source: serde_json::Error,
    },
    /// The directories contain no recordings.
    #[error(
        "no recordings (*.jsonl.gz) in {0}: give their paths, or none to replay the built-in ones"
    )]
    None(String),
}

#[derive(Deserialize)]
struct Header {
    name: String,
    scenario: Option<serde_json::Value>,
    processes: Vec<serde_json::Value>,
}

/// Writes the built-in recordings to a folder and returns them.
pub(super) fn built_in(folder: &Path) -> Result<Vec<Recording>, RecordingError> {
    let write = |(name, bytes): (&str, &[u8])| read_header(&written(folder, name, bytes)?);
    BUILT_IN.into_iter().map(write).collect()
}

/// Writes the built-in rates to a folder and returns the path of the file.
pub(super) fn built_in_rates(folder: &Path) -> Result<PathBuf, RecordingError> {
    written(folder, "rates.yaml", RATES)
}

fn written(folder: &Path, name: &str, bytes: &[u8]) -> Result<PathBuf, RecordingError> {
    let path = folder.join(name);
    match std::fs::write(&path, bytes) {
        Ok(()) => Ok(path),
        Err(source) => Err(RecordingError::Unwritable { path, source }),
    }
}

/// Reads the recordings at the paths. Directories are searched; their files are sorted by name.
pub(super) fn find(paths: &[PathBuf]) -> Result<Vec<Recording>, RecordingError> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            files.extend(recordings_in(path).map_err(|source| unreadable(path, source))?);
        } else {
            files.push(path.clone());
        }
    }
    if files.is_empty() {
        let searched: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        return Err(RecordingError::None(searched.join(", ")));
    }
    files.iter().map(|file| read_header(file)).collect()
}

fn recordings_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    files.retain(|file| file.to_string_lossy().ends_with(".jsonl.gz"));
    files.sort();
    Ok(files)
}

fn read_header(path: &Path) -> Result<Recording, RecordingError> {
    let file = File::open(path).map_err(|source| unreadable(path, source))?;
    let mut line = String::new();
    BufReader::new(GzDecoder::new(file))
        .read_line(&mut line)
        .map_err(|source| unreadable(path, source))?;
    let header: Header =
        serde_json::from_str(&line).map_err(|source| RecordingError::NotRecording {
            path: path.to_owned(),
            source,
        })?;
    Ok(Recording {
        path: path.to_owned(),
        name: header.name,
        n_ranks: u32::try_from(header.processes.len()).unwrap_or(u32::MAX),
        scenario: header.scenario.as_ref().map(describe),
    })
}

/// Formats a scenario, as in `host-sleep (ms 8, rank 2)`.
fn describe(scenario: &serde_json::Value) -> String {
    let Some(entries) = scenario.as_object() else {
        return scenario.to_string();
    };
    let kind = entries
        .get("kind")
        .and_then(serde_json::Value::as_str)
        .unwrap_or("unknown");
    let others = entries.iter().filter(|(name, _)| *name != "kind");
    let details: Vec<String> = others
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    format!("{kind} ({})", details.join(", "))
}

fn unreadable(path: &Path, source: std::io::Error) -> RecordingError {
    RecordingError::Unreadable {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{BUILT_IN, recordings_in};

    #[test]
    fn the_built_in_recordings_are_one_real_loop_and_the_folder_of_the_repository() {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/recordings");
        let kept = recordings_in(&repository).unwrap();
        let kept: Vec<&str> = kept
            .iter()
            .map(|path| path.file_name().unwrap().to_str().unwrap())
            .collect();
        let names = BUILT_IN.map(|(name, _)| name);
        assert_eq!(names[0], "hf-ddp-loader1.jsonl.gz");
        assert_eq!(names[1..], kept);
    }
}
