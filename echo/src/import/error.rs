//! Errors of an import.

use std::io;

use crate::app::AppError;
use crate::cli::CliError;
use crate::demo::DemoError;

/// Error of an import.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The files cannot be read, or do not allow a verdict.
    #[error("{0}")]
    Input(String),
    /// The files do not allow a verdict, as the printed report says.
    #[error("no verdict")]
    NoVerdict,
    /// The instance did not accept the events.
    #[error("the events were not stored: {0}")]
    NotStored(String),
    /// Messages could not be forwarded.
    #[error(transparent)]
    Session(#[from] CliError),
    /// The instance, the agent program or the output failed.
    #[error(transparent)]
    Run(#[from] DemoError),
}

impl From<io::Error> for ImportError {
    fn from(error: io::Error) -> Self {
        Self::Run(error.into())
    }
}

impl From<AppError> for ImportError {
    fn from(error: AppError) -> Self {
        Self::Run(error.into())
    }
}
