//! Test harness for binaries whose tests need something of the machine: root, a mounted volume, a
//! package registry. A test whose need is missing is reported as ignored, with the reason.
//!
//! A test binary with `harness = false` begins with `#[macro_use] extern crate fleet_test_harness;`
//! and its `main` returns [`run`]. Its tests are written as usual, and name what they need:
//!
//! ```ignore
//! #[test]
//! #[needs(MOUNTS)]
//! fn a_read_only_volume_is_refused() {}
//! ```
//!
//! `FLEET_CI_REQUIRE=all`, or a list of the names of needs, makes a missing need a failure.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "this is a test runner: its settings are environment variables"
)]

mod need;

use std::process::ExitCode;
use std::{env, panic};

pub use fleet_test_harness_macros::test;
pub use inventory;
use libtest_mimic::{Arguments, Failed, Trial};

pub use crate::need::{CONTAINERS, DEBIAN, MOUNTS, NETWORKS, NIGHTLY, NPM, Need, PYPI};

/// A registered test.
#[derive(Debug)]
pub struct Test {
    module: &'static str,
    name: &'static str,
    needs: &'static [&'static Need],
    run: fn(),
}

inventory::collect!(Test);

impl Test {
    /// Creates a test; called by the expansion of `#[test]`.
    pub const fn new(
        module: &'static str,
        name: &'static str,
        needs: &'static [&'static Need],
        run: fn(),
    ) -> Self {
        Self {
            module,
            name,
            needs,
            run,
        }
    }

    /// Returns the name within the binary, such as `volume::a_read_only_volume_is_refused`.
    fn path(&self) -> String {
        let module = self.module.split_once("::").map(|(_binary, module)| module);
        module.map_or_else(
            || self.name.to_owned(),
            |module| format!("{module}::{}", self.name),
        )
    }

    /// Returns the first need that is missing, with the reason.
    fn missing(&self) -> Option<(&'static Need, String)> {
        let missing = |need: &&'static Need| Some((*need, need.missing()?));
        self.needs.iter().find_map(missing)
    }

    /// Returns whether the test is ignored here, and writes the reason if so. A need that
    /// `FLEET_CI_REQUIRE` names is not missing: its tests run, and fail.
    fn is_ignored(&self) -> bool {
        let required = env::var("FLEET_CI_REQUIRE").unwrap_or_default();
        let missing = self.missing();
        let missing = missing.filter(|(need, _)| !need.is_required(&required));
        if let Some((_, reason)) = &missing {
            eprintln!("ignored: {reason}: {}", self.path());
        }
        missing.is_some()
    }

    /// Runs the test. A failure names the need that is missing, if one is.
    fn run(&self) -> Result<(), Failed> {
        let result = panic::catch_unwind(self.run);
        result.map_err(|cause| match self.missing() {
            Some((_, reason)) => Failed::from(reason),
            None => panic::resume_unwind(cause),
        })
    }
}

/// Runs or lists the registered tests, as the arguments of the process ask. Writes one line to
/// standard error for each ignored test.
pub fn run() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // A runner that starts one test has listed all before, and knows which are ignored.
    let is_chosen = arguments.exact && !arguments.list;
    if is_chosen {
        // On the main thread: libraries in C free what belongs to a thread when it ends, and another one
        // would end while their exit handlers free the rest. A test that had loaded extensions of DuckDB
        // passed, and its heap was found corrupted at its exit.
        arguments.test_threads = Some(1);
    }
    let trial = |test: &'static Test| {
        let is_ignored = !is_chosen && test.is_ignored();
        Trial::test(test.path(), || test.run()).with_ignored_flag(is_ignored)
    };
    let trials = inventory::iter::<Test>().map(trial).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Runs an `async` test on a runtime of its own; called by the expansion of `#[test]`.
///
/// # Panics
///
/// If no runtime can be created.
#[expect(clippy::expect_used, reason = "a test fails here")]
pub fn block_on(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    runtime.expect("a runtime for a test").block_on(test);
}
