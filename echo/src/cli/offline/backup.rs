//! `fleet-echo backup`: a checked copy of the database.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use echo_core::clock::SystemClock;
use echo_store::duckdb::offline::backup::backup;
use serde_json::json;

use crate::cli::CliError;
use crate::cli::offline::DatabaseArgs;

/// Copy the database of a stopped Echo, log and all, and check the copy.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
pub struct BackupArgs {
    /// What is copied.
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// File to make; nothing is ever replaced
    #[arg(value_name = "DEST")]
    pub target: PathBuf,
}

const HELP: &str = "\
The copy needs no log and is opened and counted before it gets its name; the database is only read. While an Echo
runs on it, this exits 75 and says who. To restore, stop Echo, move the database and its .wal away, and copy the
backup to the name that --db says.

  fleet-echo backup --db fleet.duckdb fleet-monday.duckdb";

/// Copies, and says what.
pub fn run(args: &BackupArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let made = backup(&args.database.db, &args.target, &SystemClock)?;
    let contents = made.contents;
    if args.database.json {
        let answer = json!({
            "source": made.source.display().to_string(),
            "target": args.target.display().to_string(),
            "bytes": made.bytes,
            "schema_version": made.schema_version,
            "events": contents.events,
            "last_event_id": contents.last_event,
            "last_received": contents.last_received.map(|at| at.to_string()),
        });
        writeln!(out, "{answer}")?;
    } else {
        writeln!(
            out,
            "{}: {} events, {} bytes, schema {}, checked",
            args.target.display(),
            contents.events,
            made.bytes,
            made.schema_version,
        )?;
    }
    Ok(())
}
