//! Tests of the agent with real probes on real libraries. Where the kernel does not allow them,
//! every test is ignored.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "all of this is tests, which clippy does not detect with a custom runner"
)]

mod attaching;
mod causes;
mod cgroup;
mod delays;
mod durations;
mod echo;
mod explain;
mod fixture;
mod health;
mod job;
mod late;
mod lossy_link;
mod mounts;
mod preempted;
mod process;
mod python;
mod ras;
mod running;
mod stand_ins;
mod tracing;

use std::process::ExitCode;

use fleet_agent_sources::watch::Watch;
use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let forbidden = Watch::start(&fixture::settings()).err();
    if let Some(error) = &forbidden {
        eprintln!("ignored: probes cannot be attached here: {error}");
    }
    let tests = [
        attaching::TESTS,
        durations::TESTS,
        delays::TESTS,
        explain::TESTS,
        causes::TESTS,
        python::TESTS,
        late::TESTS,
        mounts::TESTS,
        process::TESTS,
        echo::TESTS,
        health::TESTS,
        preempted::WITH_ECHO,
        ras::TESTS,
    ]
    .concat();
    let has_echo = echo::program().exists();
    if !has_echo {
        eprintln!(
            "ignored: tests with Echo, whose program is not built (cargo build --workspace --bins)"
        );
    }
    let trials = tests.into_iter().map(|(name, test)| {
        let run = move || {
            test();
            Ok(())
        };
        let with_echo = echo::TESTS.iter().chain(ras::TESTS).chain(health::TESTS);
        let mut with_echo = with_echo.chain(preempted::WITH_ECHO);
        let needs_echo = with_echo.any(|(of_echo, _)| *of_echo == name);
        Trial::test(name, run).with_ignored_flag(forbidden.is_some() || needs_echo && !has_echo)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// Test with its name.
type Test = (&'static str, fn());
