//! `fleet-echo explain`: cause of a slow rank.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use echo_tools::picture::Format;
use serde_json::Value;

use crate::cli::column::Column;
use crate::cli::host::print_chain;
use crate::cli::output::{OutputArgs, write_file};
use crate::cli::scope::ScopeArgs;
use crate::cli::screen::Screen;
use crate::cli::table::{Table, write_lines};
use crate::cli::view::{advice, gpu, heading, list, quality, recurrence, text};
use crate::cli::{CliError, ClientArgs, ToolInput, call_tool_for_bytes, get_bytes, query};

/// Name of the tool.
const TOOL: &str = "fleet.cluster.explain_rank";

/// Path of traces on the server.
const TRACE_PATH: &str = "/api/v1/trace.json";

/// Maximum number of points of the lag series that are printed; `--json` has all of them.
const MAX_PRINTED: usize = 12;

/// One rank compared with its peers: verdict, host evidence and lag.
#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// Cluster [default: the only one] and time window.
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
    /// Also write a trace of this rank beside one of its peers to this file, for ui.perfetto.dev
    #[arg(long, value_name = "FILE", env = "FLEET_ECHO_TRACE")]
    pub trace: Option<PathBuf>,
    /// Connection and output format.
    #[command(flatten)]
    pub client: ClientArgs,
}

const EVIDENCE: [Column<'_>; 6] = [
    Column::text("EVIDENCE", "signal"),
    Column::decimals("OWN", "own", 1),
    Column::decimals("PEERS", "peers", 1),
    Column::decimals("Z", "z", 1),
    Column::text("UNIT", "unit"),
    Column::text("MEANING", "meaning").wide(),
];

const LAG: [Column<'_>; 5] = [
    Column::text("TIME", "time"),
    Column::decimals("ITERATION", "first_iteration", 0),
    Column::decimals("LAG ms", "lag_ms", 2),
    Column::decimals("PEERS ms", "peers_sigma_ms", 2),
    Column::decimals("PERIOD ms", "period_ms", 1),
];

const COMMUNICATORS: [Column<'_>; 4] = [
    Column::text("COMMUNICATOR", "communicator"),
    Column::text("OP", "op"),
    Column::decimals("GPU LAG ms", "lag_ms", 2),
    Column::count("BLOCKS", "blocks"),
];

/// Runs the command.
pub fn run(args: &ExplainArgs, screen: &mut Screen<'_>) -> Result<(), CliError> {
    let plot = args.plot.as_deref();
    let plot = plot.map(|file| Ok::<_, CliError>((file, format_from_extension(file)?)));
    let plot = plot.transpose()?;
    if let Some(answer) = query(&args.client, TOOL, input(args), screen)? {
        let output = args.client.output;
        if output.has_rows_only() {
            let points = answer
                .pointer("/lag_series")
                .map_or(&[][..], |series| list(series, "points"));
            Table::new(&LAG, points).write_rows(output, screen)?;
        } else {
            print(&answer, output, screen)?;
        }
    }
    if let Some((file, format)) = plot {
        draw(args, file, format)?;
    }
    match &args.trace {
        Some(file) => write_trace(args, file),
        None => Ok(()),
    }
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
    Ok(write_file(file, &picture)?)
}

/// Writes a trace of the rank beside one of its peers, as the server makes it.
fn write_trace(args: &ExplainArgs, file: &Path) -> Result<(), CliError> {
    let scope = &args.scope;
    let optional = [
        ("cluster", &scope.cluster),
        ("job", &args.job),
        ("from", &scope.from),
        ("to", &scope.to),
        ("window", &scope.window),
    ];
    let given = optional
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.clone()?)));
    let query: Vec<_> = [("rank", args.rank.to_string())]
        .into_iter()
        .chain(given)
        .collect();
    let trace = get_bytes(&args.client.connection, TRACE_PATH, &query)?;
    Ok(write_file(file, &trace)?)
}

fn print(answer: &Value, output: OutputArgs, screen: &mut Screen<'_>) -> io::Result<()> {
    writeln!(screen, "{}", heading(answer))?;
    writeln!(screen, "{}\n", identity(answer))?;
    let summary = text(answer, "summary");
    write_lines(screen, &summary)?;
    let most_severe = list(answer, "incidents").first();
    if let Some(sentence) = most_severe.and_then(recurrence) {
        write_lines(screen, &format!("recurs: {sentence}"))?;
    }
    for line in most_severe.map(advice).unwrap_or_default() {
        write_lines(screen, &format!("do: {line}"))?;
    }
    let evidence = list(answer, "evidence");
    if !evidence.is_empty() {
        writeln!(screen)?;
        Table::new(&EVIDENCE, evidence).print(output.layout(), screen)?;
    }
    for chain in list(answer.get("host").unwrap_or(&Value::Null), "chains") {
        writeln!(screen)?;
        print_chain(chain, screen)?;
    }
    let series = answer.get("lag_series").unwrap_or(&Value::Null);
    let points = list(series, "points");
    if !points.is_empty() {
        writeln!(screen)?;
        let step = points.len().div_ceil(MAX_PRINTED).max(1);
        let rows: Vec<_> = points.iter().step_by(step).cloned().collect();
        Table::new(&LAG, &rows).print(output.layout(), screen)?;
        if rows.len() < points.len() {
            let (shown, all) = (rows.len(), points.len());
            writeln!(
                screen,
                "{shown} of {all} points; --json and --output csv have all of them"
            )?;
        }
    }
    let communicators = list(series, "communicators");
    if !communicators.is_empty() {
        writeln!(screen)?;
        Table::new(&COMMUNICATORS, communicators).print(output.layout(), screen)?;
    }
    writeln!(screen, "\n{}", quality(answer))
}

/// Rank, node, GPU and job.
fn identity(answer: &Value) -> String {
    let who = answer.get("who").unwrap_or(&Value::Null);
    let named = |what: &str, name: &str| {
        let found = who.get(name).and_then(Value::as_str)?;
        Some(format!("{what} {found}"))
    };
    let gpu = Some(gpu(who)).filter(|gpu| gpu != "-");
    let place = format!("rank {} on {}", text(who, "rank"), text(who, "node_id"));
    let parts = [Some(place), gpu, named("job", "job"), named("pod", "pod")];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
