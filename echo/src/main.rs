//! The program `fleet-echo`: parses, runs, and turns the outcome into an exit code.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use echo_core::error::chain;
use fleet_echo::app::{App, AppError};
use fleet_echo::cli::assert::{self as gate, AssertArgs};
use fleet_echo::cli::cost::CostArgs;
use fleet_echo::cli::dev_cert::DevCertArgs;
use fleet_echo::cli::explain::ExplainArgs;
use fleet_echo::cli::history::HistoryArgs;
use fleet_echo::cli::mcp::McpArgs;
use fleet_echo::cli::offline::backup::BackupArgs;
use fleet_echo::cli::offline::export::ExportArgs;
use fleet_echo::cli::offline::repair::RepairArgs;
use fleet_echo::cli::outliers::OutliersArgs;
use fleet_echo::cli::rates::RatesArgs;
use fleet_echo::cli::report::ReportArgs;
use fleet_echo::cli::sql::SqlArgs;
use fleet_echo::cli::token::TokenArgs;
use fleet_echo::cli::{self, CliError, store_exit_code};
use fleet_echo::config::{DemoArgs, LogArgs, LogFormat, ServeArgs};
use fleet_echo::demo::{self, DemoError};
use fleet_echo::telemetry::export::{ExportConfig, ExportError, Exporting};
use fleet_echo::telemetry::{self, LogError};
use rustix::fs::Mode;

/// Finds the GPU that holds back a whole cluster, says why, and puts a price on it.
#[derive(Debug, Parser)]
#[command(name = "fleet-echo", version, propagate_version = true, after_help = AFTER_HELP, max_term_width = 100)]
struct CommandLine {
    #[command(flatten)]
    log: LogArgs,
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Start here:
  fleet-echo demo                                          a recorded job with a slow rank, end to end
  fleet-echo serve --db fleet.duckdb --insecure-no-tls     collect from agents on this host
  fleet-echo outliers --cluster NAME                       which rank is slow, and since when

Exit codes: 0 done, 64 wrong flags or question, 65 database or input of another kind, 69 nobody
answers in time or a port is taken, 70 defect, 74 cannot read or write, 75 another process holds
the database. `assert` has others: 0 within the limits, 1 exceeded, 2 wrong flags, 3 nobody
answers, 4 not enough data.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Collect from agents, find stragglers, answer questions
    Serve(Box<ServeArgs>),
    /// Replay recorded H200 jobs through real agents and show what Echo concludes
    Demo(DemoArgs),
    /// Ask a running Echo which ranks hold the others back
    Outliers(OutliersArgs),
    /// Ask a running Echo why a rank is slow
    Explain(ExplainArgs),
    /// Ask a running Echo what that costs
    Cost(CostArgs),
    /// Let a build fail when stragglers cost or are more than a limit
    Assert(AssertArgs),
    /// Say what a rates file means, and which GPUs have no price
    Rates(RatesArgs),
    /// Ask a running Echo for the costs of a day, as CSV in FOCUS columns
    Report(ReportArgs),
    /// Ask a running Echo for the events behind it
    History(HistoryArgs),
    /// Let a model ask: the Model Context Protocol on standard input and output
    Mcp(McpArgs),
    /// Ask a running Echo with a SELECT of your own
    Sql(SqlArgs),
    /// Make certificates for a first try
    DevCert(DevCertArgs),
    /// Make tokens for those who call
    Token(TokenArgs),
    /// Copy the database of a stopped Echo and check the copy
    Backup(BackupArgs),
    /// Write the database of a stopped Echo as Parquet
    Export(ExportArgs),
    /// Set a damaged log aside, so that the database can be opened again
    Repair(RepairArgs),
}

/// Why the program ends without having done what was asked.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error("cannot start the runtime")]
    Runtime(#[source] io::Error),
    #[error(transparent)]
    App(#[from] AppError),
    #[error(transparent)]
    Demo(#[from] DemoError),
    #[error(transparent)]
    Cli(#[from] CliError),
    #[error("cannot print")]
    Print(#[source] io::Error),
}

// Exit codes, as in `sysexits.h`.
const USAGE: u8 = 64;
const DATA: u8 = 65;
const UNAVAILABLE: u8 = 69;
const DEFECT: u8 = 70;
const INPUT_OUTPUT: u8 = 74;

impl Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Export(_) | Self::Log(_) | Self::Demo(DemoError::NoAgent(_)) => USAGE,
            Self::Print(_) | Self::Demo(DemoError::Io(_)) => INPUT_OUTPUT,
            Self::Cli(error) => error.exit_code(),
            Self::App(error) | Self::Demo(DemoError::App(error)) => app_exit_code(error),
            Self::Demo(DemoError::Recording(_)) => DATA,
            Self::Runtime(_) | Self::Demo(DemoError::Agent { .. } | DemoError::Question(_)) => {
                DEFECT
            }
        }
    }
}

const fn app_exit_code(error: &AppError) -> u8 {
    match error {
        AppError::Config(_) | AppError::File { .. } | AppError::Access(_) | AppError::Tls(_) => {
            USAGE
        }
        AppError::Rates(_) => DATA,
        AppError::Bind { .. } => UNAVAILABLE,
        AppError::Store(error) => store_exit_code(error),
        _ => DEFECT,
    }
}

fn main() -> ExitCode {
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(shown) => {
            // Help and version are no errors and go to standard output.
            let code = if !shown.use_stderr() {
                0
            } else if is_gate() {
                gate::USAGE
            } else {
                USAGE
            };
            let _broken_pipe = shown.print();
            return ExitCode::from(code);
        }
    };
    if let Command::Assert(args) = &line.command {
        return ExitCode::from(hold(args, &line.log));
    }
    match run(line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let _broken_pipe = writeln!(io::stderr(), "fleet-echo: {}", chain(&failure));
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Whether a command line that cannot be read is one of `assert`, which has exit codes of its own.
fn is_gate() -> bool {
    let read = CommandLine::command().ignore_errors(true).try_get_matches();
    read.is_ok_and(|matches| matches.subcommand_name() == Some("assert"))
}

/// Holds a cluster against limits.
fn hold(args: &AssertArgs, log: &LogArgs) -> u8 {
    let filter = log.filter.as_deref().unwrap_or("warn");
    let logging = match log.format {
        LogFormat::Text => telemetry::log_text(filter),
        LogFormat::Json => telemetry::log_json(filter),
    };
    if let Err(error) = logging {
        let _broken_pipe = writeln!(io::stderr(), "fleet-echo: {}", chain(&error));
        return gate::USAGE;
    }
    gate::run(args, &mut io::stdout(), &mut io::stderr())
}

/// What a fleet does is for the account that Echo runs as: the engine makes files as the process is told to.
fn keep_private(command: &Command) {
    if let Command::Serve(_)
    | Command::Demo(_)
    | Command::Backup(_)
    | Command::Export(_)
    | Command::Repair(_) = command
    {
        rustix::process::umask(Mode::RWXG | Mode::RWXO);
    }
}

fn run(line: CommandLine) -> Result<(), Failure> {
    keep_private(&line.command);
    if let Command::Serve(args) = &line.command
        && let Some(endpoint) = &args.trace.trace_endpoint
    {
        return serve_and_export(args, endpoint, &line.log);
    }
    let usual = if matches!(line.command, Command::Serve(_)) {
        "info"
    } else {
        "warn"
    };
    let filter = line.log.filter.as_deref().unwrap_or(usual);
    match line.log.format {
        LogFormat::Text => telemetry::log_text(filter)?,
        LogFormat::Json => telemetry::log_json(filter)?,
    }
    let mut out = io::stdout();
    match line.command {
        Command::Serve(args) => {
            let runtime = runtime()?;
            let served = runtime.block_on(serve(&args, &mut out));
            // Who waited for threads here would wait for a statement that does not stop.
            runtime.shutdown_background();
            served
        }
        Command::Demo(args) => Ok(runtime()?.block_on(demo::run(&args, &mut out))?),
        Command::Outliers(args) => Ok(cli::outliers::run(&args, &mut out)?),
        Command::Explain(args) => Ok(cli::explain::run(&args, &mut out)?),
        Command::Cost(args) => Ok(cli::cost::run(&args, &mut out)?),
        // Its exit codes are its own, so `main` runs it.
        Command::Assert(_) => Ok(()),
        Command::Rates(args) => Ok(cli::rates::run(&args, &mut out)?),
        Command::Report(args) => Ok(cli::report::run(&args, &mut out)?),
        Command::History(args) => Ok(cli::history::run(&args, &mut out)?),
        Command::Mcp(args) => pass_on(&args),
        Command::Sql(args) => Ok(cli::sql::run(&args, &mut out)?),
        Command::DevCert(args) => Ok(cli::dev_cert::run(&args, &mut out)?),
        Command::Token(args) => Ok(cli::token::run(&args, &mut out, &mut io::stderr())?),
        Command::Backup(args) => Ok(cli::offline::backup::run(&args, &mut out)?),
        Command::Export(args) => Ok(cli::offline::export::run(&args, &mut out)?),
        Command::Repair(args) => Ok(cli::offline::repair::run(&args, &mut out)?),
    }
}

/// Serves, and sends Echo's own spans to a collector until the end.
fn serve_and_export(args: &ServeArgs, endpoint: &str, log: &LogArgs) -> Result<(), Failure> {
    let runtime = runtime()?;
    let exporting = {
        let _entered = runtime.enter();
        Exporting::start(&ExportConfig {
            endpoint: endpoint.to_owned(),
            sample: args.trace.trace_sample,
            cluster: args.trace.trace_cluster.clone(),
        })?
    };
    let filter = log.filter.as_deref().unwrap_or("info");
    match log.format {
        LogFormat::Text => exporting.log_text(filter)?,
        LogFormat::Json => exporting.log_json(filter)?,
    }
    let served = runtime.block_on(serve(args, &mut io::stdout()));
    exporting.finish();
    runtime.shutdown_background();
    served
}

/// Passes messages on between standard input and output and a running Echo.
fn pass_on(args: &McpArgs) -> Result<(), Failure> {
    let runtime = runtime()?;
    let input = tokio::io::BufReader::new(tokio::io::stdin());
    let passed = runtime.block_on(cli::mcp::run(args, input, tokio::io::stdout()));
    // A read of standard input cannot be cancelled, so dropping the runtime would wait until somebody writes or closes it.
    runtime.shutdown_background();
    Ok(passed?)
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::Runtime)
}

async fn serve(args: &ServeArgs, out: &mut (dyn Write + Send)) -> Result<(), Failure> {
    let app = App::start(args).await?;
    let (otlp, http) = (app.otlp_address(), app.http_address());
    let otlp_http = app.otlp_http_address();
    let ready = format!(
        "fleet-echo is ready: otlp={otlp} otlp-http={otlp_http} http={http} db={}",
        args.db.display()
    );
    writeln!(out, "{ready}")
        .and_then(|()| out.flush())
        .map_err(Failure::Print)?;
    Ok(app.run_until_signal().await?)
}

#[cfg(test)]
mod tests {
    use super::CommandLine;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }
}
