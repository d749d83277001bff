//! Tests with real processes.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "all of this is tests, which clippy does not detect with a custom runner"
)]

#[macro_use]
extern crate fleet_test_harness;

mod arming;
mod native;
mod program;
mod python;

use std::process::{Command, ExitCode};

use fleet_agent_stacks::sampler::Sampler;
use fleet_test_harness::Need;

/// Python, and a kernel that lets threads be observed.
static STACKS: Need = Need::new("stacks", || {
    missing().map(|what| format!("no stacks can be read ({what})"))
});

fn main() -> ExitCode {
    fleet_test_harness::run()
}

fn missing() -> Option<String> {
    if Command::new("python3").arg("--version").output().is_err() {
        return Some("no python3: apt-get install python3".to_owned());
    }
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let opened = Sampler::open(child.id(), &[child.id()]);
    child.kill().unwrap();
    child.wait().unwrap();
    let limits = opened.map(|sampler| sampler.limits());
    match limits {
        Ok(limits) => limits.into_iter().find(|limit| limit.contains("no native")),
        Err(error) => Some(error.to_string()),
    }
}
