//! `fleet-echo export`: the database as Parquet.

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

/// Write events, samples, verdicts and lost time of a stopped Echo as Parquet.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
pub struct ExportArgs {
    /// What is exported.
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Folder to fill; it must be empty or absent
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Beginning, event time: RFC 3339, Unix milliseconds or `now-7d`; the first event when absent
    #[arg(long, value_name = "TIME")]
    pub from: Option<TimeArg>,
    /// End, in the same forms; after the last event when absent
    #[arg(long, value_name = "TIME")]
    pub to: Option<TimeArg>,
    /// Cluster; all clusters when absent
    #[arg(long, env = "FLEET_ECHO_CLUSTER")]
    pub cluster: Option<ClusterId>,
}

const HELP: &str = "\
One folder per view, cluster and day (UTC): events, op_waits, verdict_history and lost_time, with the columns of the views.
The database is only read. While an Echo runs on it, this exits 75 and says who.

  fleet-echo export --db fleet.duckdb --from 2026-11-01T00:00:00Z --to 2026-12-01T00:00:00Z november
  duckdb -c \"SELECT cluster, day, count(*) FROM 'november/events/**/*.parquet' GROUP BY ALL\"";

/// Exports, and says what.
pub fn run(args: &ExportArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let now = SystemClock.now();
    let from = args.from.map_or(Nanos::EARLIEST, |from| from.resolve(now));
    let to = args.to.map_or(Nanos::LATEST, |to| to.resolve(now));
    let window = Window::new(from, to)
        .ok_or_else(|| CliError::Usage("--from does not lie before --to".to_owned()))?;
    let scope = Scope {
        cluster: args.cluster.clone(),
        window,
    };
    let written = export(&args.database.db, &args.folder, &scope, &SystemClock)?;
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
        writeln!(out, "nothing lies between {from} and {to}")?;
    }
    Ok(())
}
