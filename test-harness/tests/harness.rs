//! The harness, run on tests of this binary.
#![expect(
    clippy::unwrap_used,
    reason = "all of this is tests, which clippy does not detect with a custom runner"
)]

#[macro_use]
extern crate fleet_test_harness;

use std::process::{Command, ExitCode, Output};

use fleet_test_harness::Need;

/// A need that is met unless a test of the harness takes it away.
static SWITCH: Need = Need::new("switch", || {
    is_off().then(|| "no switch (set it)".to_owned())
});

#[expect(
    clippy::disallowed_methods,
    reason = "the state of a process of a test"
)]
fn is_off() -> bool {
    std::env::var_os("HARNESS_SWITCH").is_some_and(|switch| switch == "off")
}

fn main() -> ExitCode {
    fleet_test_harness::run()
}

/// Runs the test that needs the switch, or lists it, in this binary.
fn run_needy(flags: &[&str], required: &str) -> Output {
    let mut binary = Command::new(std::env::current_exe().unwrap());
    binary.args(["needy", "--format", "terse"]).args(flags);
    binary.env("HARNESS_SWITCH", "off");
    binary.env("FLEET_CI_REQUIRE", required).output().unwrap()
}

#[track_caller]
fn assert_printed(output: &[u8], part: &str) {
    let text = String::from_utf8_lossy(output);
    assert!(text.contains(part), "no {part:?} in {text}");
}

#[test]
#[needs(SWITCH)]
fn needy() {
    assert!(!is_off(), "it ran without what it needs");
}

#[test]
async fn a_test_can_be_async() {
    tokio::task::yield_now().await;
}

#[test]
fn a_test_whose_need_is_missing_is_ignored_with_the_reason() {
    let listed = run_needy(&["--list", "--ignored"], "");
    assert_printed(&listed.stdout, "needy: test");
    assert_printed(&listed.stderr, "ignored: no switch (set it): needy");
    let run = run_needy(&[], "");
    assert!(run.status.success(), "{run:?}");
}

#[test]
fn a_need_that_is_required_and_missing_is_a_failure_with_the_reason() {
    for required in ["all", "other, switch"] {
        assert_eq!(run_needy(&["--list", "--ignored"], required).stdout, b"");
        let run = run_needy(&[], required);
        assert!(!run.status.success(), "{run:?}");
        assert_printed(&run.stdout, "no switch (set it)");
    }
    assert!(run_needy(&[], "other").status.success());
}
