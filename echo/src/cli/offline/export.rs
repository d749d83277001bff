//! `fleet-echo export`: export of the database as Parquet.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use echo_core::clock::{Clock, SystemClock};
use echo_core::ids::ClusterId;
use echo_core::units::{Nanos, Window};
use echo_store::duckdb::inventory::{Partition, Scope};
use echo_store::duckdb::offline::export::export;
use echo_tools::time::TimeArg;
use serde_json::json;

use crate::cli::CliError;
use crate::cli::offline::DatabaseArgs;
use crate::progress::spinner;

/// Export events, samples, verdicts and lost time of a stopped instance as Parquet.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
pub struct ExportArgs {
    /// Database.
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Output directory; must be empty or missing
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Start, event time: RFC 3339, Unix milliseconds or relative such as `now-7d` [default: first
    /// event]
    #[arg(long, value_name = "TIME")]
    pub from: Option<TimeArg>,
    /// End, in the same formats [default: after the last event]
    #[arg(long, value_name = "TIME")]
    pub to: Option<TimeArg>,
    /// Cluster [default: all]
    #[arg(long, env = "FLEET_ECHO_CLUSTER")]
    pub cluster: Option<ClusterId>,
}

const HELP: &str = "\
Writes one directory per view, cluster and day (UTC): events, op_waits, verdict_history and \
lost_time, with the columns of the views. The database is only read. Exits with 75 and names the \
process if an instance has the database open.

  fleet-echo export --db fleet.duckdb november \\
      --from 2026-11-01T00:00:00Z --to 2026-12-01T00:00:00Z
  duckdb -c \"SELECT count(*) FROM 'november/events/**/*.parquet'\"";

/// Runs the command.
pub fn run(args: &ExportArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let now = SystemClock.now();
    let from = args.from.map_or(Nanos::EARLIEST, |from| from.resolve(now));
    let to = args.to.map_or(Nanos::LATEST, |to| to.resolve(now));
    let window = Window::new(from, to)
        .ok_or_else(|| CliError::Usage("--from must be before --to".to_owned()))?;
    let scope = Scope {
        cluster: args.cluster.clone(),
        window,
    };
    let spinner = spinner(format!("exporting {}", args.database.db.display()));
    let written = export(&args.database.db, &args.folder, &scope, &SystemClock);
    drop(spinner);
    let written = written?;
    if args.database.json {
        let rows = |part: &Partition| json!({ "dataset": part.dataset, "cluster": part.cluster, "day": part.day, "rows": part.rows });
        let answer = json!({
            "folder": args.folder.display().to_string(),
            "partitions": written.iter().map(rows).collect::<Vec<_>>(),
        });
        writeln!(out, "{answer}")?;
        return Ok(());
    }
    for part in &written {
        let Partition {
            dataset,
            cluster,
            day,
            rows,
        } = part;
        writeln!(out, "{dataset}/cluster={cluster}/day={day}  {rows} rows")?;
    }
    if written.is_empty() {
        writeln!(out, "no data between {from} and {to}")?;
    }
    Ok(())
}
