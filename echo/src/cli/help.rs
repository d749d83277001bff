//! Groups of commands in the help.

use clap::Command;
use clap::builder::Styles;

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

/// Groups the commands in the help of a command line.
#[must_use]
pub fn grouped(command: Command) -> Command {
    let header = *Styles::styled().get_header();
    let literal = *Styles::styled().get_literal();
    let mut groups = String::new();
    for (heading, names) in GROUPS {
        groups.extend([format!("{header}{heading}:{header:#}\n")]);
        let found = names
            .iter()
            .filter_map(|name| command.find_subcommand(name));
        for one in found {
            let (name, about) = (one.get_name(), one.get_about());
            let about = about.map(ToString::to_string).unwrap_or_default();
            groups.extend([format!("  {literal}{name:<10}{literal:#}  {about}\n")]);
        }
        groups.push('\n');
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{header}Options:{header:#}\n{{options}}{{after-help}}"
    ))
}
