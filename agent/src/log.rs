//! Log of a command, on standard error beside its progress bar.

use std::io::{self, IsTerminal, Write, stderr};

use indicatif::ProgressBar;
use tracing_subscriber::EnvFilter;

/// Libraries that log each of their steps at the level `info`: those that sample stacks.
const CHATTY: &str = "py_spy=warn,remoteprocess=warn";

/// Starts logging, with a progress bar when standard error is a terminal. `RUST_LOG` replaces `level`.
pub fn init_logging(bar: fn() -> ProgressBar, level: &str) -> ProgressBar {
    let is_terminal = stderr().is_terminal();
    let progress = if is_terminal {
        bar()
    } else {
        ProgressBar::hidden()
    };
    let bar_handle = progress.clone();
    tracing_subscriber::fmt()
        .with_env_filter(
            EnvFilter::try_from_default_env()
                .unwrap_or_else(|_| format!("{level},{CHATTY}").into()),
        )
        .with_writer(move || LogWriter(bar_handle.clone()))
        .with_ansi(is_terminal)
        .with_target(false)
        .init();
    progress
}

/// Writes to standard error, with the progress bar suspended for each write.
struct LogWriter(ProgressBar);

impl Write for LogWriter {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| stderr().write(buf))
    }

    fn flush(&mut self) -> io::Result<()> {
        stderr().flush()
    }
}
