//! `fleet-echo assert` with real processes, and all its exit codes.

use std::path::Path;
use std::process::{Command, Output};

use quick_junit::{NonSuccessKind, Report, TestCaseStatus};
use serde_json::Value;

use crate::testbed::filled::once_per_run;
use crate::testbed::{ECHO, Echo, recording, replay_all, replay_command, replay_ranks, summary};

/// Runs `fleet-echo assert` against an address.
fn assert_at(server: &str, line: &str) -> Output {
    let mut command = Command::new(ECHO);
    command.arg("assert").args(line.split_whitespace());
    command.args(["--server", server]).output().unwrap()
}

/// Runs `fleet-echo assert` against an instance. Returns exit code and output.
fn outcome(echo: &Echo, line: &str) -> (i32, String) {
    let output = assert_at(&format!("http://{}", echo.http), line);
    let printed = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap(),
        String::from_utf8(printed).unwrap(),
    )
}

#[track_caller]
fn assert_outcome(echo: &Echo, line: &str, expected: i32, parts: &[&str]) {
    let (code, printed) = outcome(echo, line);
    assert_eq!(code, expected, "{line}: {printed}");
    for part in parts {
        assert!(printed.contains(part), "{line}: no {part:?} in {printed}");
    }
}

/// Starts an instance with three jobs: one with a straggler (`slow`), a healthy one (`calm`), and
/// one of which half of the ranks report (`half`). The first test of a run fills the database.
fn filled(db: &Path) -> Echo {
    once_per_run("gates", db, |echo| {
        replay_all(&recording("host-sleep-rank2"), echo, "slow", "max");
        replay_all(&recording("healthy"), echo, "calm", "max");
        for rank in 0..2 {
            let mut agent = replay_command(&recording("healthy"), rank, &echo.otlp, "half");
            summary(&agent.args(["--speed", "max"]).output().unwrap());
        }
        echo.caught_up();
    });
    Echo::serve(db)
}

#[test]
fn a_build_passes_within_its_limits_and_fails_beyond_them() {
    let folder = tempfile::tempdir().unwrap();
    let echo = filled(&folder.path().join("fleet.duckdb"));
    let all = "--window all";
    let wide = "--max-window-total 1 --max-lost-ratio 50% --max-cost-per-hour 100 --max-unpriced-gpu-hours 0";
    assert_outcome(
        &echo,
        &format!("cost --cluster slow {all} {wide}"),
        0,
        &["PASS slow: lost ", " USD per hour, at most 100"],
    );
    let none = format!("cost --cluster slow {all} --max-window-total 0");
    assert_outcome(
        &echo,
        &none,
        1,
        &["FAIL slow: lost ", " USD in the window, at most 0 USD"],
    );
    assert_outcome(
        &echo,
        &format!("cost --cluster slow {all} --max-lost-ratio 0.1%"),
        1,
        &["FAIL slow"],
    );
    assert_outcome(
        &echo,
        &format!("cost --cluster calm {all} --max-window-total 0"),
        0,
        &["PASS calm"],
    );
    assert_eq!(echo.terminate(), 0);
}

#[test]
fn a_build_fails_on_more_stragglers_than_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let echo = filled(&folder.path().join("fleet.duckdb"));
    let all = "--window all";
    let outliers = format!("outliers {all} --max 0");
    assert_outcome(
        &echo,
        &format!("{outliers} --cluster calm"),
        0,
        &["PASS calm: outliers: 0, at most 0"],
    );
    assert_outcome(
        &echo,
        &format!("{outliers} --cluster slow"),
        1,
        &["FAIL slow", "rank 2 on node-2, host"],
    );
    assert_outcome(
        &echo,
        &format!("{outliers} --cluster slow --class device"),
        0,
        &["PASS slow"],
    );
    assert_outcome(
        &echo,
        &format!("outliers {all} --cluster slow --max 1"),
        0,
        &["PASS slow"],
    );
    assert_outcome(
        &echo,
        &format!("{outliers} --cluster calm --cluster slow"),
        1,
        &["PASS calm", "FAIL slow"],
    );
    assert_eq!(echo.terminate(), 0);
}

#[test]
fn a_build_fails_when_its_job_became_slow_unless_that_condition_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    replay_ranks(&recording("gpu-extra-rank1"), 4, &echo, "slower", "max");
    let limit = "outliers --cluster slower --window all --max 4";
    assert_outcome(&echo, limit, 1, &["FAIL slower", "conditions: "]);
    let kinds = "uniform_slowdown,network,stall,hang";
    let accepted = format!("{limit} --allow-condition {kinds}");
    assert_outcome(&echo, &accepted, 0, &["PASS slower", "conditions: 0"]);
    assert_eq!(echo.terminate(), 0);
}

#[test]
fn a_build_does_not_pass_without_enough_data() {
    let folder = tempfile::tempdir().unwrap();
    let echo = filled(&folder.path().join("fleet.duckdb"));
    let limits = "--max-window-total 100 --max-lost-ratio 90%";
    let cost = |rest: &str| format!("cost {limits} {rest}");
    let day = "--from 2026-11-01T00:00:00Z --to 2026-11-02T00:00:00Z";
    for (line, part) in [
        (
            cost("--cluster half --window all"),
            "50 % of the expected ranks report",
        ),
        (
            cost("--cluster half --window all --min-coverage 10%"),
            "too few ranks report",
        ),
        (
            cost("--cluster slow --window 1s"),
            "no events in the window",
        ),
        (
            cost(&format!("--cluster slow {day}")),
            "before the end of the window",
        ),
        (
            cost("--cluster slow --window all --currency EUR"),
            "the rates are in USD",
        ),
        (
            cost("--cluster absent --window all"),
            "no such cluster: \"absent\"",
        ),
        (
            "outliers --max 5 --cluster half --window all".to_owned(),
            "50 %",
        ),
        (
            "outliers --max 5 --cluster slow --window 1s".to_owned(),
            "no events",
        ),
        (
            format!("outliers --max 5 --cluster slow {day}"),
            "before the end of the window",
        ),
    ] {
        assert_outcome(&echo, &line, 4, &["NO DATA ", part]);
        assert_outcome(
            &echo,
            &format!("{line} --allow-missing"),
            0,
            &["SKIP ", part],
        );
    }
    // An exceeded limit takes precedence over missing data.
    let both = cost("--cluster half --cluster slow --window all").replace("100", "0");
    assert_outcome(&echo, &both, 1, &["NO DATA half", "FAIL slow"]);
    assert_eq!(echo.terminate(), 0);
}

#[test]
fn an_empty_database_and_unpriced_gpus_do_not_pass() {
    let folder = tempfile::tempdir().unwrap();
    let rates = folder.path().join("rates.yaml");
    std::fs::write(
        &rates,
        "rates: [{ gpu_model: L4, rate_class: spot, rate: 1, currency: USD }]",
    )
    .unwrap();
    let rates = rates.display().to_string();
    let echo = Echo::serve_with(&folder.path().join("fleet.duckdb"), &["--rates", &rates]);
    let cost = "cost --cluster slow --window all";
    assert_outcome(
        &echo,
        &format!("{cost} --max-window-total 9"),
        4,
        &["NO DATA slow", "known: none"],
    );
    assert_outcome(
        &echo,
        "outliers --cluster slow --max 0",
        4,
        &["NO DATA slow"],
    );
    replay_all(&recording("host-sleep-rank2"), &echo, "slow", "max");
    assert_outcome(
        &echo,
        &format!("{cost} --max-window-total 9"),
        4,
        &["lost GPU-hours have no price"],
    );
    assert_outcome(
        &echo,
        &format!("{cost} --max-unpriced-gpu-hours 0"),
        1,
        &["FAIL slow: lost without a price"],
    );
    assert_outcome(
        &echo,
        &format!("{cost} --max-lost-ratio 90%"),
        0,
        &["PASS slow"],
    );
    assert_eq!(echo.terminate(), 0);
}

#[test]
fn unreachable_servers_and_invalid_requests_have_different_exit_codes() {
    // This port was free, and no other process knows its number.
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let closed = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let limit = "cost --cluster a --max-window-total 1";
    for (server, line, code, part) in [
        (closed.as_str(), limit, 3, "ERROR a: cannot reach"),
        (
            "http://127.0.0.1:1/",
            "outliers --cluster a --max 0",
            3,
            "ERROR a: cannot reach",
        ),
        ("ftp://a", limit, 2, "ERROR a: --server ftp://a"),
        (
            "http://a.example",
            "cost --cluster a --max-window-total 1 --token x",
            2,
            "in plain text",
        ),
        (closed.as_str(), "cost --cluster a", 2, "--max-window-total"),
        (
            closed.as_str(),
            "cost --cluster a --max-window-total soon",
            2,
            "a number of at least 0",
        ),
        (
            closed.as_str(),
            "cost --cluster a --max-window-total 1 --limit 3",
            2,
            "--limit",
        ),
        (closed.as_str(), "", 2, "Usage: fleet-echo assert"),
    ] {
        let output = assert_at(server, line);
        let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(code), "{line}: {printed}");
        assert!(printed.contains(part), "{line}: {printed}");
    }
    let helped = Command::new(ECHO)
        .args(["assert", "cost", "--help"])
        .output()
        .unwrap();
    assert_eq!(helped.status.code(), Some(0));
    // Other commands exit with 64 on invalid flags.
    let other = Command::new(ECHO)
        .args(["cost", "--limit", "soon"])
        .output()
        .unwrap();
    assert_eq!(other.status.code(), Some(64));
}

#[test]
fn the_outcome_is_written_as_junit_and_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let echo = filled(&folder.path().join("fleet.duckdb"));
    let file = folder.path().join("junit.xml");
    let junit = format!("--junit {} --json", file.display());
    let line = format!(
        "outliers --cluster calm --cluster slow --cluster half --window all --max 0 {junit}"
    );
    let (code, printed) = outcome(&echo, &line);
    assert_eq!(code, 1);
    let result: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(
        (&result["outcome"], &result["exit_code"]),
        (&"exceeded".into(), &1.into())
    );
    let outcomes: Vec<&Value> = (0..3)
        .map(|at| &result["clusters"][at]["outcome"])
        .collect();
    assert_eq!(outcomes, ["passed", "exceeded", "not_enough_data"]);
    assert_eq!(result["clusters"][1]["checks"][0]["value"], 1.0);

    let report = Report::deserialize_from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let [suite] = report.test_suites.as_slice() else {
        panic!("{report:?}")
    };
    assert_eq!((suite.tests, suite.failures, suite.errors), (3, 1, 1));
    let names: Vec<&str> = suite
        .test_cases
        .iter()
        .map(|case| case.name.as_str())
        .collect();
    assert_eq!(names, ["calm", "slow", "half"]);
    let failure = &suite.test_cases[1].status;
    let TestCaseStatus::NonSuccess {
        kind: NonSuccessKind::Failure,
        message,
        ..
    } = failure
    else {
        panic!("{failure:?}")
    };
    let message = message.as_ref().unwrap().as_str();
    assert!(
        message.starts_with("outliers: 1, at most 0 (rank 2 on node-2"),
        "{message}"
    );

    outcome(&echo, &format!("{line} --allow-missing"));
    let report = Report::deserialize_from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let skipped = &report.test_suites[0].test_cases[2].status;
    assert!(
        matches!(skipped, TestCaseStatus::Skipped { .. }),
        "{skipped:?}"
    );

    assert_eq!(echo.terminate(), 0);
}

#[test]
fn an_unwritable_outcome_does_not_pass_and_errors_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let echo = filled(&folder.path().join("fleet.duckdb"));
    let file = folder.path().join("junit.xml");
    let passing = "outliers --cluster calm --window all --max 0 --junit";
    assert_outcome(
        &echo,
        &format!("{passing} {}/nowhere/junit.xml", file.display()),
        3,
        &["cannot write"],
    );
    assert_eq!(echo.terminate(), 0);

    let line = format!(
        "outliers --cluster calm --cluster slow --max 0 --junit {}",
        file.display()
    );
    let unreachable = assert_at("http://127.0.0.1:1", &line);
    assert_eq!(unreachable.status.code(), Some(3));
    let report = Report::deserialize_from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!((report.tests, report.errors), (2, 2));
}
