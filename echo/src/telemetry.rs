//! Log output on standard error, as text or as JSON lines.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

pub mod export;

/// Error from setting up the log output.
#[derive(Debug, thiserror::Error)]
#[error("invalid --log {filter:?}, expected a filter such as info or echo_store=debug: {reason}")]
pub struct LogError {
    filter: String,
    reason: String,
}

/// Logs to standard error as text lines from now on.
pub fn log_text(filter: &str) -> Result<(), LogError> {
    let lines = tracing_subscriber::fmt()
        .with_env_filter(parse(filter)?)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .try_init();
    lines.map_err(|error| log_error(filter, error.to_string()))
}

/// Logs to standard error as JSON lines from now on.
pub fn log_json(filter: &str) -> Result<(), LogError> {
    let lines = tracing_subscriber::fmt()
        .with_env_filter(parse(filter)?)
        .with_writer(std::io::stderr)
        .json()
        .flatten_event(true)
        .try_init();
    lines.map_err(|error| log_error(filter, error.to_string()))
}

fn parse(filter: &str) -> Result<EnvFilter, LogError> {
    // Client errors are returned to the client; rmcp would also log them as warnings.
    EnvFilter::try_new(format!("rmcp=error,{filter}"))
        .map_err(|error| log_error(filter, error.to_string()))
}

fn log_error(filter: &str, reason: String) -> LogError {
    let filter = filter.to_owned();
    LogError { filter, reason }
}

#[cfg(test)]
mod tests {
    use super::log_text;

    #[test]
    fn an_invalid_filter_is_named_in_the_error() {
        let error = log_text("fleet_echo=loud").unwrap_err();
        assert!(error.to_string().contains("fleet_echo=loud"), "{error}");
    }
}
