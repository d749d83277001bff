//! The commands of the README work: its `sh` blocks are run, in order, as one script.

use std::path::Path;
use std::process::Command;

use crate::testbed::{ECHO, Echo, agent, recording, replay_all, repository};

fn readme() -> String {
    std::fs::read_to_string(repository("README.md")).unwrap()
}

/// The text of all fenced blocks of a language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let opening = format!("```{language}\n");
    let after_opening = text.split(&opening).skip(1);
    after_opening
        .map(|rest| rest.split("```").next().unwrap().to_owned())
        .collect()
}

#[test]
fn the_commands_of_the_readme_work_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(repository("testdata"), folder.path().join("testdata")).unwrap();
    let programs = Path::new(ECHO).parent().unwrap().display().to_string();
    let script = format!(
        "set -euo pipefail\nPATH={programs}:$PATH\n{}",
        blocks(&readme(), "sh").concat()
    );
    let output = Command::new("bash")
        .arg("-c")
        .arg(&script)
        .current_dir(folder.path())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}\n{printed}\n{said}",
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
    let recipes = blocks(&readme(), "sh").into_iter();
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
fn the_make_targets_of_the_readme_exist() {
    let makefile = std::fs::read_to_string(repository("Makefile")).unwrap();
    let text = blocks(&readme(), "console").concat();
    let targets: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("make ")?.split_whitespace().next())
        .collect();
    assert_eq!(targets, ["demo", "test"]);
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
fn the_readme_shows_what_the_demo_prints() {
    let shown = blocks(&readme(), "text").concat();
    for line in [
        "verdict  rank 1 on node-1",
        "verdict  rank 2 on node-2",
        "healthy: no rank",
        "uniform_slowdown, no rank named",
        "outlier: rank 2",
    ] {
        assert!(
            shown.contains(line),
            "no {line:?} in the output that the README shows"
        );
    }
}

#[test]
fn files_that_the_readme_names_exist() {
    let text = readme();
    let links = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    for link in links.filter(|link| !link.starts_with("http")) {
        assert!(repository(link).exists(), "{link} does not exist");
    }
}

#[test]
fn places_that_the_page_for_contributors_names_exist() {
    let text = std::fs::read_to_string(repository("CONTRIBUTING.md")).unwrap();
    let quoted = text.split('`').skip(1).step_by(2);
    let places: Vec<&str> = quoted
        .filter(|quoted| quoted.contains('/') && !quoted.contains([' ', '\n']))
        .collect();
    assert!(places.len() > 50, "{places:?}");
    for place in places {
        assert!(repository(place).exists(), "{place} does not exist");
    }
}
