//! Servers with names: which one a command queries.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::testbed::{ECHO, Echo, recording, replay_all};

/// Address at which no server listens.
const UNREACHABLE: &str = "http://127.0.0.1:9";

/// Runs commands with a file of contexts.
struct Shell(PathBuf);

impl Shell {
    /// A file with the contexts `lab`, which is the current one, and `unreachable`.
    fn with_two(folder: &Path, lab: &str) -> Self {
        let shell = Self(folder.join("contexts/config.toml"));
        shell.run(None, &["context", "set", "lab", "--server", lab]);
        shell.run(
            None,
            &["context", "set", "unreachable", "--server", UNREACHABLE],
        );
        shell.run(None, &["context", "use", "lab"]);
        shell
    }

    /// A command, with `FLEET_ECHO_SERVER` set or not.
    fn command(&self, server: Option<&str>, arguments: &[&str]) -> Command {
        let mut command = Command::new(ECHO);
        command.args(arguments).env("FLEET_ECHO_CONFIG", &self.0);
        match server {
            Some(server) => command.env("FLEET_ECHO_SERVER", server),
            None => command.env_remove("FLEET_ECHO_SERVER"),
        };
        command
    }

    /// Exit code and output of a command.
    fn run(&self, server: Option<&str>, arguments: &[&str]) -> (i32, String) {
        let output = self.command(server, arguments).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.code().unwrap(),
            String::from_utf8(text).unwrap(),
        )
    }
}

#[test]
fn commands_query_the_server_of_the_current_context_unless_another_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    let server = format!("http://{}", echo.http);
    let shell = Shell::with_two(folder.path(), &server);
    let stragglers = [
        "assert",
        "outliers",
        "--max",
        "0",
        "--cluster",
        "a",
        "--context",
        "none",
    ];
    for (variable, arguments, expected) in [
        (None, &["clusters"][..], 0),
        (None, &["clusters", "--server", UNREACHABLE], 69),
        (None, &["clusters", "--context", "unreachable"], 69),
        (None, &["clusters", "--context", "none"], 64),
        (None, &stragglers, 2),
        (Some(UNREACHABLE), &["clusters"], 69),
        (Some(UNREACHABLE), &["clusters", "--context", "lab"], 0),
        (
            None,
            &["clusters", "--context", "lab", "--server", UNREACHABLE],
            64,
        ),
    ] {
        let (code, text) = shell.run(variable, arguments);
        assert_eq!(code, expected, "{variable:?} {arguments:?}: {text}");
    }
    // The server does not know the cluster of the context, and says so.
    shell.run(None, &["context", "set", "lab", "--cluster", "a"]);
    let gate = ["assert", "outliers", "--max", "0"];
    for (arguments, expected) in [(&["outliers"][..], 64), (&gate, 4)] {
        let (code, text) = shell.run(None, arguments);
        assert_eq!(code, expected, "{text}");
        assert!(text.contains("\"a\""), "{text}");
    }
    assert_eq!(echo.terminate(), 0);
}

#[test]
fn contexts_are_listed_with_their_values_and_a_mark_at_the_current_one() {
    let folder = tempfile::tempdir().unwrap();
    let shell = Shell::with_two(folder.path(), "http://127.0.0.1:1");
    let listed = |arguments: &[&str]| shell.run(None, &[&["context", "list"], arguments].concat());
    let (code, text) = listed(&[]);
    assert_eq!(
        (code, text.as_str()),
        (
            0,
            "CURRENT  NAME         SERVER\n\
             *        lab          http://127.0.0.1:1\n         \
             unreachable  http://127.0.0.1:9\n"
        )
    );
    let (_, text) = listed(&["-o", "csv", "--no-headers"]);
    assert!(text.starts_with("true,lab,http://127.0.0.1:1,"), "{text}");
    let (_, text) = listed(&["-o", "json"]);
    assert_eq!(text, listed(&["--json"]).1);
    let rows: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&rows[0]["name"], &rows[0]["current"]),
        (&json!("lab"), &json!(true))
    );
    let (_, lines) = listed(&["-o", "jsonl"]);
    assert_eq!(lines.lines().count(), 2, "{lines}");
    let (_, text) = shell.run(None, &["context", "unset"]);
    assert!(!text.contains('*'), "{text}");
}

#[test]
fn an_unknown_context_is_answered_in_one_sentence_with_those_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let shell = Shell::with_two(folder.path(), "http://127.0.0.1:1");
    let (code, text) = shell.run(None, &["context", "use", "prod"]);
    assert_eq!(code, 64);
    let file = shell.0.display();
    let expected =
        format!("fleet-echo: {file} has no context \"prod\": the contexts are: lab, unreachable\n");
    assert_eq!(text, expected);
}

#[test]
fn the_next_command_names_the_context_that_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    let server = format!("http://{}", echo.http);
    let shell = Shell::with_two(folder.path(), &server);
    replay_all(
        &recording("four-gpus/graphs-neighbour2"),
        &echo,
        "lab",
        "max",
    );
    echo.caught_up();
    for (arguments, flag) in [
        (&[][..], " --context lab"),
        (&["--context", "lab"], " --context lab"),
        (&["--server", &server], " --server "),
    ] {
        let line = [&["status", "--window", "all"], arguments].concat();
        let (_, text) = shell.run(None, &line);
        let next = text.lines().find(|line| line.contains(" next "));
        let next = next.unwrap_or_else(|| panic!("{text}"));
        assert!(next.contains(flag) && next.contains(" --job "), "{next}");
        assert_eq!(
            next.contains("--context"),
            flag.contains("context"),
            "{next}"
        );
    }
    assert_eq!(echo.terminate(), 0);
}

#[test]
fn a_token_in_the_environment_is_not_sent_to_the_server_of_a_context() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    let server = format!("http://{}", echo.http);
    let shell = Shell::with_two(folder.path(), &server);
    let code = |arguments: &[&str]| {
        let mut command = shell.command(None, arguments);
        // A token that is used is refused before it is sent.
        let output = command
            .env("FLEET_ECHO_TOKEN", "two words")
            .output()
            .unwrap();
        output.status.code().unwrap()
    };
    assert_eq!(code(&["clusters", "--server", &server]), 64);
    assert_eq!(code(&["clusters"]), 0);
    assert_eq!(code(&["clusters", "--context", "lab"]), 0);
    assert_eq!(echo.terminate(), 0);
}
