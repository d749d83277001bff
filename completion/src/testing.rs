//! Checks of a command line for the tests of both programs.
#![expect(clippy::expect_used, reason = "a test fails here")]

use std::process;

use clap::Command;

use crate::help::Groups;

/// Widths of terminals at which examples are printed unbroken.
const WIDTHS: [usize; 2] = [80, 100];

/// Checks that the groups list every visible command once.
///
/// # Panics
///
/// If a command is missing, or listed twice.
pub fn check_groups(program: &Command, groups: &Groups) {
    let mut listed: Vec<&str> = groups
        .iter()
        .flat_map(|(_, names)| *names)
        .copied()
        .collect();
    let mut visible: Vec<&str> = visible(program).map(Command::get_name).collect();
    listed.sort_unstable();
    visible.sort_unstable();
    assert_eq!(listed, visible);
}

/// Checks that each command has an example in its help or in that of its subcommands, that examples
/// are printed unbroken, and that the program accepts them.
///
/// # Panics
///
/// If one of this does not hold.
pub fn check_examples(program: &Command) {
    let _of_program = check_help(program, program);
    for one in visible(program) {
        let name = one.get_name();
        let calls = check_help(one, program);
        let has_example = calls
            .iter()
            .any(|call| call.iter().any(|word| word == name));
        assert!(has_example, "no example of {name}: {calls:?}");
    }
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    let is_shown = |one: &&Command| !one.is_hide_set() && one.get_name() != "help";
    command.get_subcommands().filter(is_shown)
}

/// Checks the help of a command and its subcommands. Returns the arguments of the examples.
fn check_help(command: &Command, program: &Command) -> Vec<Vec<String>> {
    let text = command
        .get_after_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let verbatim = text.lines().filter(|line| line.starts_with(' '));
    for line in verbatim {
        for width in WIDTHS {
            let help = command.clone().term_width(width).render_help().to_string();
            let is_shown = help.lines().any(|shown| shown == line);
            assert!(is_shown, "broken at {width} columns: {line}");
        }
    }
    let lines = text.replace("\\\n", " ");
    let mut calls: Vec<Vec<String>> = lines
        .lines()
        .filter(|line| line.starts_with(' ') && line.contains(program.get_name()))
        .flat_map(|line| calls(line, program.get_name()))
        .collect();
    for call in &calls {
        let words = [program.get_name().to_owned()]
            .into_iter()
            .chain(call.clone());
        let parsed = program.clone().try_get_matches_from(words);
        let error = parsed.err().map(|error| error.to_string());
        assert_eq!(error, None, "{call:?}");
    }
    if !std::ptr::eq(command, program) {
        calls.extend(visible(command).flat_map(|inner| check_help(inner, program)));
    }
    calls
}

/// Returns the arguments with which a shell would call the program for a line, in each call.
fn calls(line: &str, program: &str) -> Vec<Vec<String>> {
    // Files that the output would replace.
    let line = line.split(" > ").next().unwrap_or_default();
    let script = format!(
        "PATH=\n{program}() {{ printf '%s\\037' \"$@\" >&3; printf '\\036' >&3; }}\n\
         claude() {{ \"${{@:5}}\"; }}\n{{ {line}\n}} 3>&1 >/dev/null 2>&1"
    );
    let output = process::Command::new("bash").args(["-c", &script]).output();
    let output = output.expect("bash starts").stdout;
    let text = String::from_utf8(output).expect("arguments are UTF-8");
    let calls = text.split_terminator('\u{1e}');
    let calls: Vec<Vec<String>> = calls
        .map(|call| call.split_terminator('\u{1f}').map(str::to_owned).collect())
        .collect();
    assert!(!calls.is_empty(), "does not call {program}: {line}");
    calls
}
