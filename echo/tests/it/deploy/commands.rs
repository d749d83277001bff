//! Commands in documents: every subcommand exists, pipelines use valid flags, and the changelog names
//! every migration.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::testbed::{ECHO, agent, files_below, repository};

/// Folders with documents that name commands.
const FOLDERS: [&str; 3] = ["deploy", "echo/docs", "agent/docs"];

/// Returns whether a program has a subcommand, listed in its help or hidden.
fn is_known(program: &Path, subcommand: &str) -> bool {
    let help = Command::new(program).args([subcommand, "--help"]).output();
    help.unwrap().status.success()
}

/// Returns the subcommands with which a program is quoted: `fleet-echo NAME` at the beginning of a
/// quotation, or of a line of a block.
fn quoted(text: &str, program: &str) -> BTreeSet<String> {
    // Blocks begin and end with three marks, so they are at odd positions as well.
    let quotations = text.split('`').skip(1).step_by(2);
    let names = quotations.flat_map(str::lines).filter_map(|line| {
        let line = line.trim_start().trim_start_matches("$ ");
        // What `serve` prints.
        if line.starts_with("fleet-echo is ready: ") {
            return None;
        }
        let rest = line.strip_prefix(program)?.strip_prefix(' ')?;
        let name = rest.split_whitespace().next()?;
        let is_name = name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        (is_name && !name.starts_with('-')).then_some(name)
    });
    names.map(str::to_owned).collect()
}

#[test]
fn documents_name_only_subcommands_that_exist() {
    let echo = (Path::new(ECHO).to_owned(), "fleet-echo");
    let agent = (agent(), "fleet-agent");
    let is_document = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "md");
    let folders = FOLDERS
        .into_iter()
        .flat_map(files_below)
        .filter(is_document);
    let documents = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"].map(repository);
    let files: Vec<_> = folders.chain(documents).collect();
    for (program, name) in [echo, agent] {
        let mut known = BTreeSet::new();
        for file in &files {
            let text = std::fs::read_to_string(file).unwrap();
            for subcommand in quoted(&text, name) {
                let is_known = known.contains(&subcommand) || is_known(&program, &subcommand);
                assert!(is_known, "{}: no {name} {subcommand}", file.display());
                known.insert(subcommand);
            }
        }
        assert!(known.len() > 5, "{name}: {known:?}");
    }
}

#[test]
fn the_changelog_names_every_migration() {
    let changelog = std::fs::read_to_string(repository("CHANGELOG.md")).unwrap();
    let migrations = std::fs::read_dir(repository("migrations")).unwrap();
    for migration in migrations {
        let name = migration.unwrap().file_name().into_string().unwrap();
        assert!(
            changelog.contains(&name),
            "CHANGELOG.md does not name {name}"
        );
    }
}

/// Returns the `yaml` blocks of the guide for pipelines.
fn pipelines() -> Vec<String> {
    let guide = std::fs::read_to_string(repository("echo/docs/guide/ci-gates.md")).unwrap();
    let blocks = guide.split("```yaml\n").skip(1);
    blocks
        .map(|rest| rest.split("```").next().unwrap().to_owned())
        .collect()
}

#[test]
fn pipelines_of_the_guide_use_valid_flags_and_publish_the_files_that_they_write() {
    let pipelines = pipelines();
    assert_eq!(pipelines.len(), 2);
    let folder = tempfile::tempdir().unwrap();
    for pipeline in pipelines {
        let parsed: serde_json::Value = serde_norway::from_str(&pipeline).unwrap();
        assert!(parsed.is_object(), "{pipeline}");
        let commands = pipeline
            .lines()
            .filter_map(|line| line.split_once("fleet-echo assert "));
        let mut n_checked = 0;
        for (_, flags) in commands {
            let output = Command::new(ECHO)
                .arg("assert")
                .args(flags.split_whitespace())
                .args(["--server", "http://127.0.0.1:1"])
                .current_dir(folder.path())
                .output()
                .unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            // 2 is for invalid flags.
            assert_eq!(output.status.code(), Some(3), "{flags}: {error}");
            n_checked += 1;
        }
        assert_eq!(n_checked, 2);
        for file in ["outliers.xml", "cost.xml"] {
            let is_published = pipeline.contains(&format!("\"{file}\""))
                || pipeline.contains("report_paths: \"*.xml\"");
            assert!(is_published, "{file} is not published");
        }
    }
}
