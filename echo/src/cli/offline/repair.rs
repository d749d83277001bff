//! `fleet-echo repair`: makes a database usable again whose log is damaged.

use std::io::Write;

use clap::Args;
use echo_core::clock::SystemClock;
use echo_store::duckdb::inventory::Contents;
use echo_store::duckdb::offline::repair::{Repaired, drop_wal};
use serde_json::json;

use crate::cli::CliError;
use crate::cli::offline::DatabaseArgs;

/// Set a damaged log aside, so that the database can be opened without it.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
pub struct RepairArgs {
    /// What is repaired.
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Set the log (*.wal) aside if the database cannot be opened with it
    #[arg(long, required = true)]
    pub drop_wal: bool,
}

const HELP: &str = "\
The log holds what was committed in the last seconds and is not in the database file yet. When a bit of it flips on the
disk, the engine refuses to open the database, rightly: it cannot tell what else is wrong. This moves the log out of the
way, under a name that ends with .dropped-TIME, and says what is left; those seconds are lost to Echo. Nothing is
deleted, and a sound log is left alone. Agents send again only what was not acknowledged.

  fleet-echo repair --drop-wal --db fleet.duckdb";

/// Repairs, and says what was done.
pub fn run(args: &RepairArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let repaired = drop_wal(&args.database.db, &SystemClock)?;
    if args.database.json {
        writeln!(out, "{}", as_json(&repaired))?;
        return Ok(());
    }
    let Repaired::SetAside {
        files,
        reason,
        contents,
    } = repaired
    else {
        writeln!(out, "the log is sound; nothing was changed")?;
        return Ok(());
    };
    writeln!(out, "the log could not be read: {}", first_line(&reason))?;
    for (file, bytes) in files {
        writeln!(out, "set aside: {} ({bytes} bytes)", file.display())?;
    }
    let Contents {
        events,
        last_event,
        last_received,
    } = contents;
    let until = last_received.map_or_else(String::new, |at| format!(", received at {at}"));
    writeln!(
        out,
        "the database has {events} events without it; the last is number {last_event}{until}"
    )?;
    Ok(())
}

fn as_json(repaired: &Repaired) -> serde_json::Value {
    match repaired {
        Repaired::Sound => json!({ "changed": false }),
        Repaired::SetAside {
            files,
            reason,
            contents,
        } => {
            let files = files.iter();
            let files = files
                .map(|(file, bytes)| json!({ "path": file.display().to_string(), "bytes": bytes }));
            json!({
                "changed": true,
                "set_aside": files.collect::<Vec<_>>(),
                "reason": first_line(reason),
                "events": contents.events,
                "last_event_id": contents.last_event,
                "last_received": contents.last_received.map(|at| at.to_string()),
            })
        }
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
