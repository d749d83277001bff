//! Tests of the whole service, in one binary, so that DuckDB is linked only once.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "all of this is tests, which clippy does not detect with a custom runner"
)]

#[macro_use]
extern crate fleet_test_harness;

use std::process::ExitCode;

// Links the crate, and with it the extensions of DuckDB, although no test names it.
use fleet_echo as _;

mod actions;
mod architecture;
mod clients;
mod commands;
mod completion;
mod contexts;
mod crash;
mod database;
mod demo;
mod deploy;
mod duckdb_link;
mod durability;
mod exporters;
mod extremes;
mod first_hour;
mod full_volume;
mod gates;
mod host;
mod import;
mod ingero;
mod lake;
mod load;
mod lost_database;
mod metrics;
mod monitoring;
mod offline;
mod open;
mod private_files;
mod proxy;
mod rates;
mod readiness;
mod readme;
mod recordings;
mod report;
mod run_rate;
mod sdk;
mod security;
mod shards;
mod shift;
mod spans;
mod sql;
mod testbed;
mod top;
mod verdicts;
mod volume;
mod words;

fn main() -> ExitCode {
    fleet_test_harness::run()
}
