//! Groups of commands in the help, and examples of commands that declare none.

mod examples;

use clap::Command;

use crate::cli::help::examples::EXAMPLES;

/// Commands by purpose, as listed in the help.
pub const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Query commands",
        &[
            "status", "top", "outliers", "explain", "host", "cost", "job", "history", "sql",
            "clusters", "bundle",
        ],
    ),
    ("Report commands", &["assert", "report", "rates", "actions"]),
    (
        "Server commands",
        &["serve", "demo", "import", "open", "mcp"],
    ),
    (
        "Setup commands",
        &["context", "token", "dev-cert", "completion"],
    ),
    ("Database commands", &["backup", "export", "repair", "lake"]),
];

/// Groups the commands in the help of a command line, and adds the examples.
#[must_use]
pub fn grouped(command: Command) -> Command {
    let with_examples = EXAMPLES.iter().fold(command, |command, (name, text)| {
        command.mut_subcommand(name, |one| one.after_help(*text))
    });
    fleet_completion::help::grouped(with_examples, &GROUPS)
}
