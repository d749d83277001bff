//! Header line of a recording. Pure.

use fleet_agent_core::event::Process;
use serde_json::json;

/// Size of the header line, bytes. It is rewritten whenever a process joins, and holds the maximum
/// number of processes and the texts.
pub(super) const HEADER_BYTES: usize = 20 << 10;
/// Maximum bytes of a text, so that the processes always fit.
const MAX_TEXT: usize = 512;

/// Header fields besides the processes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Header {
    /// Name of the recording.
    pub name: String,
    /// Hardware of the host.
    pub hardware: String,
    /// Kernel and libraries.
    pub software: String,
    /// Recording method.
    pub source: String,
}

impl Header {
    /// Returns the header line of ranks, and of processes without a rank by their ids, with its
    /// newline, padded to a fixed length.
    pub fn line(&self, processes: &[Process], unranked: &[u32]) -> String {
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
            "unranked": unranked,
            "hardware": clean_text(&self.hardware),
            "software": clean_text(&self.software),
        });
        format!("{:<width$}\n", line.to_string(), width = HEADER_BYTES - 1)
    }
}

/// Returns the beginning of a text, without characters that need escaping.
fn clean_text(text: &str) -> String {
    let plain = text
        .chars()
        .filter(|c| matches!(c, ' '..='~') && !matches!(c, '"' | '\\'));
    plain.take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::{MAX_PROCESSES, MAX_UNRANKED};

    #[test]
    fn the_header_line_has_a_fixed_length() {
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
            let line = header.line(&vec![process; processes], &[u32::MAX; MAX_UNRANKED]);
            assert_eq!(line.len(), HEADER_BYTES);
        }
    }
}
