//! Help of a command line: its commands by purpose, and examples that can be pasted.

use clap::Command;
use clap::builder::Styles;

/// Commands by purpose, as listed in the help.
pub type Groups = [(&'static str, &'static [&'static str])];

/// Groups the commands in the help of a program.
#[must_use]
pub fn grouped(command: Command, groups: &Groups) -> Command {
    let header = *Styles::styled().get_header();
    let literal = *Styles::styled().get_literal();
    let names = groups.iter().flat_map(|(_, names)| *names);
    let width = names.map(|name| name.len()).max().unwrap_or(0);
    let mut listed = String::new();
    for (heading, names) in groups {
        listed.extend([format!("{header}{heading}:{header:#}\n")]);
        let found = names
            .iter()
            .filter_map(|name| command.find_subcommand(name));
        for one in found {
            let (name, about) = (one.get_name(), one.get_about());
            let about = about.map(ToString::to_string).unwrap_or_default();
            listed.extend([format!("  {literal}{name:<width$}{literal:#}  {about}\n")]);
        }
        listed.push('\n');
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{listed}{header}Options:{header:#}\n{{options}}{{after-help}}"
    ))
}
