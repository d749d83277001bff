//! Command line of the agent.

mod exit_code;

use std::fmt::Display;
use std::io::{Write, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use clap::FromArgMatches;
use clap::error::ErrorKind;
use fleet_agent::config::{
    CheckArgs, Cli, Command, ExplainArgs, ExportArgs, ImportArgs, InstallArgs, NO_ENDPOINT,
    RecordArgs, ReplayArgs, RunArgs, SimulateArgs, StacksArgs, StartAt, StragglerCheckArgs,
    TraceArgs, command_line,
};
use fleet_agent::endpoint::{SHARD, new_instance, shard_endpoint};
use fleet_agent::explain::{self, ExplainError};
use fleet_agent::import::{self, ImportFailure};
use fleet_agent::install::{self, InstallError};
use fleet_agent::job::layout::Layout;
use fleet_agent::log::init_logging;
use fleet_agent::replay::{self, ReplayError};
use fleet_agent::run::{self, RunError};
use fleet_agent::simulate::{self, SimulateError};
use fleet_agent::trace::{self, ExportError};
use fleet_agent::{check, record, stacks};
use fleet_agent_export::null::Null;
use fleet_agent_export::otlp::{EndpointError, Otlp};
use fleet_agent_health::check as straggler_check;
use indicatif::ProgressBar;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::exit_code::{
    BAD_INPUT, CANNOT_CREATE, INTERNAL_ERROR, NO_INPUT, NO_PERMISSION, USAGE, explain_code, fail,
    import_code, no_runtime, plugin, record_code, replay_code, run_code, simulate_code, stack_code,
};

fn main() -> ExitCode {
    fleet_completion::complete(command_line);
    let matches = command_line().try_get_matches();
    match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => match cli.command {
            Command::Run(args) => run_live(&args),
            Command::Check(args) => run_check(&args),
            Command::StragglerCheck(args) => run_straggler_check(&args),
            Command::Record(args) => run_record(&args),
            Command::Explain(args) => run_explain(&args),
            Command::Trace(args) => run_trace(&args),
            Command::Stacks(args) => run_stacks(&args),
            Command::Replay(args) => run_replay(&args),
            Command::Import(args) => run_import(&args),
            Command::Simulate(args) => run_simulate(&args),
            Command::Export(args) => run_export(&args),
            Command::InstallProfiler(args) => run_install(&args),
            Command::Completion(args) => args.run(&command_line()),
            Command::Man(args) => args.run(command_line()),
        },
        Err(error) => {
            let is_requested = matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            );
            let printed = error.print();
            if is_requested && printed.is_ok() {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(USAGE)
            }
        }
    }
}

fn run_live(args: &RunArgs) -> ExitCode {
    init_logging(ProgressBar::hidden, "info");
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return no_runtime(&error),
    };
    match runtime.block_on(run_to_endpoint(args)) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => fail(run_code(&error), &error.to_string()),
        Err(error) => fail(USAGE, &error.to_string()),
    }
}

/// Watches this host and sends to the endpoint of `args` until a signal stops it.
async fn run_to_endpoint(args: &RunArgs) -> Result<Result<(), RunError>, EndpointError> {
    let stop = shutdown_signal();
    let node = args.node.clone().unwrap_or_else(host_name);
    let args = &RunArgs {
        endpoint: shard_endpoint(&args.sender.connection, &args.endpoint, &args.cluster)?,
        ..args.clone()
    };
    if args.endpoint == NO_ENDPOINT {
        return Ok(Box::pin(run::run(args, &node, Null, stop)).await);
    }
    let link = args.sender.connection.link(&args.endpoint)?;
    let exporter = Otlp::with_link(
        &link,
        new_instance(StartAt::Now.unix_ns(), &node),
        &Arc::default(),
    );
    Ok(Box::pin(run::run(args, &node, exporter, stop)).await)
}

/// Node name of this host.
fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Resolves on SIGTERM or SIGINT.
async fn shutdown_signal() {
    let signals = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    );
    // Without signal handlers the process runs until it is killed.
    let (Ok(mut term), Ok(mut int)) = signals else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}

fn run_check(args: &CheckArgs) -> ExitCode {
    init_logging(ProgressBar::hidden, "off");
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return no_runtime(&error),
    };
    let report = runtime.block_on(check::check());
    let text = if args.json {
        format!("{}\n", report.to_json())
    } else {
        report.to_string()
    };
    if stdout().write_all(text.as_bytes()).is_err() {
        return fail(
            INTERNAL_ERROR,
            "cannot write the findings to standard output",
        );
    }
    if report.can_run() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(NO_PERMISSION)
    }
}

fn run_straggler_check(args: &StragglerCheckArgs) -> ExitCode {
    let check = straggler_check::check(&args.socket);
    plugin(Runtime::new().map(|runtime| runtime.block_on(check)))
}

fn run_record(args: &RecordArgs) -> ExitCode {
    let progress = init_logging(record::progress_bar, "warn");
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return no_runtime(&error),
    };
    let ran = runtime.block_on(record::record(args, shutdown_signal(), &progress));
    progress.finish_and_clear();
    print_summary(
        Ok(ran),
        args.json.then_some(record::summary::Summary::to_json),
        record_code,
    )
}

fn run_explain(args: &ExplainArgs) -> ExitCode {
    let progress = init_logging(explain::progress_bar, "off");
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return no_runtime(&error),
    };
    let explained = runtime.block_on(explain::explain(args, shutdown_signal(), &progress));
    progress.finish_and_clear();
    match explained {
        Ok(summary) => {
            let text = if args.json {
                format!("{}\n", summary.to_json())
            } else {
                summary.to_string()
            };
            match stdout().write_all(text.as_bytes()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => fail(INTERNAL_ERROR, &ExplainError::Output(error).to_string()),
            }
        }
        Err(error) => fail(explain_code(&error), &error.to_string()),
    }
}

fn run_trace(args: &TraceArgs) -> ExitCode {
    init_logging(ProgressBar::hidden, "off");
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return no_runtime(&error),
    };
    match runtime.block_on(explain::trace(args, shutdown_signal())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(explain_code(&error), &error.to_string()),
    }
}

fn run_stacks(args: &StacksArgs) -> ExitCode {
    init_logging(ProgressBar::hidden, "off");
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return no_runtime(&error),
    };
    match runtime.block_on(stacks::sample(args, shutdown_signal())) {
        Ok(profile) => {
            let text = if args.json {
                format!("{}\n", profile.to_json())
            } else {
                profile.to_string()
            };
            let written = stdout().write_all(text.as_bytes());
            written.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
        }
        Err(error) => fail(stack_code(&error), &error.to_string()),
    }
}

fn run_install(args: &InstallArgs) -> ExitCode {
    let own = || install::find_plugin(&std::env::current_exe().unwrap_or_default());
    let plugin = args.plugin.clone().map_or_else(own, Ok);
    match plugin.and_then(|plugin| install::install(&plugin, &args.dir)) {
        Ok(installed) => {
            let written = writeln!(stdout(), "NCCL_PROFILER_PLUGIN={}", installed.display());
            written.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
        }
        Err(error @ InstallError::NoPlugin(_)) => fail(NO_INPUT, &error.to_string()),
        Err(error) => fail(CANNOT_CREATE, &error.to_string()),
    }
}

fn run_replay(args: &ReplayArgs) -> ExitCode {
    let progress = init_logging(replay::progress_bar, "info");
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return no_runtime(&error),
    };
    let ran = runtime.block_on(replay_to(args, &progress));
    progress.finish_and_clear();
    print_summary(
        ran,
        args.json.then_some(replay::summary::Summary::to_json),
        replay_code,
    )
}

fn run_import(args: &ImportArgs) -> ExitCode {
    let progress = init_logging(import::progress_bar, "warn");
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return no_runtime(&error),
    };
    let ran = runtime.block_on(import_to(args, &progress));
    progress.finish_and_clear();
    print_summary(
        ran,
        args.json.then_some(import::Summary::to_json),
        import_code,
    )
}

fn run_simulate(args: &SimulateArgs) -> ExitCode {
    let layout = match args.layout() {
        Ok(layout) => layout,
        Err(message) => return fail(USAGE, &message),
    };
    // The log of each simulated agent is off: the summary adds up thousands of them.
    let progress = init_logging(simulate::progress_bar, &format!("off,{SHARD}=info"));
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return no_runtime(&error),
    };
    let ran = runtime.block_on(simulate_to(args, layout, &progress));
    progress.finish_and_clear();
    print_summary(
        ran,
        args.json.then_some(simulate::summary::Summary::to_json),
        simulate_code,
    )
}

fn run_export(args: &ExportArgs) -> ExitCode {
    match trace::export(args) {
        Ok(summary) => {
            let written = writeln!(stdout(), "{summary}");
            written.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
        }
        Err(error @ ExportError::Write { .. }) => fail(CANNOT_CREATE, &error.to_string()),
        Err(error) => fail(BAD_INPUT, &error.to_string()),
    }
}

/// Replays to the endpoint of `args`.
async fn replay_to(
    args: &ReplayArgs,
    progress: &ProgressBar,
) -> Result<(replay::summary::Summary, Result<(), ReplayError>), EndpointError> {
    let args = &ReplayArgs {
        endpoint: shard_endpoint(&args.connection, &args.endpoint, &args.cluster)?,
        ..args.clone()
    };
    if args.endpoint == NO_ENDPOINT {
        return Ok(replay::replay(args, |_| Null, progress).await);
    }
    let link = args.connection.link(&args.endpoint)?;
    let boot = StartAt::Now.unix_ns();
    let exporter = |node: &str| Otlp::with_link(&link, new_instance(boot, node), &Arc::default());
    Ok(replay::replay(args, exporter, progress).await)
}

/// Imports to the endpoint of `args`.
async fn import_to(
    args: &ImportArgs,
    progress: &ProgressBar,
) -> Result<(import::Summary, Result<(), ImportFailure>), EndpointError> {
    let args = &ImportArgs {
        endpoint: shard_endpoint(&args.connection, &args.endpoint, &args.cluster)?,
        ..args.clone()
    };
    if args.endpoint == NO_ENDPOINT {
        return Ok(import::import(args, |_| Null, progress).await);
    }
    let link = args.connection.link(&args.endpoint)?;
    let boot = StartAt::Now.unix_ns();
    let exporter = |node: &str| Otlp::with_link(&link, new_instance(boot, node), &Arc::default());
    Ok(import::import(args, exporter, progress).await)
}

/// Runs the simulated agents against the endpoint of `args` until they finish or Ctrl-C.
async fn simulate_to(
    args: &SimulateArgs,
    layout: Layout,
    progress: &ProgressBar,
) -> Result<(simulate::summary::Summary, Result<(), SimulateError>), EndpointError> {
    let interrupted = async {
        // Without a signal handler the simulation runs to its end.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let args = &SimulateArgs {
        endpoint: shard_endpoint(&args.connection, &args.endpoint, &args.cluster)?,
        ..args.clone()
    };
    if args.endpoint == NO_ENDPOINT {
        let null = |_: &str, _: &Arc<AtomicU64>| Null;
        return Ok(simulate::simulate(args, layout, null, interrupted, progress).await);
    }
    let link = args.connection.link(&args.endpoint)?;
    let boot = StartAt::Now.unix_ns();
    let exporter = |agent: &str, connections: &Arc<AtomicU64>| {
        Otlp::with_link(&link, new_instance(boot, agent), connections)
    };
    Ok(simulate::simulate(args, layout, exporter, interrupted, progress).await)
}

/// Prints the summary, as JSON if requested, and the error, if any.
fn print_summary<S: Display, E: Display>(
    ran: Result<(S, Result<(), E>), EndpointError>,
    json: Option<fn(&S, Option<&str>) -> Value>,
    code: fn(&E) -> u8,
) -> ExitCode {
    let (summary, result) = match ran {
        Ok(ended) => ended,
        Err(error) => return fail(USAGE, &error.to_string()),
    };
    let error = result.as_ref().err();
    let message = error.map(ToString::to_string);
    let text = match json {
        Some(json) => json(&summary, message.as_deref()).to_string(),
        None => summary.to_string(),
    };
    if writeln!(stdout(), "{text}").is_err() {
        return fail(
            INTERNAL_ERROR,
            "cannot write the summary to standard output",
        );
    }
    match (error.map(code), message) {
        (Some(code), Some(message)) => fail(code, &message),
        _ => ExitCode::SUCCESS,
    }
}
