//! `fleet-echo explain`: why a rank is slow.

use std::io::{self, Write};

use clap::Args;
use serde_json::Value;

use crate::cli::view::{decimals, heading, list, quality, table, text};
use crate::cli::{CliError, Input, ScopeArgs, ServerArgs, answer};

/// Most points of the lag series that are printed; `--json` has all of them.
const MAX_PRINTED: usize = 12;

/// One rank against its peers: what it was judged by, what its host went through, how late it was.
#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// Whom to ask.
    #[command(flatten)]
    pub server: ServerArgs,
    /// What about; the cluster is needed.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Rank within its job
    #[arg(long, env = "FLEET_ECHO_RANK")]
    pub rank: u32,
    /// Job; needed only when the rank reported in several
    #[arg(long, env = "FLEET_ECHO_JOB")]
    pub job: Option<String>,
}

/// Asks, and prints the answer.
pub fn run(args: &ExplainArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let input = Input::of(&args.scope)
        .with("rank", Some(args.rank))
        .with("job", args.job.clone());
    if let Some(answer) = answer(&args.server, "fleet.cluster.explain_rank", input, out)? {
        print(&answer, out)?;
    }
    Ok(())
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
