//! What `fleet-echo import` prints: the answer first, the next command last.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use super::{import, thirdparty, traces};
use crate::testbed::ECHO;

/// Returns the labels of the lines, in their order.
fn labels(printed: &str) -> Vec<&str> {
    let first = |line: &str| line.starts_with("  ") && !line.starts_with("   ");
    let mut labels: Vec<&str> = printed
        .lines()
        .filter(|line| first(line))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    labels.dedup();
    labels
}

/// Returns the commands that the output ends with.
fn next(printed: &str) -> Vec<&str> {
    let (_, commands) = printed.split_once("  next     ").unwrap();
    commands.lines().map(str::trim).collect()
}

/// A shell that runs a printed command in a folder.
fn shell(command: &str, folder: &Path) -> Command {
    let programs = Path::new(ECHO).parent().unwrap().display();
    let mut shell = Command::new("bash");
    let script = format!("PATH={programs}:$PATH; exec {command}");
    shell.args(["-c", &script]).current_dir(folder);
    shell
}

#[test]
fn the_verdict_is_printed_first_and_its_cost_second() {
    for (set, order) in [
        ("gf-bench", "verdict cost arrival files hidden next"),
        ("../torch/hang4", "verdict cost files hidden next"),
        (
            "../recordings/host-sleep-rank2.jsonl.gz",
            "verdict cost files hidden next",
        ),
        ("bytedance-AR/inspector", "arrival files hidden"),
    ] {
        let (code, printed, errors) = import(&thirdparty(set), &[]);
        assert_eq!(code, 0, "{errors}");
        assert_eq!(labels(&printed).join(" "), order, "{printed}");
    }
}

#[test]
fn operations_of_dumps_without_times_are_not_counted_as_none() {
    let (_, printed, _) = import(&thirdparty("../torch/hang4"), &[]);
    assert!(
        printed.contains("  operations without times\n"),
        "{printed}"
    );
    assert!(!printed.contains("0 collective operations"), "{printed}");
}

#[test]
fn the_next_command_can_be_pasted_and_serves_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let set = folder.path().join("the job's traces");
    std::fs::create_dir(&set).unwrap();
    traces(&set, "H200", |rank, step| step > 30 && rank != 1);
    let (_, printed, _) = import(&set, &[]);
    let mut shell = shell(next(&printed)[0], folder.path());
    let mut served = shell.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(served.stdout.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    let page = lines.find_map(|line| line.strip_prefix("  page     ").map(str::to_owned));
    let page = page.unwrap();
    let page = page.strip_suffix(", until Ctrl-C").unwrap();
    let text = ureq::get(page).call().unwrap().body_mut().read_to_string();
    served.kill().unwrap();
    served.wait().unwrap();
    assert!(text.unwrap().contains("import"));
}

#[test]
fn a_recording_can_be_exported_with_the_printed_command() {
    let folder = tempfile::tempdir().unwrap();
    let recording = thirdparty("../recordings/host-sleep-rank2.jsonl.gz");
    let (_, printed, _) = import(&recording, &[]);
    let commands = next(&printed);
    assert_eq!(commands.len(), 2, "{printed}");
    let exported = shell(commands[1], folder.path()).output().unwrap();
    assert!(exported.status.success(), "{exported:?}");
    assert!(folder.path().join("trace.json").is_file());
}

#[test]
fn a_kept_database_is_served_by_the_printed_command() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("job.duckdb");
    let flags = ["--db", db.to_str().unwrap()];
    let (_, printed, _) = import(&thirdparty("gf-bench"), &flags);
    let expected = format!("fleet-echo serve --db {} --insecure-no-tls", db.display());
    assert_eq!(next(&printed), [expected], "{printed}");
}

#[test]
fn a_format_that_an_import_does_not_have_is_refused_before_files_are_read() {
    let missing = Path::new("/no/such/trace");
    for format in ["csv", "jsonl"] {
        let (code, printed, errors) = import(missing, &["--output", format]);
        assert_eq!((code, printed.as_str()), (64, ""), "{errors}");
        let expected = "import prints text or JSON, and no rows: give --output json";
        assert!(errors.contains(expected), "{errors}");
    }
}
