//! `fleet-echo job`: what one job used and lost, for its owner.

use std::io::{self, Write};

use clap::Args;
use serde_json::Value;

use crate::cli::column::Column;
use crate::cli::cost::lost;
use crate::cli::output::OutputArgs;
use crate::cli::scope::ScopeArgs;
use crate::cli::screen::Screen;
use crate::cli::table::Table;
use crate::cli::view::{decimals, heading, list, number, percent, quality};
use crate::cli::{CliError, ClientArgs, ToolInput, query};

/// Examples for the help.
const EXAMPLES: &str = "\
Examples: at the end of the script of a Slurm job:
  fleet-echo job \"$SLURM_JOB_ID\"
As an annotation of a Kubernetes Job whose pods set JOB_NAME to train:
  lost=$(fleet-echo job train --json | jq -e .lost_gpu_hours)
  kubectl annotate --overwrite job train echo/lost-gpu-hours=\"$lost\"

The report covers all times, unless --window, --from or --to says otherwise: of a name that is used again, give \
the time of the job. Jobs of the same name in several namespaces are one job.";

/// Job, time window and format.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct JobArgs {
    /// Name of the job, as the launcher or Slurm gives it; `fleet-echo cost` lists those that lost time
    #[arg(value_name = "JOB")]
    pub job: String,
    /// Cluster and time window.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Maximum number of incidents listed, the most expensive
    #[arg(long, default_value_t = 3)]
    pub limit: u32,
    /// Connection and output format.
    #[command(flatten)]
    pub client: ClientArgs,
}

const INCIDENTS: [Column<'_>; 9] = [
    Column::money("COST", "cost"),
    Column::text("", "currency"),
    Column::decimals("GPU-HOURS", "lost_gpu_hours", 4),
    Column::state(),
    Column::text("NODE", "node_id"),
    Column::count("RANK", "rank"),
    Column::text("KIND", "kind"),
    Column::text("INCIDENT", "incident_id").wide(),
    Column::sentence("REASON", "reason"),
];

/// Runs the command.
pub fn run(args: &JobArgs, screen: &mut Screen<'_>) -> Result<(), CliError> {
    let mut scope = args.scope.clone();
    let ScopeArgs {
        window, from, to, ..
    } = &scope;
    if window.is_none() && from.is_none() && to.is_none() {
        scope.window = Some("all".to_owned());
    }
    let input = ToolInput::from_scope(&scope)
        .with("job", Some(args.job.clone()))
        .with("limit", Some(args.limit));
    let Some(answer) = query(&args.client, "fleet.cluster.get_cost", input, screen)? else {
        return Ok(());
    };
    let output = args.client.output;
    if output.has_rows_only() {
        let table = Table::new(&INCIDENTS, list(&answer, "contributors"));
        return Ok(table.write_rows(output, screen)?);
    }
    Ok(print(&args.job, &answer, output, screen)?)
}

fn print(job: &str, answer: &Value, output: OutputArgs, out: &mut Screen<'_>) -> io::Result<()> {
    writeln!(out, "job {job}, {}\n", heading(answer))?;
    writeln!(
        out,
        "GPU-hours used   {}",
        decimals(answer, "allocated_gpu_hours", 4)
    )?;
    let (hours, share) = (
        decimals(answer, "lost_gpu_hours", 4),
        percent(answer, "lost_ratio"),
    );
    writeln!(out, "GPU-hours lost   {hours}, {share}")?;
    writeln!(out, "cost of the loss {}", lost(answer, "window_total"))?;
    if number(answer, "unpriced_gpu_hours").is_some_and(|hours| hours > 0.0) {
        let hours = decimals(answer, "unpriced_gpu_hours", 4);
        writeln!(out, "without a price  {hours} GPU-hours")?;
    }
    let incidents = list(answer, "contributors");
    if !incidents.is_empty() {
        writeln!(out)?;
        Table::new(&INCIDENTS, incidents).print(output.layout(), out)?;
    }
    let left_out = number(answer, "contributors_left_out").unwrap_or(0.0);
    if left_out > 0.0 {
        writeln!(out, "{left_out} more: raise --limit")?;
    }
    writeln!(out, "\n{}", quality(answer))
}
