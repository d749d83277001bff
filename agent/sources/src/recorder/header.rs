//! The first line of a recording. Pure.

use fleet_agent_core::event::Process;
use serde_json::json;

/// Room for the first line, which is written anew whenever a process joins. It holds as many as are recorded, and the words.
pub(super) const HEADER_BYTES: usize = 20 << 10;
/// Bytes of a word, so that the words leave the processes their room.
const MAX_TEXT: usize = 512;

/// What the first line says besides the processes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Header {
    /// What the recording is called.
    pub name: String,
    /// The host.
    pub hardware: String,
    /// Its kernel, and the libraries.
    pub software: String,
    /// How it was recorded.
    pub source: String,
}

impl Header {
    /// The first line with its end, as long for few processes as for many.
    pub fn line(&self, processes: &[Process]) -> String {
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
            "name": clean_text(&self.name),
            "clock": "CLOCK_MONOTONIC",
            "source": clean_text(&self.source),
            "processes": processes,
            "hardware": clean_text(&self.hardware),
            "software": clean_text(&self.software),
        });
        format!("{:<width$}\n", line.to_string(), width = HEADER_BYTES - 1)
    }
}

/// The beginning of a text, without what would take several bytes in the line.
fn clean_text(text: &str) -> String {
    let plain = text
        .chars()
        .filter(|c| matches!(c, ' '..='~') && !matches!(c, '"' | '\\'));
    plain.take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::MAX_PROCESSES;

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
}
