//! Interface of event sources.

use fleet_agent_core::event::{Event, Process};
use thiserror::Error;

/// Stream of events in order of time.
pub trait EventSource: Send {
    /// Returns the known processes with their ranks in the job.
    fn processes(&self) -> &[Process];

    /// Returns the next event; `None` at the end.
    fn next_event(&mut self) -> Result<Option<Event>, SourceError>;
}

/// Error that ends a source prematurely.
#[derive(Debug, Error)]
pub enum SourceError {
    /// File cannot be opened.
    #[error("{path}: cannot be opened ({source}); check the path and its permissions")]
    Open {
        /// File.
        path: String,
        /// Error of the system.
        source: std::io::Error,
    },
    /// File is not a recording.
    #[error(
        "{path}: line {line}: not a recording ({reason}); give a .jsonl.gz whose first line is a recording header"
    )]
    Foreign {
        /// File.
        path: String,
        /// Line number, from 1.
        line: u64,
        /// Reason.
        reason: String,
    },
    /// File is truncated.
    #[error(
        "{path}: recording ends early at line {line} ({reason}); the lines before it were used, copy the file again for the rest"
    )]
    Truncated {
        /// File.
        path: String,
        /// Line number, from 1.
        line: u64,
        /// Reason.
        reason: String,
    },
    /// Line cannot be parsed.
    #[error(
        "{path}: line {line} is damaged ({reason}); the lines before it were used, copy or record the file again"
    )]
    Damaged {
        /// File.
        path: String,
        /// Line number, from 1.
        line: u64,
        /// Reason.
        reason: String,
    },
}
