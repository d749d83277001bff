//! Tests with real processes. Where there is no `python3`, or the kernel does not allow to observe
//! threads, tests are ignored.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "all of this is tests, which clippy does not detect with a custom runner"
)]

mod arming;
mod native;
mod program;
mod python;

use std::process::{Command, ExitCode};

use fleet_agent_stacks::sampler::Sampler;
use libtest_mimic::{Arguments, Trial};

/// Test with its name.
type Test = (&'static str, fn());

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let reason = reason_to_ignore();
    if let Some(reason) = &reason {
        eprintln!("ignored: {reason}");
    }
    let tests = [python::TESTS, native::TESTS, arming::TESTS].concat();
    let trials = tests.into_iter().map(|(name, test)| {
        let run = move || {
            test();
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(reason.is_some())
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn reason_to_ignore() -> Option<String> {
    if Command::new("python3").arg("--version").output().is_err() {
        return Some("there is no python3".to_owned());
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
