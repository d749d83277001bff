//! Exit codes of the commands, after `sysexits.h`.

use std::io::{self, Write, stderr, stdout};
use std::process::ExitCode;

use fleet_agent::explain::ExplainError;
use fleet_agent::import::ImportFailure;
use fleet_agent::record::RecordError;
use fleet_agent::replay::ReplayError;
use fleet_agent::run::RunError;
use fleet_agent::simulate::SimulateError;
use fleet_agent::socket::SocketError;
use fleet_agent::stacks::StacksError;
use fleet_agent_export::spool::SpoolError;
use fleet_agent_health::check::Finding;
use fleet_agent_sources::watch::WatchError;
use fleet_agent_stacks::error::StackError;

pub(crate) const USAGE: u8 = 64;
pub(crate) const BAD_INPUT: u8 = 65;
pub(crate) const NO_INPUT: u8 = 66;
pub(crate) const UNAVAILABLE: u8 = 69;
pub(crate) const INTERNAL_ERROR: u8 = 70;
pub(crate) const CANNOT_CREATE: u8 = 73;
pub(crate) const TEMPORARY_FAILURE: u8 = 75;
pub(crate) const NO_PERMISSION: u8 = 77;

pub(crate) fn run_code(error: &RunError) -> u8 {
    match error {
        RunError::Watch(error) => watch_code(error),
        RunError::Spool(SpoolError::InUse(_)) | RunError::Socket(SocketError::InUse { .. }) => {
            TEMPORARY_FAILURE
        }
        RunError::Spool(_)
        | RunError::Socket(_)
        | RunError::Sentinel(_)
        | RunError::Metrics(_)
        | RunError::MetricsEndpoint(_) => USAGE,
        RunError::TaskFailed(_) => INTERNAL_ERROR,
    }
}

pub(crate) fn watch_code(error: &WatchError) -> u8 {
    match error {
        WatchError::Load(_) => NO_PERMISSION,
        WatchError::InUse { .. } => TEMPORARY_FAILURE,
        WatchError::PinFolder { .. } | WatchError::Socket { .. } => USAGE,
    }
}

pub(crate) fn record_code(error: &RecordError) -> u8 {
    match error {
        RecordError::Watch(error) => watch_code(error),
        RecordError::Exists { .. } | RecordError::File { .. } => CANNOT_CREATE,
        RecordError::NoRanks { .. } => UNAVAILABLE,
        RecordError::TaskFailed(_) => INTERNAL_ERROR,
    }
}

pub(crate) fn explain_code(error: &ExplainError) -> u8 {
    match error {
        ExplainError::Watch(error) => watch_code(error),
        ExplainError::Source(_) => BAD_INPUT,
        ExplainError::NoProcesses { .. } => UNAVAILABLE,
        ExplainError::Output(_) | ExplainError::TaskFailed(_) => INTERNAL_ERROR,
    }
}

pub(crate) const fn stack_code(error: &StacksError) -> u8 {
    let StacksError::Stack(error) = error else {
        return INTERNAL_ERROR;
    };
    match error {
        StackError::NoProcess { .. } | StackError::NoThread { .. } => NO_INPUT,
        StackError::NotPermitted { .. } => NO_PERMISSION,
        StackError::Exited { .. } | StackError::Unreadable { .. } | StackError::Nothing { .. } => {
            UNAVAILABLE
        }
    }
}

pub(crate) fn replay_code(error: &ReplayError) -> u8 {
    match error {
        ReplayError::Source(_) => BAD_INPUT,
        ReplayError::NoSuchRank { .. } => USAGE,
        ReplayError::Unreachable { .. } | ReplayError::Undelivered { .. } => UNAVAILABLE,
        ReplayError::TaskFailed(_) => INTERNAL_ERROR,
    }
}

pub(crate) const fn import_code(error: &ImportFailure) -> u8 {
    match error {
        ImportFailure::Unreadable { .. } => NO_INPUT,
        ImportFailure::Content(_) | ImportFailure::Refused(_) | ImportFailure::Rejected { .. } => {
            BAD_INPUT
        }
        ImportFailure::Undelivered { .. } => UNAVAILABLE,
        ImportFailure::TaskFailed(_) => INTERNAL_ERROR,
    }
}

pub(crate) fn simulate_code(error: &SimulateError) -> u8 {
    match error {
        SimulateError::Lost { .. } => UNAVAILABLE,
        SimulateError::TaskFailed(_) => INTERNAL_ERROR,
    }
}

pub(crate) fn no_runtime(error: &io::Error) -> ExitCode {
    let message = format!("cannot start the async runtime: {error}");
    fail(INTERNAL_ERROR, &message)
}

/// Prints the finding of a plugin of node-problem-detector, for which 2 is unknown.
pub(crate) fn plugin(found: io::Result<Finding>) -> ExitCode {
    match found {
        Ok(found) if writeln!(stdout(), "{}", found.message).is_ok() => {
            ExitCode::from(found.exit_code())
        }
        _ => ExitCode::from(2),
    }
}

/// Prints why a command failed.
pub(crate) fn fail(code: u8, message: &str) -> ExitCode {
    // Standard error may be closed, which cannot be reported anywhere.
    let _closed = writeln!(stderr(), "fleet-agent: {message}");
    ExitCode::from(code)
}
