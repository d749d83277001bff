//! The program `fleet-echo`: parses, runs, and turns the outcome into an exit code.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use fleet_echo::app::{App, AppError};
use fleet_echo::config::{Command, CommandLine, LogArgs, LogFormat, ServeArgs};
use fleet_echo::error::chain;
use fleet_echo::store::StoreError;
use fleet_echo::{cli, demo, telemetry};

/// Exit codes, as in `sysexits.h`.
const USAGE: u8 = 64;
const DATA: u8 = 65;
const UNAVAILABLE: u8 = 69;
const DEFECT: u8 = 70;
const HELD: u8 = 75;
