//! Errors of commands, and their exit codes.

use std::io;
use std::time::Duration;

use echo_core::error::Code;
use echo_store::StoreError;

use crate::config::contexts::ContextError;

/// Error of a command.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The server address is invalid.
    #[error("--server {server}: {reason}")]
    InvalidServer {
        /// Server address.
        server: String,
        /// Problem with the address.
        reason: &'static str,
    },
    /// The server cannot be reached.
    #[error("cannot reach {server} ({reason}): {advice}")]
    Unreachable {
        /// Server address.
        server: String,
        /// Cause.
        reason: String,
        /// What to do.
        advice: String,
    },
    /// The server uses another protocol, or a certificate that is not trusted.
    #[error("cannot query {server}: {problem}")]
    Unusable {
        /// Server address.
        server: String,
        /// Problem, and what to do.
        problem: String,
    },
    /// The server did not respond in time.
    #[error(
        "no response from {server} within {timeout:?}: raise --timeout, or query a shorter window"
    )]
    Timeout {
        /// Server address.
        server: String,
        /// Timeout.
        timeout: Duration,
    },
    /// The response is not one of a fleet-echo server.
    #[error(
        "{server} is not the API of a fleet-echo server (unexpected response, status {status}): give its address with --server, by default port 8081"
    )]
    NotEcho {
        /// Server address.
        server: String,
        /// HTTP status.
        status: u16,
    },
    /// The server returned an error.
    #[error("{message}")]
    Api {
        /// Error code of the response body.
        code: String,
        /// Error message, with its hint.
        message: String,
        /// Response body.
        body: Vec<u8>,
    },
    /// The flags are invalid or contradict each other.
    #[error("{0}")]
    Usage(String),
    /// The rates file is invalid.
    #[error("invalid rates file {file}:{}", indented(.mistakes))]
    Rates {
        /// The file.
        file: String,
        /// Problems, each with its location.
        mistakes: Vec<String>,
    },
    /// The database file cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file of contexts cannot be used.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The token cannot be generated.
    #[error("cannot generate a token")]
    Token(#[source] io::Error),
    /// The output cannot be written.
    #[error("cannot write the output")]
    Output(#[from] io::Error),
}

impl CliError {
    /// Returns the exit code, as in `sysexits.h`: 64 invalid request, 65 invalid input file, 69
    /// server unavailable or timeout, 70 internal error, 74 output error.
    pub fn exit_code(&self) -> u8 {
        const USAGE: u8 = 64;
        const DATA: u8 = 65;
        const UNAVAILABLE: u8 = 69;
        const DEFECT: u8 = 70;
        const OUTPUT: u8 = 74;
        match self {
            Self::InvalidServer { .. } | Self::Usage(_) | Self::Context(_) => USAGE,
            Self::Rates { .. } => DATA,
            Self::Store(error) => store_exit_code(error),
            Self::Unreachable { .. }
            | Self::Unusable { .. }
            | Self::Timeout { .. }
            | Self::NotEcho { .. } => UNAVAILABLE,
            Self::Output(_) | Self::Token(_) => OUTPUT,
            Self::Api { code, .. } => {
                match Code::ALL.into_iter().find(|known| known.name() == code) {
                    Some(Code::Internal) | None => DEFECT,
                    Some(Code::Busy | Code::Timeout | Code::TooMany) => UNAVAILABLE,
                    Some(_) => USAGE,
                }
            }
        }
    }
}

/// Returns the exit code of a store error, as in `sysexits.h`: 64 unsuitable path, 65 invalid or
/// incompatible database, 74 I/O error, 75 locked by another process.
pub const fn store_exit_code(error: &StoreError) -> u8 {
    match error {
        StoreError::Unsuitable { .. } => 64,
        StoreError::Newer { .. }
        | StoreError::Changed { .. }
        | StoreError::Unreadable { .. }
        | StoreError::DamagedLog { .. }
        | StoreError::Lost { .. } => 65,
        StoreError::Fatal { .. } | StoreError::Unwritable { .. } => 74,
        StoreError::Locked { .. } => 75,
        _ => 70,
    }
}

/// Puts each sentence on its own indented line.
fn indented(sentences: &[String]) -> String {
    let lines = sentences.iter().flat_map(|one| ["\n  ", one]);
    lines.collect()
}
