//! Files about a process that does nothing, made once when a hang begins: the states of its threads, the
//! dump of `PyTorch`'s Flight Recorder, and what NCCL's RAS subsystem answers about its job.

mod flight_recorder;
mod threads;

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use fleet_agent_core::captured_file::CapturedFile;

pub use crate::capture::flight_recorder::FlightRecorderError;
use crate::ras::{RasAnswer, RasError};

/// Largest size of a file after compression, bytes: 20 points.
const MAX_BYTES: usize = 180_000;

/// Time for which a dump of the Flight Recorder is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Files about one process.
#[derive(Debug, Default)]
pub struct Capture {
    files: Vec<CapturedFile>,
    /// A line about each file, or why it is missing.
    lines: Vec<String>,
}

impl Capture {
    /// Reads the states of the threads of a process and of its descendants. `proc` is `/proc`, except in
    /// tests.
    pub fn add_threads(&mut self, proc: &Path, pid: u32) {
        let states = threads::states(proc, pid);
        self.add("threads.txt", states.map(String::into_bytes));
    }

    /// Has the Flight Recorder of a rank write its dump, and reads it, for which it has some seconds.
    pub async fn add_flight_recorder(&mut self, proc: &Path, pid: u32, rank: Option<u32>) {
        let Some(rank) = rank else {
            return;
        };
        let dump = flight_recorder::dump(proc, pid, rank, PATIENCE).await;
        self.add("flight_recorder.pickle", dump);
    }

    /// Adds the answer of NCCL's RAS subsystem about the job.
    pub fn add_ras(&mut self, answer: Result<RasAnswer, RasError>) {
        let name = match &answer {
            Ok(answer) if !answer.is_json => "ras.txt",
            _ => "ras.json",
        };
        self.add(name, answer.map(|answer| answer.text.into_bytes()));
    }

    /// Adds a file that lists the others, and what is missing.
    pub fn finish(&mut self) {
        let text = self.lines.join("\n") + "\n";
        self.add("capture.txt", Ok::<_, io::Error>(text.into_bytes()));
    }

    /// Returns the files that were added since the last call.
    pub fn take(&mut self) -> Vec<CapturedFile> {
        std::mem::take(&mut self.files)
    }

    fn add<E: std::error::Error>(&mut self, name: &'static str, content: Result<Vec<u8>, E>) {
        let content = content.map_err(|error| error.to_string());
        let line = match content.and_then(|content| compressed(name, &content)) {
            Ok(file) => {
                let line = format!("{name}: {} bytes", file.size);
                self.files.push(file);
                line
            }
            Err(reason) => format!("{name} is missing: {reason}"),
        };
        self.lines.push(line);
    }
}

/// Returns the file, or why it is not sent.
fn compressed(name: &'static str, content: &[u8]) -> Result<CapturedFile, String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let written = encoder.write_all(content).and_then(|()| encoder.finish());
    let gzip = written.map_err(|error| error.to_string())?;
    if gzip.len() > MAX_BYTES {
        let size = gzip.len();
        return Err(format!(
            "{size} bytes after compression, and at most {MAX_BYTES} are sent"
        ));
    }
    Ok(CapturedFile {
        name,
        size: content.len() as u64,
        gzip,
    })
}

#[cfg(test)]
mod tests;
