//! Tests of the agent with real probes on real libraries.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "all of this is tests, which clippy does not detect with a custom runner"
)]

#[macro_use]
extern crate fleet_test_harness;

mod attaching;
mod causes;
mod cgroup;
mod delays;
mod durations;
mod echo;
mod explain;
mod fixture;
mod forked;
mod gpu_neighbour;
mod job;
mod late;
mod lossy_link;
mod mounts;
mod process;
mod python;
mod ras;
mod running;
mod stand_ins;
mod tracing;
mod unranked;
mod verdicts;

use std::process::ExitCode;

use fleet_agent_sources::watch::Watch;
use fleet_test_harness::Need;

/// Probes that this process can attach.
static PROBES: Need = Need::new("probes", || {
    let error = Watch::start(&fixture::settings()).err()?;
    Some(format!("no probes can be attached ({error})"))
});

/// The program of Echo.
static ECHO: Need = Need::new("echo", || {
    let is_missing = !echo::program().exists();
    is_missing.then(|| "no fleet-echo (cargo build --workspace --bins)".to_owned())
});

fn main() -> ExitCode {
    fleet_test_harness::run()
}
