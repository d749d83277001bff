//! `fleet-echo explain`: cause of a slow rank.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use echo_tools::picture::Format;
use serde_json::Value;

use crate::cli::view::{decimals, heading, list, quality, table, text};
use crate::cli::{CliError, ClientArgs, ScopeArgs, ToolInput, call_tool_for_bytes, query};

/// Name of the tool.
const TOOL: &str = "fleet.cluster.explain_rank";

/// Maximum number of points of the lag series that are printed; `--json` has all of them.
const MAX_PRINTED: usize = 12;

/// One rank compared with its peers: verdict, host evidence and lag.
#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// Connection and output format.
    #[command(flatten)]
    pub client: ClientArgs,
    /// Cluster (required) and time window.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Rank within its job
    #[arg(long, env = "FLEET_ECHO_RANK")]
    pub rank: u32,
    /// Job; required only if the rank reported in several
    #[arg(long, env = "FLEET_ECHO_JOB")]
    pub job: Option<String>,
    /// Also write a plot of the lag over time to this file (`.svg` or `.png`)
    #[arg(long, value_name = "FILE", env = "FLEET_ECHO_PLOT")]
    pub plot: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &ExplainArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let plot = args.plot.as_deref();
    let plot = plot.map(|file| Ok::<_, CliError>((file, format_from_extension(file)?)));
    let plot = plot.transpose()?;
    if let Some(answer) = query(&args.client, TOOL, input(args), out)? {
        print(&answer, out)?;
    }
    plot.map_or(Ok(()), |(file, format)| draw(args, file, format))
}

fn input(args: &ExplainArgs) -> ToolInput {
    ToolInput::from_scope(&args.scope)
        .with("rank", Some(args.rank))
        .with("job", args.job.clone())
}

/// Returns the image format for the extension of the file.
fn format_from_extension(file: &Path) -> Result<Format, CliError> {
    let ending = file.extension().and_then(|ending| ending.to_str());
    let meant = |format: &Format| ending.is_some_and(|end| end.eq_ignore_ascii_case(format.name()));
    Format::ALL.into_iter().find(meant).ok_or_else(|| {
        let file = file.display();
        CliError::Usage(format!("--plot {file}: the name must end in .svg or .png"))
    })
}

fn draw(args: &ExplainArgs, file: &Path, format: Format) -> Result<(), CliError> {
    let input = input(args).with("plot", Some(format.name()));
    let picture = call_tool_for_bytes(&args.client.connection, TOOL, input)?;
    let unwritten = |error: io::Error| {
        let message = format!("{}: {error}", file.display());
        io::Error::new(error.kind(), message)
    };
    Ok(fs::write(file, picture).map_err(unwritten)?)
}

fn print(answer: &Value, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}\n\n{}", heading(answer), text(answer, "summary"))?;
    let evidence = list(answer, "evidence");
    if !evidence.is_empty() {
        writeln!(out)?;
        let header = ["EVIDENCE", "OWN", "PEERS", "Z", "UNIT"];
        let rows: Vec<_> = evidence.iter().map(fact).collect();
        table(out, &header, &rows)?;
    }
    let series = answer.get("lag_series").unwrap_or(&Value::Null);
    let points = list(series, "points");
    if !points.is_empty() {
        writeln!(out)?;
        let header = ["TIME", "ITERATION", "LAG ms", "PEERS ms", "PERIOD ms"];
        let step = points.len().div_ceil(MAX_PRINTED).max(1);
        let rows: Vec<_> = points.iter().step_by(step).map(point).collect();
        table(out, &header, &rows)?;
        if rows.len() < points.len() {
            let (shown, all) = (rows.len(), points.len());
            writeln!(out, "{shown} of {all} points; --json has all of them")?;
        }
    }
    let communicators = list(series, "communicators");
    if !communicators.is_empty() {
        writeln!(out)?;
        let header = ["COMMUNICATOR", "OP", "GPU LAG ms", "BLOCKS"];
        let rows: Vec<_> = communicators.iter().map(communicator).collect();
        table(out, &header, &rows)?;
    }
    writeln!(out, "\n{}", quality(answer))
}

fn fact(evidence: &Value) -> Vec<String> {
    vec![
        text(evidence, "signal"),
        decimals(evidence, "own", 1),
        decimals(evidence, "peers", 1),
        decimals(evidence, "z", 1),
        text(evidence, "unit"),
    ]
}

fn communicator(series: &Value) -> Vec<String> {
    vec![
        text(series, "communicator"),
        text(series, "op"),
        decimals(series, "lag_ms", 2),
        text(series, "blocks"),
    ]
}

fn point(point: &Value) -> Vec<String> {
    vec![
        text(point, "time"),
        decimals(point, "first_iteration", 0),
        decimals(point, "lag_ms", 2),
        decimals(point, "peers_sigma_ms", 2),
        decimals(point, "period_ms", 1),
    ]
}
