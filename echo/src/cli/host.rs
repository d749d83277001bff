//! `fleet-echo host`: what agents report about the processes of a host.

use std::io::{self, Write};

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::cli::scope::ScopeArgs;
use crate::cli::screen::Screen;
use crate::cli::table::wrapped;
use crate::cli::view::{heading, list};
use crate::cli::{CliError, ClientArgs, ToolInput, json_output, query};

mod blocks;
mod tables;

pub(super) use blocks::print_chain;

/// Processes of hosts: causal chains, calls, stacks and graphs.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct HostArgs {
    /// Subcommand.
    #[command(subcommand)]
    pub command: HostCommand,
}

/// Subcommands of `host`.
#[derive(Debug, Clone, Subcommand)]
pub enum HostCommand {
    /// Show what processes lose time to: cause, figures, stack and what to do
    #[command(after_help = EXAMPLES)]
    Chains(ProcessArgs),
    /// Show durations of calls of CUDA, HIP and NCCL by process and function
    #[command(after_help = QUANTILES)]
    Calls(ProcessArgs),
    /// Show the stacks in which threads were sampled, most samples first
    Stacks(ProcessArgs),
    /// Show captures, instantiations and launches of CUDA and HIP graphs
    Graphs(ProcessArgs),
    /// Show what each node reports, what is missing and what to do
    Check(ProcessArgs),
}

/// Process filter.
#[derive(Debug, Clone, Args)]
pub struct ProcessArgs {
    /// Cluster and time window.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Node
    #[arg(long, env = "FLEET_ECHO_NODE")]
    pub node: Option<String>,
    /// Rank within its job
    #[arg(long, env = "FLEET_ECHO_RANK")]
    pub rank: Option<u32>,
    /// Process id
    #[arg(long, env = "FLEET_ECHO_PID")]
    pub pid: Option<u32>,
    /// Maximum number of rows, up to 1000 [default: 50]
    #[arg(long, env = "FLEET_ECHO_LIMIT")]
    pub limit: Option<u32>,
    /// Connection and output format.
    #[command(flatten)]
    pub client: ClientArgs,
}

const EXAMPLES: &str = "\
Examples:
  fleet-echo host chains -c prod --rank 17               # what it loses time to
  fleet-echo host calls --node gpu-7 --pid 4711 -w 15m   # how long calls take
  fleet-echo host stacks --node gpu-7 -o json            # for scripts
  fleet-echo host check                                  # what is not reported

Processes without a rank (one GPU, inference) are listed as well, compared with their own past. \
No chain and no process listed? Start with fleet-echo host check.";

const QUANTILES: &str = "\
p50, p95 and p99 are those of all calls in the window, within a ninth of the durations; WORST p99 is the \
largest p99 of a period of ten seconds.";

/// Runs the command.
pub fn run(args: &HostArgs, screen: &mut Screen<'_>) -> Result<(), CliError> {
    let (args, tool, rows, print): (_, _, _, Printer) = match &args.command {
        HostCommand::Chains(args) => {
            let tool = "fleet.host.get_causal_chains";
            (args, tool, "chains", blocks::chains)
        }
        HostCommand::Calls(args) => {
            let tool = "fleet.host.get_trace_stats";
            (args, tool, "functions", tables::calls)
        }
        HostCommand::Stacks(args) => (args, "fleet.host.get_stacks", "stacks", blocks::stacks),
        HostCommand::Graphs(args) => {
            let tool = "fleet.host.graph_lifecycle";
            (args, tool, "processes", tables::graphs)
        }
        HostCommand::Check(args) => (args, "fleet.host.check", "nodes", tables::check),
    };
    let input = ToolInput::from_scope(&args.scope)
        .with("node", args.node.clone())
        .with("rank", args.rank)
        .with("pid", args.pid)
        .with("limit", args.limit);
    let Some(answer) = query(&args.client, tool, input, screen)? else {
        return Ok(());
    };
    let output = args.client.output;
    if output.is_jsonl() {
        return Ok(json_output::lines(list(&answer, rows), screen)?);
    }
    if output.has_rows_only() {
        return Ok(print(&answer, args, screen)?);
    }
    writeln!(screen, "{}", heading(&answer))?;
    print(&answer, args, screen)?;
    Ok(footer(&answer, screen)?)
}

/// Prints an answer as text, or its rows as CSV.
type Printer = fn(&Value, &ProcessArgs, &mut Screen<'_>) -> io::Result<()>;

/// Prints what the answer leaves out, and its caveats.
fn footer(answer: &Value, screen: &mut Screen<'_>) -> io::Result<()> {
    if answer.get("truncated") == Some(&Value::Bool(true)) {
        let advice = "list truncated: raise --limit, or use --node, --rank or --pid";
        writeln!(screen)?;
        write_wrapped(advice, screen)?;
    }
    match answer.get("note").and_then(Value::as_str) {
        Some(note) => {
            writeln!(screen)?;
            write_wrapped(&format!("note: {note}"), screen)
        }
        None => Ok(()),
    }
}

/// Prints a text, on a terminal wrapped to its width.
fn write_wrapped(text: &str, screen: &mut Screen<'_>) -> io::Result<()> {
    match screen.width {
        Some(width) => writeln!(screen, "{}", wrapped(text, 0, width).join("\n")),
        None => writeln!(screen, "{text}"),
    }
}
