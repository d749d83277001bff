//! The command line itself: what `serve` prints, man pages, and output in a pipe.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::testbed::{ECHO, Echo, agent, recording, replay_all, serve_command};

fn printed(arguments: &[&str]) -> String {
    let output = Command::new(ECHO).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn serve_prints_the_page_and_the_command_line_of_an_agent() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = serve_command(&folder.path().join("fleet.duckdb"));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let lines: Vec<String> = lines.take(3).map(Result::unwrap).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    let address = |name: &str| {
        let mut words = lines[0].split(' ');
        words.find_map(|word| word.strip_prefix(name)).unwrap()
    };
    let page = format!("  page   http://{}/", address("http="));
    let endpoint = format!("--endpoint http://{}", address("otlp="));
    assert_eq!(lines[1], page);
    assert!(
        lines[2].contains("fleet-agent run --cluster NAME"),
        "{lines:?}"
    );
    assert!(lines[2].ends_with(&endpoint), "{lines:?}");
}

#[test]
fn man_pages_cover_all_commands() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("man");
    printed(&["man", &directory.display().to_string()]);
    for page in [
        "fleet-echo.1",
        "fleet-echo-status.1",
        "fleet-echo-rates-check.1",
    ] {
        let text = std::fs::read_to_string(directory.join(page)).unwrap();
        assert!(text.contains("fleet"), "{page}");
    }
    assert!(!printed(&["--help"]).contains("\n  man "));
}

#[test]
fn a_reader_that_closes_the_pipe_early_is_no_error() {
    for program in [PathBuf::from(ECHO), agent()] {
        let script = "set -o pipefail; \"$0\" completion bash | true";
        let output = Command::new("bash")
            .args(["-c", script])
            .arg(&program)
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn output_has_colours_and_wrapped_lines_on_a_terminal_only() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    replay_all(&recording("host-sleep-rank2"), &echo, "lab", "max");
    echo.caught_up();
    let server = format!("http://{}", echo.http);
    for (command, part) in [
        ("outliers", "node-2"),
        ("cost", "node-2"),
        ("status", "1 incident cleared"),
    ] {
        let text = printed(&[command, "-c", "lab", "-w", "all", "--server", &server]);
        assert!(!text.contains('\x1b'), "{text}");
        assert!(text.contains(part), "{text}");
    }
    // `script` gives the command a terminal.
    for (variable, value, is_colored) in [
        ("TERM", "xterm-256color", true),
        ("TERM", "dumb", false),
        ("NO_COLOR", "1", false),
    ] {
        let line = format!("stty cols 80; {ECHO} outliers -w all --server {server}");
        let output = Command::new("script")
            .args(["-q", "-e", "-c", &line, "/dev/null"])
            .env_remove("NO_COLOR")
            .env("TERM", "xterm-256color")
            .env(variable, value)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("node-2"), "{variable}={value}: {text}");
        let longest = text.lines().map(|line| line.trim_end().len()).max();
        assert_eq!(
            text.contains('\x1b'),
            is_colored,
            "{variable}={value}: {text:?}"
        );
        assert!(is_colored || longest <= Some(80), "{text}");
    }
    let clusters = printed(&["clusters", "--no-headers", "--server", &server]);
    assert!(clusters.starts_with("lab "), "{clusters}");
    assert_eq!(clusters.lines().count(), 1, "{clusters}");
    assert_eq!(echo.terminate(), 0);
}
