//! Groups of commands in the help.

use clap::CommandFactory;
use fleet_completion::help::grouped;

use crate::config::Cli;

/// Commands by purpose, as listed in the help.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Commands of a GPU host",
        &["run", "check", "straggler-check"],
    ),
    ("Without a server", &["explain", "trace", "stacks"]),
    (
        "Recordings and other data",
        &["record", "replay", "export", "import", "simulate"],
    ),
    ("Setup commands", &["install-profiler", "completion"]),
];

/// Returns the command line, with its commands grouped in the help.
pub fn command_line() -> clap::Command {
    grouped(Cli::command(), &GROUPS)
}

#[cfg(test)]
mod tests {
    use fleet_completion::testing::{check_examples, check_groups};

    use super::*;

    #[test]
    fn the_help_lists_every_command_once() {
        check_groups(&command_line(), &GROUPS);
    }

    #[test]
    fn every_command_has_examples_that_can_be_pasted() {
        check_examples(&command_line());
    }
}
