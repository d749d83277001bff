//! The command line of the agent.

use std::io::{self, IsTerminal, Write, stderr, stdout};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use fleet_agent::config::{Cli, Command, ReplayArgs, StartAt};
use fleet_agent::export::null::Null;
use fleet_agent::export::otlp::{EndpointError, Otlp};
use fleet_agent::replay::summary::Summary;
use fleet_agent::replay::{ReplayError, progress_bar, replay};
use indicatif::ProgressBar;
use tracing_subscriber::EnvFilter;

const USAGE: u8 = 64;
const BAD_INPUT: u8 = 65;
const UNAVAILABLE: u8 = 69;
const DEFECT: u8 = 70;

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(Cli {
            command: Command::Replay(args),
        }) => run(&args),
        Err(error) => {
            let is_answer = matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            );
            let printed = error.print();
            if is_answer && printed.is_ok() {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(USAGE)
            }
        }
    }
}

fn run(args: &ReplayArgs) -> ExitCode {
    let is_terminal = stderr().is_terminal();
    let progress = if is_terminal {
        progress_bar()
    } else {
        ProgressBar::hidden()
    };
    let bar = progress.clone();
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()))
        .with_writer(move || BesideBar(bar.clone()))
        .with_ansi(is_terminal)
        .with_target(false)
        .init();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return fail(DEFECT, &format!("the runtime cannot start: {error}")),
    };
    let ran = runtime.block_on(run_to(args, &progress));
    progress.finish_and_clear();
    match ran {
        Ok((summary, result)) => conclude(args, &summary, result.err()),
        Err(error) => fail(USAGE, &error.to_string()),
    }
}

/// Standard error, with the progress bar out of the way while something is written.
struct BesideBar(ProgressBar);

impl Write for BesideBar {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| stderr().write(buf))
    }

    fn flush(&mut self) -> io::Result<()> {
        stderr().flush()
    }
}

/// Replays to the endpoint that was asked for.
async fn run_to(
    args: &ReplayArgs,
    progress: &ProgressBar,
) -> Result<(Summary, Result<(), ReplayError>), EndpointError> {
    if args.endpoint == "none" {
        return Ok(replay(args, |_| Null, progress).await);
    }
    let first = Otlp::new(&args.endpoint, 0)?;
    let boot = StartAt::Now.unix_ns();
    let exporter = |node: &str| {
        let instance = instance(boot, node);
        Otlp::new(&args.endpoint, instance).unwrap_or_else(|_| first.clone())
    };
    Ok(replay(args, exporter, progress).await)
}

/// Identity of one agent of this process, new at every start.
fn instance(boot: i128, node: &str) -> u64 {
    let mut key = node.as_bytes().to_vec();
    key.extend_from_slice(&boot.to_le_bytes());
    key.extend_from_slice(&std::process::id().to_le_bytes());
    xxhash_rust::xxh64::xxh64(&key, 0)
}

fn conclude(args: &ReplayArgs, summary: &Summary, error: Option<ReplayError>) -> ExitCode {
    let message = error.as_ref().map(ToString::to_string);
    let text = if args.json {
        summary.to_json(message.as_deref()).to_string()
    } else {
        summary.to_string()
    };
    if writeln!(stdout(), "{text}").is_err() {
        return fail(DEFECT, "the summary cannot be written to standard output");
    }
    match error {
        None => ExitCode::SUCCESS,
        Some(error) => fail(exit_code(&error), &error.to_string()),
    }
}

fn exit_code(error: &ReplayError) -> u8 {
    match error {
        ReplayError::Source(_) => BAD_INPUT,
        ReplayError::NoSuchRank { .. } => USAGE,
        ReplayError::Unreachable { .. } | ReplayError::Undelivered { .. } => UNAVAILABLE,
        ReplayError::Broken(_) => DEFECT,
    }
}

fn fail(code: u8, message: &str) -> ExitCode {
    // Nothing is left to report to when standard error is gone.
    let _closed = writeln!(stderr(), "fleet-agent: {message}");
    ExitCode::from(code)
}
