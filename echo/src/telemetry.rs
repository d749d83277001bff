//! Where log lines go: standard error, as text for people or as JSON for collectors.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

pub mod export;

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("--log {filter:?} is not a filter such as info or echo_store=debug: {reason}")]
pub struct LogError {
    filter: String,
    reason: String,
}

/// Sends log lines to standard error from here on, a line of text each.
pub fn log_text(filter: &str) -> Result<(), LogError> {
    let lines = tracing_subscriber::fmt()
        .with_env_filter(parse(filter)?)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .try_init();
    lines.map_err(|error| wrong(filter, error.to_string()))
}

/// Sends log lines to standard error from here on, a JSON object each.
pub fn log_json(filter: &str) -> Result<(), LogError> {
    let lines = tracing_subscriber::fmt()
        .with_env_filter(parse(filter)?)
        .with_writer(std::io::stderr)
        .json()
        .flatten_event(true)
        .try_init();
    lines.map_err(|error| wrong(filter, error.to_string()))
}

fn parse(filter: &str) -> Result<EnvFilter, LogError> {
    // What a client did wrong is told to the client; the library would log it as a warning.
    EnvFilter::try_new(format!("rmcp=error,{filter}"))
        .map_err(|error| wrong(filter, error.to_string()))
}

fn wrong(filter: &str, reason: String) -> LogError {
    let filter = filter.to_owned();
    LogError { filter, reason }
}

#[cfg(test)]
mod tests {
    use super::log_text;

    #[test]
    fn a_filter_that_is_none_is_named() {
        let error = log_text("fleet_echo=loud").unwrap_err();
        assert!(error.to_string().contains("fleet_echo=loud"), "{error}");
    }
}
