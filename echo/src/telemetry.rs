//! Where log lines go: standard error, as text for people or as JSON for collectors.

use tracing_subscriber::EnvFilter;

/// Form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One line of text.
    Text,
    /// One JSON object per line.
    Json,
}

/// What is logged, and how.
#[derive(Debug, Clone, clap::Args)]
pub struct LogArgs {
    /// Least severe level to log, or a filter such as `fleet_echo::store=debug,info`
    #[arg(long, value_name = "FILTER", default_value = "info", env = "FLEET_ECHO_LOG", global = true)]
    pub log: String,

    /// Form of the log lines on standard error
    #[arg(long, value_enum, default_value = "text", env = "FLEET_ECHO_LOG_FORMAT", global = true)]
    pub log_format: LogFormat,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("--log {filter:?} is not a filter: {reason}")]
pub struct LogError {
    filter: String,
    reason: String,
}

/// Sends log lines to standard error from here on.
pub fn start(args: &LogArgs) -> Result<(), LogError> {
    let wrong = |reason: String| LogError { filter: args.log.clone(), reason };
    let filter = EnvFilter::try_new(&args.log).map_err(|error| wrong(error.to_string()))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match args.log_format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| wrong(error.to_string()))
}
