//! Repetition of a query.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;

use crate::cli::CliError;
use crate::cli::output::OutputArgs;
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
    /// is printed, so that a restart of the server does not end it. If a program reads the output, it
    /// is printed to standard error.
    pub(super) fn repeat(
        self,
        output: OutputArgs,
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
            // A timer is made within the runtime.
            runtime.block_on(async { tokio::time::sleep(Duration::from_secs(seconds)).await });
            screen.clear()?;
            match query(screen) {
                Err(CliError::Output(error)) => return Err(error.into()),
                Err(error) if output.is_json() || output.has_rows_only() => {
                    writeln!(io::stderr(), "fleet-echo: {error}")?;
                }
                Err(error) => writeln!(screen, "{error}")?,
                Ok(()) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::{Error, ErrorKind, Write};
    use std::time::Duration;

    use super::WatchArgs;
    use crate::cli::CliError;
    use crate::cli::output::{Format, OutputArgs};
    use crate::cli::screen::Screen;

    /// Output of a query that fails the second time.
    fn shown(format: Format) -> String {
        let (mut shown, round) = (Vec::new(), Cell::new(0));
        let query = |screen: &mut Screen<'_>| {
            round.set(round.get() + 1);
            match round.get() {
                2 => Err(CliError::Timeout {
                    server: "echo".to_owned(),
                    timeout: Duration::from_secs(1),
                }),
                4 => Err(CliError::Output(Error::from(ErrorKind::BrokenPipe))),
                round => Ok(writeln!(screen, "round {round}")?),
            }
        };
        let watch = WatchArgs { watch: Some(1) };
        let output = OutputArgs {
            output: format,
            ..OutputArgs::default()
        };
        let ended = watch.repeat(output, &mut Screen::plain(&mut shown), query);
        assert!(matches!(ended, Err(CliError::Output(_))), "{ended:?}");
        String::from_utf8(shown).unwrap()
    }

    #[test]
    fn a_query_is_repeated_until_its_output_is_closed() {
        let shown = shown(Format::Text);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[1].starts_with("no response from echo"), "{shown}");
        assert_eq!([lines[0], lines[2]], ["round 1", "round 3"]);
    }

    #[test]
    fn an_error_is_not_a_line_of_output_that_a_program_reads() {
        for format in [Format::Json, Format::Jsonl, Format::Csv] {
            assert_eq!(shown(format), "round 1\nround 3\n");
        }
    }
}
