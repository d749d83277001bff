//! Errors that end the program, and its exit codes.

use std::io;

use crate::app::AppError;
use crate::cli::actions::ActionsCommandError;
use crate::cli::lake::LakeCommandError;
use crate::cli::{CliError, store_exit_code};
use crate::demo::DemoError;
use crate::import::ImportError;
use crate::telemetry::LogError;
use crate::telemetry::export::ExportError;

/// Error that ends the program.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The log cannot be set up.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Traces cannot be exported.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// The runtime cannot be started.
    #[error("cannot start the runtime")]
    Runtime(#[source] io::Error),
    /// The instance failed.
    #[error(transparent)]
    App(#[from] AppError),
    /// The demo failed.
    #[error(transparent)]
    Demo(#[from] DemoError),
    /// The import failed.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// A command failed.
    #[error(transparent)]
    Cli(#[from] CliError),
    /// A command for a policy of actions failed.
    #[error(transparent)]
    Actions(#[from] ActionsCommandError),
    /// A command for a lake failed.
    #[error(transparent)]
    Lake(#[from] LakeCommandError),
    /// The output cannot be written.
    #[error("cannot write to standard output")]
    Print(#[source] io::Error),
}

/// Exit code of an invalid command line; all as in `sysexits.h`.
pub const USAGE: u8 = 64;
const DATA: u8 = 65;
const UNAVAILABLE: u8 = 69;
const DEFECT: u8 = 70;
const INPUT_OUTPUT: u8 = 74;

impl Failure {
    /// Returns whether the reader of the output closed it.
    pub fn is_closed_pipe(&self) -> bool {
        match self {
            Self::Actions(ActionsCommandError::Output(error))
            | Self::Cli(CliError::Output(error))
            | Self::Lake(LakeCommandError::Output(error))
            | Self::Print(error) => error.kind() == io::ErrorKind::BrokenPipe,
            _ => false,
        }
    }

    /// Returns whether the output of the command has the reason already.
    pub const fn is_printed(&self) -> bool {
        matches!(self, Self::Import(ImportError::NoVerdict))
    }

    /// Returns the exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Export(_) | Self::Log(_) => USAGE,
            Self::Print(_) | Self::Import(ImportError::NotStored(_)) => INPUT_OUTPUT,
            Self::Actions(error) => error.exit_code(),
            Self::Lake(error) => error.exit_code(),
            Self::Cli(error) | Self::Import(ImportError::Session(error)) => error.exit_code(),
            Self::App(error) => app_exit_code(error),
            Self::Import(ImportError::Input(_) | ImportError::NoVerdict) => DATA,
            Self::Demo(error) | Self::Import(ImportError::Run(error)) => demo_exit_code(error),
            Self::Runtime(_) => DEFECT,
        }
    }
}

const fn demo_exit_code(error: &DemoError) -> u8 {
    match error {
        DemoError::NoAgent(_) => USAGE,
        DemoError::Io(_) => INPUT_OUTPUT,
        DemoError::App(error) => app_exit_code(error),
        DemoError::Recording(_) => DATA,
        DemoError::Agent { .. } | DemoError::Query(_) => DEFECT,
    }
}

const fn app_exit_code(error: &AppError) -> u8 {
    match error {
        AppError::Config(_) | AppError::File { .. } | AppError::Access(_) | AppError::Tls(_) => {
            USAGE
        }
        AppError::Rates(_) | AppError::Actions(_) => DATA,
        AppError::Bind { .. } => UNAVAILABLE,
        AppError::Store(error) => store_exit_code(error),
        _ => DEFECT,
    }
}
