//! Repetition of a query.

use std::io::Write;
use std::time::Duration;

use clap::Args;

use crate::cli::CliError;
use crate::cli::screen::Screen;

/// Repetition flags.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct WatchArgs {
    /// Repeat every so many seconds, until interrupted [default: 5]
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "5",
        value_parser = clap::value_parser!(u64).range(1..=86_400),
        help_heading = "Output"
    )]
    pub watch: Option<u64>,
}

impl WatchArgs {
    /// Runs a query once, or repeats it on a cleared screen. The first failure ends it, a later one
    /// is printed, so that a restart of the server does not end it.
    pub(super) fn repeat(
        self,
        screen: &mut Screen<'_>,
        query: impl Fn(&mut Screen<'_>) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let Some(seconds) = self.watch else {
            return query(screen);
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        screen.clear()?;
        query(screen)?;
        loop {
            screen.flush()?;
            runtime.block_on(tokio::time::sleep(Duration::from_secs(seconds)));
            screen.clear()?;
            match query(screen) {
                Err(CliError::Output(error)) => return Err(error.into()),
                Err(error) => writeln!(screen, "{error}")?,
                Ok(()) => {}
            }
        }
    }
}
