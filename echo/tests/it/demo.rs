//! `fleet-echo demo`, and what the documents show of it.

use std::io::{BufRead, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

use regex::Regex;

use crate::readme::{QUICKSTART, blocks, text};
use crate::testbed::{ECHO, agent, recording, repository};

/// Reads lines up to one with this end.
fn read_until(end: &str, output: &mut impl BufRead, printed: &mut String) {
    while !printed.ends_with(end) {
        assert!(output.read_line(printed).unwrap() > 0, "{printed}");
    }
}

fn interrupt(demo: &Child) {
    let pid = demo.id().to_string();
    let signalled = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(signalled.success());
}

/// Replaces numbers, which depend on how the agents group the points of a run.
fn without_figures(text: &str) -> String {
    let number = Regex::new(r"\d+(\.\d+)?").unwrap();
    number.replace_all(text, "#").into_owned()
}

#[test]
fn the_demo_reports_the_slow_rank_of_a_stock_training_loop() {
    let mut demo = Command::new(ECHO);
    demo.arg("demo")
        .arg(recording("real-loops/hf-ddp-loader1"))
        .args(["--speed", "max", "--rates"])
        .arg(repository("testdata/rates.yaml"))
        .env("FLEET_ECHO_DEMO_AGENT", agent());
    let output = demo.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    assert!(printed.contains("Hugging Face Trainer"), "{printed}");
    assert!(printed.contains("verdict  rank 1 on node-1"), "{printed}");
}

#[test]
fn the_demo_runs_outside_of_a_checkout() {
    let elsewhere = tempfile::tempdir().unwrap();
    let mut demo = Command::new(ECHO)
        .args(["demo", "--speed", "max"])
        .current_dir(elsewhere.path())
        .env("FLEET_ECHO_DEMO_AGENT", agent())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The results of the first job are enough, with a cost by the built-in rates. The pipe stays
    // open: the demo ends by the signal, not by an error of its output.
    let mut output = BufReader::new(demo.stdout.take().unwrap());
    let mut printed = String::new();
    read_until("all acknowledged\n", &mut output, &mut printed);
    assert!(printed.contains("Replaying 7 recorded jobs"), "{printed}");
    assert!(printed.contains("speed max.\n"), "{printed}");
    assert!(printed.contains("verdict  rank 1 on node-1"), "{printed}");
    assert!(printed.contains("per hour at this rate\n"), "{printed}");
    let shown = blocks(&text("README.md"), "text").concat();
    assert!(
        without_figures(&printed).ends_with(&without_figures(&shown)),
        "README.md shows\n{shown}\nand the program prints\n{printed}"
    );
    interrupt(&demo);
    output.read_to_string(&mut printed).unwrap();
    assert!(demo.wait().unwrap().success(), "{printed}");
    let left = std::fs::read_dir(elsewhere.path()).unwrap().count();
    assert_eq!(left, 0, "files were left behind");
}

#[test]
fn a_demo_that_keeps_running_prints_the_address_of_its_page_first() {
    let mut demo = Command::new(ECHO)
        .arg("demo")
        .arg(recording("real-loops/hf-ddp-loader1"))
        .args(["--keep", "--speed", "max"])
        .env("FLEET_ECHO_DEMO_AGENT", agent())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(demo.stdout.take().unwrap());
    let mut printed = String::new();
    read_until(
        "which also deletes the database.\n",
        &mut output,
        &mut printed,
    );
    let page = printed.lines().next().unwrap().strip_prefix("  page     ");
    let page = page.unwrap();
    assert!(page.ends_with("/clusters/hf-ddp-loader1"), "{page}");
    let shown = ureq::get(page).call().unwrap().body_mut().read_to_string();
    assert!(shown.unwrap().contains("node-1"));
    assert!(!printed.contains("demo --keep"), "{printed}");
    let commands = printed
        .lines()
        .filter(|line| line.starts_with("  fleet-echo "));
    let commands: Vec<&str> = commands.collect();
    assert_eq!(commands.len(), 4, "{printed}");
    for command in commands {
        let (_, arguments) = command.split_once("fleet-echo ").unwrap();
        let output = Command::new(ECHO).args(arguments.split(' ')).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
    }
    interrupt(&demo);
    assert!(demo.wait().unwrap().success());
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
