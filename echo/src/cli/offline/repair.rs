//! `fleet-echo repair`: recovery from a damaged or missing write-ahead log.

use std::io::Write;

use clap::Args;
use echo_core::clock::SystemClock;
use echo_store::duckdb::inventory::Contents;
use echo_store::duckdb::offline::repair::{Repaired, accept_loss, drop_wal};
use serde_json::json;

use crate::cli::CliError;
use crate::cli::offline::DatabaseArgs;

/// Go on without a write-ahead log that is damaged or missing.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
pub struct RepairArgs {
    /// Database.
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Set the write-ahead log (*.wal) aside if the database cannot be opened with it
    #[arg(long, required_unless_present = "accept_loss")]
    pub drop_wal: bool,
    /// Accept that acknowledged events are missing, because the log was lost or a backup was restored
    #[arg(long, conflicts_with = "drop_wal")]
    pub accept_loss: bool,
}

const HELP: &str = "\
The write-ahead log contains the commits of the last seconds that are not in the database file \
yet. If it is corrupted on disk, the engine refuses to open the database. This command renames the \
log to a name that ends with .dropped-TIME and reports what the database contains without it; the \
commits in the log are lost. Nothing is deleted, and an intact log is not touched. Agents only \
resend what was not acknowledged.

  fleet-echo repair --drop-wal --db fleet.duckdb

A server does not start if events that it acknowledged are not in its database: the log may be on another volume, or it was deleted. If it cannot be found, go on without those events:

  fleet-echo repair --accept-loss --db fleet.duckdb";

/// Runs the command.
pub fn run(args: &RepairArgs, out: &mut dyn Write) -> Result<(), CliError> {
    if args.accept_loss {
        let (missing, contents) = accept_loss(&args.database.db, &SystemClock)?;
        if args.database.json {
            let accepted = json!({
                "lost_events": missing,
                "events": contents.events,
                "last_event_id": contents.last_event,
            });
            writeln!(out, "{accepted}")?;
        } else {
            writeln!(
                out,
                "{missing} acknowledged events are missing, which is accepted; the database contains {} events",
                contents.events
            )?;
        }
        return Ok(());
    }
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
        writeln!(out, "the write-ahead log is intact; nothing was changed")?;
        return Ok(());
    };
    writeln!(
        out,
        "the write-ahead log could not be read: {}",
        first_line(&reason)
    )?;
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
        "the database contains {events} events without it; the last has id {last_event}{until}"
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
