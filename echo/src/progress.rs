//! Progress of a command that may take minutes.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

/// Starts a spinner with the elapsed time on standard error, if that is a terminal. It disappears
/// when it is dropped.
pub(crate) fn spinner(title: String) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_finish(ProgressFinish::AndClear);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}, {elapsed}") {
        bar.set_style(style);
    }
    bar.set_message(title);
    bar.tick();
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
