//! The first line of a recording. Pure.

use serde_json::json;

use crate::event::Process;
use crate::gpu::Gpu;

/// Room for the first line, which is written anew whenever a process joins. It holds as many as are recorded, and the words.
pub(super) const HEADER_BYTES: usize = 20 << 10;
/// Bytes of a word, so that the words leave the processes their room.
const MAX_WORD: usize = 512;

/// What the first line says besides the processes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Header {
    /// What the recording is called.
    pub(super) name: String,
    /// The host.
    pub(super) hardware: String,
    /// Its kernel, and the libraries.
    pub(super) software: String,
    /// How it was recorded.
    pub(super) source: String,
}

impl Header {
    /// The first line with its end, as long for few processes as for many.
    pub(super) fn line(&self, processes: &[Process]) -> String {
        let processes: Vec<_> = processes
            .iter()
            .map(|process| {
                let Process {
                    pid,
                    rank,
                    world_size,
                } = *process;
                json!({"pid": pid, "rank": rank, "world_size": world_size})
            })
            .collect();
        let line = json!({
            "kind": "header",
            "version": 1,
            "name": word(&self.name),
            "clock": "CLOCK_MONOTONIC",
            "source": word(&self.source),
            "processes": processes,
            "hardware": word(&self.hardware),
            "software": word(&self.software),
        });
        format!("{:<width$}\n", line.to_string(), width = HEADER_BYTES - 1)
    }
}

/// The beginning of a text, without what would take several bytes in the line.
fn word(text: &str) -> String {
    let plain = text
        .chars()
        .filter(|c| matches!(c, ' '..='~') && !matches!(c, '"' | '\\'));
    plain.take(MAX_WORD).collect()
}

/// `8x NVIDIA H100 80GB HBM3, one host, 192 cores`.
pub(super) fn hardware(gpus: &[Gpu], cores: usize) -> String {
    let host = format!("one host, {cores} cores");
    let Some(first) = gpus.first() else {
        return host;
    };
    match &first.model {
        Some(model) if gpus.iter().all(|gpu| gpu.model == first.model) => {
            format!("{}x {model}, {host}", gpus.len())
        }
        _ => format!("{} GPUs of several models, {host}", gpus.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::recorder::MAX_PROCESSES;

    fn gpu(index: u32, model: &str) -> Gpu {
        Gpu {
            index,
            uuid: None,
            model: Some(model.to_owned()),
        }
    }

    #[test]
    fn the_first_line_is_always_as_long() {
        let header = Header {
            name: "\"\\\u{1f980}".repeat(400),
            hardware: "h".repeat(9999),
            software: "s".repeat(9999),
            source: "s".repeat(9999),
        };
        let process = Process {
            pid: u32::MAX,
            rank: (1 << 20) - 1,
            world_size: 1 << 20,
        };
        for processes in [0, 1, MAX_PROCESSES] {
            let line = header.line(&vec![process; processes]);
            assert_eq!(line.len(), HEADER_BYTES);
        }
    }

    #[test]
    fn the_hardware_is_told_as_in_recordings_by_hand() {
        let alike = [gpu(0, "NVIDIA H200"), gpu(1, "NVIDIA H200")];
        assert_eq!(hardware(&alike, 64), "2x NVIDIA H200, one host, 64 cores");
        let mixed = [gpu(0, "NVIDIA H200"), gpu(1, "NVIDIA L4")];
        assert_eq!(
            hardware(&mixed, 64),
            "2 GPUs of several models, one host, 64 cores"
        );
        assert_eq!(hardware(&[], 2), "one host, 2 cores");
    }
}
