//! `fleet-echo backup`: verified copy of the database.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use echo_core::clock::SystemClock;
use echo_store::duckdb::offline::backup::backup;
use serde_json::json;

use crate::cli::CliError;
use crate::cli::offline::DatabaseArgs;
use crate::progress::spinner;

/// Copy a database with its write-ahead log, also of a running instance, and verify the copy.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
pub struct BackupArgs {
    /// Database.
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// File to create; existing files are never replaced
    #[arg(value_name = "DEST")]
    pub target: PathBuf,
}

const HELP: &str = "\
The copy needs no write-ahead log, and is opened and counted before it gets its final name. The \
database is only read. A running instance goes on storing events; the copy has all that it had \
acknowledged when the backup began. Its log grows meanwhile: if it reaches 512 MiB, the backup fails. \
To restore, stop the instance, move the database and its .wal file away, and copy the backup to \
the path of --db.

  fleet-echo backup --db fleet.duckdb fleet-monday.duckdb";

/// Runs the command.
pub fn run(args: &BackupArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let spinner = spinner(format!("copying {}", args.database.db.display()));
    let made = backup(&args.database.db, &args.target, &SystemClock);
    drop(spinner);
    let made = made?;
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
            "{}: {} events, {} bytes, schema {}, verified",
            args.target.display(),
            contents.events,
            made.bytes,
            made.schema_version,
        )?;
    }
    Ok(())
}
