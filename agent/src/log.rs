//! Log of a command, on standard error beside its progress bar.

use std::io::{self, IsTerminal, Write, stderr};

use fleet_agent_core::printable::printable;
use indicatif::ProgressBar;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::debug_fn;

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
        .fmt_fields(printable_fields())
        .with_writer(move || LogWriter(bar_handle.clone()))
        .with_ansi(is_terminal)
        .with_target(false)
        .init();
    progress
}

/// Maximum length of a message or field, characters.
const MAX_FIELD: usize = 4_096;

/// Format of messages and fields in which names of other users, such as paths, control no terminal.
fn printable_fields() -> impl for<'w> FormatFields<'w> + 'static {
    debug_fn(|writer, field, value| {
        let text = printable(&format!("{value:?}"), MAX_FIELD);
        match field.name() {
            "message" => write!(writer, "{text}"),
            name => write!(writer, "{name}={text}"),
        }
    })
    .delimited(" ")
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(buf)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn names_in_the_log_do_not_control_the_terminal() {
        let written = Written::default();
        let writer = written.clone();
        let log = tracing_subscriber::fmt()
            .fmt_fields(printable_fields())
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .finish();
        let hostile = "/tmp/\u{1b}[2J\r\u{7}\u{202e}libnccl.so.2";
        tracing::subscriber::with_default(log, || {
            tracing::info!(path = %hostile, name = hostile, "watching {hostile}");
        });
        let line = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let text = line.strip_suffix('\n').unwrap();
        let is_hostile = |letter: char| letter.is_control() || letter == '\u{202e}';
        assert!(!text.contains(is_hostile), "{text:?}");
        assert!(text.contains("watching /tmp/\\u{1b}[2J"), "{text:?}");
        assert!(
            text.contains(" path=/tmp/") && text.contains(" name="),
            "{text:?}"
        );
    }
}
