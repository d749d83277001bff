//! The commands of the README and the guide work: their `sh` blocks are run, in order, as one script on one server.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::testbed::{ECHO, Echo, agent, recording, replay_all, repository};

/// Starts the server and fills it in its first blocks, and stops it in its last one.
const QUICKSTART: &str = "echo/docs/guide/quickstart.md";

/// The documents whose commands are run between the first blocks of the quickstart and its last one.
const DOCUMENTS: [&str; 10] = [
    "README.md",
    "echo/docs/guide/queries.md",
    "echo/docs/guide/sql.md",
    "echo/docs/guide/mcp.md",
    "echo/docs/guide/dashboards.md",
    "echo/docs/guide/ci-gates.md",
    "echo/docs/guide/finops.md",
    "echo/docs/guide/rates.md",
    "echo/docs/operate/sizing.md",
    "echo/docs/operate/security.md",
];

/// Folders that hold documents.
const FOLDERS: [&str; 7] = [
    ".",
    "agent-bpf",
    "agent/docs",
    "deploy/statefulset",
    "deploy/systemd",
    "echo/docs",
    "testdata/recordings",
];

fn text(path: &str) -> String {
    std::fs::read_to_string(repository(path)).unwrap()
}

/// The text of all fenced blocks of a language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let opening = format!("```{language}\n");
    let after_opening = text.split(&opening).skip(1);
    after_opening
        .map(|rest| rest.split("```").next().unwrap().to_owned())
        .collect()
}

/// The commands of all documents, in the order in which they are run.
fn commands() -> Vec<String> {
    let mut commands = blocks(&text(QUICKSTART), "sh");
    let stop = commands.pop().unwrap();
    for document in DOCUMENTS {
        let of_document = blocks(&text(document), "sh");
        assert!(!of_document.is_empty(), "no commands in {document}");
        commands.extend(of_document);
    }
    commands.push(stop);
    commands
}

/// The Markdown files of a folder: of the repository's root alone, of others with all below.
fn markdown(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![repository(folder)];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && folder != "." {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found
}

/// The anchors of the headings of a document, as hosts of repositories make them.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn the_commands_of_the_documents_work_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(repository("testdata"), folder.path().join("testdata")).unwrap();
    let programs = Path::new(ECHO).parent().unwrap().display().to_string();
    let script = format!(
        "set -euo pipefail\nPATH={programs}:$PATH\n{}",
        commands().concat()
    );
    let output = Command::new("bash")
        .arg("-c")
        .arg(&script)
        .current_dir(folder.path())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}\n{printed}\n{errors}",
        output.status
    );
    assert!(
        printed.contains("rank 2"),
        "the slow rank is not named:\n{printed}"
    );
    assert!(
        printed.contains("\"outliers\""),
        "curl got no answer:\n{printed}"
    );
}

#[test]
fn the_recipe_with_curl_and_jq_fails_where_it_should() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    replay_all(&recording("host-sleep-rank2"), &echo, "lab", "max");
    echo.caught_up();
    let recipes = commands().into_iter();
    let recipe = recipes
        .filter(|block| block.contains("jq -e"))
        .collect::<String>();
    let recipe = recipe.replace("127.0.0.1:8081", &echo.http);
    let code = |from: &str, to: &str| {
        assert!(recipe.contains(from), "no {from:?} in {recipe}");
        let mut command = Command::new("bash");
        let output = command.arg("-c").arg(recipe.replace(from, to)).output();
        output.unwrap().status.code().unwrap()
    };
    assert_eq!(code("<= 1'", "<= 1'"), 0);
    assert_eq!(code("<= 1'", "<= 0'"), 1, "it costs more");
    assert_eq!(
        code("cluster=lab", "cluster=nobody"),
        1,
        "an error is no pass"
    );
    assert_eq!(code("window=all", "window=1s"), 1, "no events are no pass");
    // Curl's code, or that of a jq that is not content with nothing.
    let unanswered = code(&echo.http, "127.0.0.1:1");
    assert!([7, 4].contains(&unanswered), "{unanswered}: nobody answers");
    assert_eq!(echo.terminate(), 0);
}

#[test]
fn the_make_targets_of_the_documents_exist() {
    let makefile = text("Makefile");
    let documents = ["README.md", QUICKSTART, "CONTRIBUTING.md"];
    let shown = documents.map(|document| blocks(&text(document), "console").concat());
    let shown = shown.concat();
    let targets: Vec<&str> = shown
        .lines()
        .filter_map(|line| line.strip_prefix("make ")?.split_whitespace().next())
        .collect();
    assert!(targets.contains(&"demo"), "{targets:?}");
    assert!(targets.contains(&"test"), "{targets:?}");
    for target in targets {
        assert!(
            makefile.contains(&format!("\n{target}:")),
            "no make {target}"
        );
    }
}

#[test]
fn the_demo_names_the_slow_rank_of_a_stock_training_loop() {
    let mut demo = Command::new(ECHO);
    demo.arg("demo")
        .arg(recording("real-loops/hf-ddp-loader1"))
        .args(["--speed", "max", "--rates"])
        .arg(repository("testdata/rates.yaml"))
        .env("FLEET_ECHO_DEMO_AGENT", agent());
    let output = demo.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    assert!(said.contains("Hugging Face Trainer"), "{said}");
    assert!(said.contains("verdict  rank 1 on node-1"), "{said}");
}

#[test]
fn the_documents_show_what_the_demo_prints() {
    let shown = blocks(&text(QUICKSTART), "text").concat();
    for line in [
        "verdict  rank 1 on node-1",
        "verdict  rank 2 on node-2",
        "healthy: no rank",
        "uniform_slowdown, no rank named",
        "outlier: rank 2",
    ] {
        assert!(
            shown.contains(line),
            "no {line:?} in the output that the quickstart shows"
        );
    }
    let front = blocks(&text("README.md"), "text").concat();
    assert!(shown.contains(&front), "the README shows other output");
}

#[test]
fn the_readme_is_short() {
    let lines = text("README.md").lines().count();
    assert!(lines <= 150, "{lines} lines");
}

#[test]
fn links_of_the_documents_lead_to_files_and_headings() {
    let mut checked = 0;
    for document in FOLDERS.iter().flat_map(|folder| markdown(folder)) {
        let text = std::fs::read_to_string(&document).unwrap();
        let links = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.starts_with("http")) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() {
                document.clone()
            } else {
                document.with_file_name("").join(path)
            };
            let from = document.display();
            assert!(target.exists(), "{from}: {link} does not exist");
            if !anchor.is_empty() {
                let headings = anchors(&std::fs::read_to_string(&target).unwrap());
                let found = headings.iter().any(|heading| heading == anchor);
                assert!(found, "{from}: no heading {link}");
            }
            checked += 1;
        }
    }
    assert!(checked > 100, "{checked} links");
}

#[test]
fn places_that_the_page_for_contributors_names_exist() {
    let text = text("CONTRIBUTING.md");
    let quoted = text.split('`').skip(1).step_by(2);
    let places: Vec<&str> = quoted
        .filter(|quoted| quoted.contains('/') && !quoted.contains([' ', '\n']))
        .collect();
    assert!(places.len() > 50, "{places:?}");
    for place in places {
        assert!(repository(place).exists(), "{place} does not exist");
    }
}

/// The documents that describe modules.
const ABOUT_MODULES: [&str; 6] = [
    "ARCHITECTURE.md",
    "agent/docs/internals.md",
    "echo/docs/internals/cost.md",
    "echo/docs/internals/detector.md",
    "echo/docs/internals/duckdb.md",
    "echo/docs/internals/server.md",
];

/// Crates by the name that these documents give them, each with its folder.
const CRATES: [(&str, &str); 7] = [
    ("analysis", "echo/analysis/src"),
    ("core", "echo/core/src"),
    ("export", "agent/export/src"),
    ("ingest", "echo/ingest/src"),
    ("serve", "echo/serve/src"),
    ("store", "echo/store/src"),
    ("tools", "echo/tools/src"),
];

/// The source files of a folder and all below.
fn sources(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![repository(folder)];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

fn is_module(name: &str) -> bool {
    let (first, rest) = name.split_once("::").unwrap();
    let of_crate = CRATES.iter().find(|(known, _)| *known == first);
    let (folders, module) = match of_crate {
        Some((_, folder)) => (vec![*folder], rest),
        None => (vec!["agent", "echo"], name),
    };
    let path = module.replace("::", "/");
    let file = format!("/{path}.rs");
    let files = folders.into_iter().flat_map(sources);
    files.into_iter().any(|found| found.ends_with(&file))
}

#[test]
fn modules_that_the_architecture_names_exist() {
    let mut checked = 0;
    for document in ABOUT_MODULES {
        let text = text(document);
        let in_module = |c: char| c.is_ascii_lowercase() || c == '_' || c == ':';
        let quoted = text.split('`').skip(1).step_by(2);
        for name in quoted.filter(|name| name.contains("::") && name.chars().all(in_module)) {
            assert!(is_module(name), "{document}: no module {name}");
            checked += 1;
        }
    }
    assert!(checked > 50, "{checked} modules");
}

/// The crates of this workspace that a manifest names as dependencies, without `echo-` and `fleet-`.
fn dependencies(manifest: &str) -> Vec<String> {
    let (_, section) = manifest
        .split_once("\n[dependencies]\n")
        .unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let short = |line: &str| {
        let name = line.split(['.', ' ', '=']).next()?;
        let short = name
            .strip_prefix("echo-")
            .or_else(|| name.strip_prefix("fleet-"));
        short.map(str::to_owned)
    };
    let mut names: Vec<String> = lines.filter_map(short).collect();
    names.sort();
    names
}

#[test]
fn the_table_of_crates_is_what_cargo_knows() {
    let architecture = text("ARCHITECTURE.md");
    let (_, table) = architecture.split_once("| crate | folder |").unwrap();
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let mut crates = 0;
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, folder, _, uses] = cells.as_slice() else {
            panic!("{row} does not have four cells");
        };
        let manifest = text(&format!("{}/Cargo.toml", folder.trim_matches('`')));
        let package = format!("name = \"{}\"", name.trim_matches('`'));
        assert!(manifest.contains(&package), "{folder} is not {name}");
        let mut uses: Vec<String> = uses
            .split(", ")
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        uses.sort();
        assert_eq!(uses, dependencies(&manifest), "{name}");
        crates += 1;
    }
    let workspace = text("Cargo.toml");
    let (_, members) = workspace.split_once("members = [\n").unwrap();
    let members = members.lines().take_while(|line| !line.starts_with(']'));
    assert_eq!(crates, members.count());
}
