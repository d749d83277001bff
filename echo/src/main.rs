//! The program `fleet-echo`: parses the command line, runs the command, and maps the result to an
//! exit code.

use std::env;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use echo_core::clock::SystemClock;
use echo_core::error::chain;
use echo_store::duckdb::sql::worker as sql_worker;
use fleet_echo::app::App;
use fleet_echo::app::read_only::ReadOnlyApp;
use fleet_echo::cli::actions::ActionsArgs;
use fleet_echo::cli::assert::{self as gate, AssertArgs};
use fleet_echo::cli::bundle::BundleArgs;
use fleet_echo::cli::clusters::ClustersArgs;
use fleet_echo::cli::completion::{self, CompletionArgs, ManArgs};
use fleet_echo::cli::context::{self, ContextArgs};
use fleet_echo::cli::cost::CostArgs;
use fleet_echo::cli::dev_cert::DevCertArgs;
use fleet_echo::cli::explain::ExplainArgs;
use fleet_echo::cli::history::HistoryArgs;
use fleet_echo::cli::host::HostArgs;
use fleet_echo::cli::job::JobArgs;
use fleet_echo::cli::lake::LakeCommandArgs;
use fleet_echo::cli::mcp::McpArgs;
use fleet_echo::cli::offline::backup::BackupArgs;
use fleet_echo::cli::offline::export::ExportArgs;
use fleet_echo::cli::offline::repair::RepairArgs;
use fleet_echo::cli::outliers::OutliersArgs;
use fleet_echo::cli::rates::RatesArgs;
use fleet_echo::cli::report::ReportArgs;
use fleet_echo::cli::screen::Screen;
use fleet_echo::cli::sql::SqlArgs;
use fleet_echo::cli::status::StatusArgs;
use fleet_echo::cli::token::TokenArgs;
use fleet_echo::cli::top::TopArgs;
use fleet_echo::config::{DemoArgs, LogArgs, LogFormat, ServeArgs};
use fleet_echo::failure::{Failure, USAGE};
use fleet_echo::import::open::{self, OpenArgs};
use fleet_echo::import::{self, ImportArgs};
use fleet_echo::telemetry::export::{ExportConfig, SpanExport};
use fleet_echo::{cli, demo, telemetry};

/// Finds the GPU rank that holds back a training cluster, the cause and the cost.
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
  fleet-echo demo                     # replays jobs with a slow rank
  fleet-echo serve --db fleet.duckdb --insecure-no-tls   # agents on this host
  fleet-echo status                   # which rank is slow, since when, and why

Exit codes: 0 success, 64 invalid flags or request, 65 invalid database or input file, 69 server \
unavailable, request timed out or port in use, 70 internal error, 74 I/O error, 75 database in use \
by another process. `assert` has its own: 0 within the limits, 1 exceeded, 2 invalid flags, 3 no \
response, 4 not enough data.";

/// Returns the command line, with its commands grouped in the help.
fn command_line() -> clap::Command {
    cli::help::grouped(CommandLine::command())
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Collect from agents, find stragglers, serve queries
    Serve(Box<ServeArgs>),
    /// Replay recorded H200 jobs through real agents and print the verdicts
    Demo(DemoArgs),
    /// Show what traces and dumps of other tools tell: who hangs, who is late, what it costs
    #[command(after_help = import::EXAMPLES)]
    Import(Box<ImportArgs>),
    /// Investigate recordings of hosts without a server: page, tools, SQL and MCP on them
    #[command(after_help = open::EXAMPLES)]
    Open(Box<OpenArgs>),
    /// Show the open incidents: rank, cause, cost and the next command
    Status(StatusArgs),
    /// Show the open incidents on one screen, most expensive first, and obey keys
    Top(TopArgs),
    /// List the clusters that send events
    Clusters(ClustersArgs),
    /// List the ranks that hold back their jobs
    Outliers(OutliersArgs),
    /// Explain why a rank is slow
    Explain(ExplainArgs),
    /// Save everything that is known of an incident in one archive
    Bundle(BundleArgs),
    /// Show what the processes of hosts lose time to: chains, calls, stacks, graphs
    Host(HostArgs),
    /// Show what stragglers cost
    Cost(CostArgs),
    /// Report what a job used and lost, and to what, as `seff` does
    Job(JobArgs),
    /// Check the cost or number of stragglers against limits, for CI
    Assert(AssertArgs),
    /// Check a rates file and list GPUs without a price
    Rates(RatesArgs),
    /// Check a policy of actions: which incidents are reported to which systems
    Actions(ActionsArgs),
    /// Report the costs of a day, as CSV in FOCUS columns
    Report(ReportArgs),
    /// List stored events
    History(HistoryArgs),
    /// Serve the Model Context Protocol on standard input and output
    Mcp(McpArgs),
    /// Run a SQL query over the published views
    Sql(SqlArgs),
    /// Generate certificates for development
    DevCert(DevCertArgs),
    /// Name servers, and choose the one that commands query
    Context(ContextArgs),
    /// Create access tokens
    Token(TokenArgs),
    /// Copy the database, also of a running instance, and verify the copy
    Backup(BackupArgs),
    /// Export the database of a stopped instance as Parquet
    Export(ExportArgs),
    /// Set aside a damaged write-ahead log so that the database opens again
    Repair(RepairArgs),
    /// Show what a lake holds and verify it
    Lake(LakeCommandArgs),
    /// Print a completion script for a shell
    Completion(CompletionArgs),
    /// Write man pages
    #[command(hide = true)]
    Man(ManArgs),
}

fn main() -> ExitCode {
    if sql_worker::is_requested() {
        return sql_worker::run();
    }
    completion::complete(command_line);
    let matches = context::matches(command_line, env::args_os());
    let line = match matches.and_then(|matches| CommandLine::from_arg_matches(&matches)) {
        Ok(line) => line,
        Err(error) => {
            // Help and version are not errors and go to standard output.
            let code = if !error.use_stderr() {
                0
            } else if is_assert() {
                gate::USAGE
            } else {
                USAGE
            };
            let _broken_pipe = error.print();
            return ExitCode::from(code);
        }
    };
    if let Command::Assert(args) = &line.command {
        return ExitCode::from(run_assert(args, &line.log));
    }
    // The client of a session needs every answer; the reader of a list may want no more, as after
    // `| head`.
    let is_session = matches!(&line.command, Command::Mcp(_))
        || matches!(&line.command, Command::Open(args) if args.mcp);
    match run(line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.is_closed_pipe() && !is_session => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_printed() {
                let _broken_pipe = writeln!(io::stderr(), "fleet-echo: {}", chain(&failure));
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Returns whether an invalid command line is for `assert`, which has its own exit codes.
fn is_assert() -> bool {
    let parsed = command_line().ignore_errors(true).try_get_matches();
    parsed.is_ok_and(|matches| matches.subcommand_name() == Some("assert"))
}

/// Runs `assert` and returns its exit code.
fn run_assert(args: &AssertArgs, log: &LogArgs) -> u8 {
    let filter = log.filter.as_deref().unwrap_or("warn");
    if let Err(error) = start_log(log, filter) {
        let _broken_pipe = writeln!(io::stderr(), "fleet-echo: {}", chain(&error));
        return gate::USAGE;
    }
    gate::run(args, &mut io::stdout(), &mut io::stderr())
}

/// Logs to standard error from now on.
fn start_log(log: &LogArgs, filter: &str) -> Result<(), telemetry::LogError> {
    match log.format {
        LogFormat::Text => telemetry::log_text(filter),
        LogFormat::Json => telemetry::log_json(filter),
    }
}

/// Restricts new files to the account that Echo runs as: the database engine creates files with the
/// umask of the process.
fn restrict_file_permissions(command: &Command) {
    if let Command::Serve(_)
    | Command::Demo(_)
    | Command::Import(_)
    | Command::Open(_)
    | Command::Backup(_)
    | Command::Export(_)
    | Command::Repair(_) = command
    {
        rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    }
}

fn run(line: CommandLine) -> Result<(), Failure> {
    restrict_file_permissions(&line.command);
    if let Command::Serve(args) = &line.command
        && let Some(endpoint) = &args.trace.trace_endpoint
    {
        return serve_and_export(args, endpoint, &line.log);
    }
    let default = match line.command {
        Command::Serve(_) => "info",
        // Only this command uses their instance, so warnings about plain text do not apply.
        Command::Demo(_) | Command::Import(_) | Command::Open(_) => {
            "warn,fleet_echo::app::inputs=error"
        }
        _ => "warn",
    };
    let filter = line.log.filter.as_deref().unwrap_or(default);
    start_log(&line.log, filter)?;
    let mut out = io::stdout();
    match line.command {
        Command::Serve(args) => until_done(serve(&args, &mut out))?,
        Command::Import(args) => Ok(runtime()?.block_on(import::run(&args, &mut out))?),
        Command::Open(args) => run_open(&args, &mut out),
        Command::Demo(args) => Ok(runtime()?.block_on(demo::run(&args, &mut out))?),
        Command::Status(args) => Ok(cli::status::run(&args, &mut Screen::stdout(&mut out))?),
        Command::Top(args) => Ok(cli::top::run(&args, &mut out)?),
        Command::Clusters(args) => Ok(cli::clusters::run(&args, &mut Screen::stdout(&mut out))?),
        Command::Outliers(args) => Ok(cli::outliers::run(&args, &mut Screen::stdout(&mut out))?),
        Command::Explain(args) => Ok(cli::explain::run(&args, &mut Screen::stdout(&mut out))?),
        Command::Bundle(args) => Ok(cli::bundle::run(&args, &mut Screen::stdout(&mut out))?),
        Command::Host(args) => Ok(cli::host::run(&args, &mut Screen::stdout(&mut out))?),
        Command::Cost(args) => Ok(cli::cost::run(&args, &mut Screen::stdout(&mut out))?),
        Command::Job(args) => Ok(cli::job::run(&args, &mut Screen::stdout(&mut out))?),
        // `main` runs it, because it has its own exit codes.
        Command::Assert(_) => Ok(()),
        Command::Rates(args) => Ok(cli::rates::run(&args, &mut Screen::stdout(&mut out))?),
        Command::Actions(args) => Ok(cli::actions::run(&args, &mut out)?),
        Command::Report(args) => Ok(cli::report::run(&args, &mut Screen::stdout(&mut out))?),
        Command::History(args) => Ok(cli::history::run(&args, &mut Screen::stdout(&mut out))?),
        Command::Mcp(args) => run_mcp(&args),
        Command::Sql(args) => Ok(cli::sql::run(&args, &mut Screen::stdout(&mut out))?),
        Command::Completion(args) => Ok(completion::run(&args, &command_line(), &mut out)?),
        Command::Man(args) => Ok(completion::write_man_pages(&args, command_line())?),
        Command::DevCert(args) => Ok(cli::dev_cert::run(&args, &mut out)?),
        Command::Context(args) => Ok(context::run(&args, &mut Screen::stdout(&mut out))?),
        Command::Token(args) => Ok(cli::token::run(&args, &mut out, &mut io::stderr())?),
        Command::Backup(args) => Ok(cli::offline::backup::run(&args, &mut out)?),
        Command::Export(args) => Ok(cli::offline::export::run(&args, &mut out)?),
        Command::Repair(args) => Ok(cli::offline::repair::run(&args, &mut out)?),
        Command::Lake(args) => Ok(cli::lake::run(&args, &mut Screen::stdout(&mut out))?),
    }
}

/// Serves, and exports Echo's own spans to a collector until shutdown.
fn serve_and_export(args: &ServeArgs, endpoint: &str, log: &LogArgs) -> Result<(), Failure> {
    let runtime = runtime()?;
    let export = {
        let _entered = runtime.enter();
        SpanExport::start(&ExportConfig {
            endpoint: endpoint.to_owned(),
            sample: args.trace.trace_sample,
            cluster: args.trace.trace_cluster.clone(),
        })?
    };
    let filter = log.filter.as_deref().unwrap_or("info");
    match log.format {
        LogFormat::Text => export.log_text(filter)?,
        LogFormat::Json => export.log_json(filter)?,
    }
    let served = runtime.block_on(serve(args, &mut io::stdout()));
    export.finish();
    runtime.shutdown_background();
    served
}

/// Runs the MCP proxy between standard input and output and a running instance.
fn run_mcp(args: &McpArgs) -> Result<(), Failure> {
    let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
    let input = tokio::io::BufReader::new(input);
    Ok(until_done(cli::mcp::run(args, input, output))??)
}

/// Opens recordings. In a session standard output belongs to its messages.
fn run_open(args: &OpenArgs, out: &mut (dyn Write + Send)) -> Result<(), Failure> {
    let mut stderr = io::stderr();
    let out = if args.mcp { &mut stderr } else { out };
    Ok(until_done(open::run(args, out))??)
}

/// Runs to the end, without waiting for threads: a read of standard input cannot be cancelled, so that dropping the
/// runtime would wait for the next write or for EOF.
fn until_done<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = runtime()?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    Ok(result)
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::Runtime)
}

async fn serve(args: &ServeArgs, out: &mut (dyn Write + Send)) -> Result<(), Failure> {
    if args.lake.read_only {
        return serve_lake(args, out).await;
    }
    let app = App::start(args, std::sync::Arc::new(SystemClock)).await?;
    let (otlp, http) = (app.otlp_address(), app.http_address());
    let otlp_http = app.otlp_http_address();
    let ready = format!(
        "fleet-echo is ready: otlp={otlp} otlp-http={otlp_http} http={http} db={}\n{}",
        args.db.display(),
        first_steps(args, otlp, http)
    );
    // In one piece: a supervisor may close the pipe after the first line.
    out.write_all(ready.as_bytes())
        .and_then(|()| out.flush())
        .map_err(Failure::Print)?;
    Ok(app.run_until_signal().await?)
}

/// Serves the rows of a lake.
async fn serve_lake(args: &ServeArgs, out: &mut (dyn Write + Send)) -> Result<(), Failure> {
    let app = ReadOnlyApp::start(args, std::sync::Arc::new(SystemClock)).await?;
    let http = app.http_address();
    let scheme = args.security.tls().map_or("http", |_| "https");
    let ready =
        format!("fleet-echo is ready: http={http} (reads a lake)\n  page   {scheme}://{http}/\n");
    out.write_all(ready.as_bytes())
        .and_then(|()| out.flush())
        .map_err(Failure::Print)?;
    Ok(app.run_until_signal().await?)
}

/// The address of the page, and the command line of an agent.
fn first_steps(args: &ServeArgs, otlp: SocketAddr, http: SocketAddr) -> String {
    let security = &args.security;
    let scheme = security.tls().map_or("http", |_| "https");
    let host = |address: SocketAddr| {
        if address.ip().is_unspecified() {
            format!("HOST:{}", address.port())
        } else {
            address.to_string()
        }
    };
    let flags = [
        (security.access.is_some(), " --token-file FILE"),
        (
            security.client_ca.is_some(),
            " --tls-cert FILE --tls-key FILE",
        ),
    ];
    let flags = flags.into_iter().filter(|(is_needed, _)| *is_needed);
    let flags: String = flags.map(|(_, flag)| flag).collect();
    let (page, endpoint) = (host(http), host(otlp));
    format!(
        "  page   {scheme}://{page}/\n  agent  fleet-agent run --cluster NAME --endpoint {scheme}://{endpoint}{flags}\n"
    )
}

#[cfg(test)]
mod tests {
    use fleet_completion::testing::{check_examples, check_groups};
    use fleet_echo::cli::help::GROUPS;

    use super::command_line;

    #[test]
    fn the_command_line_is_consistent() {
        command_line().debug_assert();
    }

    #[test]
    fn the_help_lists_every_command_once() {
        check_groups(&command_line(), &GROUPS);
    }

    #[test]
    fn every_command_has_examples_that_can_be_pasted() {
        check_examples(&command_line());
    }
}
