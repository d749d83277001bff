//! Summary of a recording, as text and as JSON.

use std::fmt;

use serde_json::{Value, json};

use fleet_agent_sources::recorder::Counts;

/// Summary of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// The file.
    pub file: String,
    /// Number of ranks.
    pub processes: usize,
    /// Number of processes that call the GPU's libraries, but not NCCL.
    pub unranked: usize,
    /// Counts of their events.
    pub counts: Counts,
    /// Size of the file.
    pub bytes: u64,
    /// Duration of the recording, nanoseconds.
    pub elapsed_ns: u64,
}

impl Summary {
    /// Returns the summary as JSON, with the error that ended the recording.
    pub fn to_json(&self, error: Option<&str>) -> Value {
        json!({
            "file": self.file,
            "processes": self.processes,
            "unranked_processes": self.unranked,
            "events": self.events(),
            "calls": self.counts.calls,
            "windows": self.counts.windows,
            "lost": self.counts.lost,
            "unknown_comm_ops": self.counts.unknown_comm_ops,
            "unplaced_processes": self.counts.unplaced,
            "left_out_processes": self.counts.left_out,
            "bytes": self.bytes,
            "elapsed_s": self.seconds(),
            "error": error,
        })
    }

    /// Returns whether no process was recorded.
    pub fn is_empty(&self) -> bool {
        self.processes == 0 && self.unranked == 0
    }

    fn events(&self) -> u64 {
        self.counts.calls + self.counts.windows
    }

    fn seconds(&self) -> f64 {
        std::time::Duration::from_nanos(self.elapsed_ns).as_secs_f64()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts {
            lost,
            unknown_comm_ops,
            unplaced,
            left_out,
            ..
        } = self.counts;
        write!(
            f,
            "recorded {} events of {} ranks in {:.1} s, {lost} lost: {}, {} bytes",
            self.events(),
            self.processes,
            self.seconds(),
            self.file,
            self.bytes
        )?;
        if self.unranked > 0 {
            write!(f, "; {} processes without a rank", self.unranked)?;
        }
        if unknown_comm_ops > 0 {
            write!(
                f,
                "; {unknown_comm_ops} operations on communicators created before the recording, which a replay identifies first"
            )?;
        }
        if unplaced > 0 {
            write!(
                f,
                "; {unplaced} processes left out: their ranks are unknown"
            )?;
        }
        if left_out > 0 {
            write!(
                f,
                "; {left_out} processes left out: too many for one recording, or a reused process id"
            )?;
        }
        Ok(())
    }
}
