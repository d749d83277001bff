//! Where events come from.

use fleet_agent_core::event::{Event, Process};
use thiserror::Error;

/// A stream of events in order of time.
pub trait EventSource: Send {
    /// The processes that it knows, with their place in the job.
    fn processes(&self) -> &[Process];

    /// The next event; none at the end.
    fn next_event(&mut self) -> Result<Option<Event>, SourceError>;
}

/// Why a source ended before its end.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The file cannot be opened.
    #[error("{path}: cannot be opened ({source}); check the path and its permissions")]
    Open {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is something else.
    #[error(
        "{path}: line {line}: not a recording ({reason}); give a .jsonl.gz whose first line is a recording header"
    )]
    Foreign {
        /// The file.
        path: String,
        /// Line, from 1.
        line: u64,
        /// What was found.
        reason: String,
    },
    /// The file stops in the middle.
    #[error(
        "{path}: recording ends early at line {line} ({reason}); what came before was used, copy the file again for the rest"
    )]
    Truncated {
        /// The file.
        path: String,
        /// Line, from 1.
        line: u64,
        /// How it stops.
        reason: String,
    },
    /// A line cannot be read.
    #[error(
        "{path}: line {line} is damaged ({reason}); what came before was used, copy or record the file again"
    )]
    Damaged {
        /// The file.
        path: String,
        /// Line, from 1.
        line: u64,
        /// What is wrong.
        reason: String,
    },
}
