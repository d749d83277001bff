//! `fleet-echo lake`: what a lake holds, and whether it is consistent.

use std::io::{self, Write};

use clap::{Args, Subcommand};
use echo_lake::error::LakeError;
use echo_lake::overview::{InstanceSlices, Lake};
use serde::Serialize;
use serde_json::Value;

use crate::cli::column::Column;
use crate::cli::output::OutputArgs;
use crate::cli::screen::Screen;
use crate::cli::table::Table;
use crate::cli::view::text;
use crate::cli::{json_output, store_exit_code};
use crate::config::lake::LakeLocationArgs;

/// Reads a lake directly, without an instance.
#[derive(Debug, Clone, Args)]
pub struct LakeCommandArgs {
    /// What to do
    #[command(subcommand)]
    pub command: LakeCommand,
}

/// What to do with a lake.
#[derive(Debug, Clone, Subcommand)]
pub enum LakeCommand {
    /// Show which events of which instances the lake has
    Status(LakeReadArgs),
    /// Compare the rows of the lake with its slices: nothing lost, nothing twice
    Verify(LakeReadArgs),
}

/// Location of the lake, and output format.
#[derive(Debug, Clone, Args)]
pub struct LakeReadArgs {
    /// Location
    #[command(flatten)]
    pub location: LakeLocationArgs,
    /// Output
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Error of a command for a lake.
#[derive(Debug, thiserror::Error)]
pub enum LakeCommandError {
    /// The flags are invalid.
    #[error("{0}")]
    Flags(String),
    /// The lake cannot be read.
    #[error(transparent)]
    Lake(#[from] LakeError),
    /// The output cannot be written.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
    /// The lake is not consistent.
    #[error("the lake is not consistent: {0} problems")]
    Inconsistent(usize),
}

impl LakeCommandError {
    /// Returns the exit code.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Flags(_) | Self::Lake(LakeError::Setting(_) | LakeError::File { .. }) => 64,
            Self::Lake(LakeError::Diverged { .. }) | Self::Inconsistent(_) => 65,
            Self::Lake(LakeError::Engine { .. }) => 69,
            Self::Lake(LakeError::Store(error)) => store_exit_code(error),
            Self::Output(_) => 74,
        }
    }
}

const INSTANCES: [Column<'_>; 9] = [
    Column::text("INSTANCE", "instance"),
    Column::number("SLICES", "slices", |row| text(row, "slices")),
    Column::number("EVENTS", "events", |row| text(row, "events")),
    Column::number("MISSING", "missing_events", |row| {
        text(row, "missing_events")
    }),
    Column::number("LAST EVENT", "last_event", |row| text(row, "last_event")),
    Column::number("VERDICTS", "verdicts", |row| text(row, "verdicts")),
    Column::number("HOURS", "hours", |row| text(row, "hours")),
    Column::text("OPEN SINCE", "open_since"),
    Column::text("LAST COMMIT", "committed"),
];

/// Runs the command.
pub fn run(args: &LakeCommandArgs, screen: &mut Screen<'_>) -> Result<(), LakeCommandError> {
    let (LakeCommand::Status(read) | LakeCommand::Verify(read)) = &args.command;
    let lake = open(&read.location)?;
    match &args.command {
        LakeCommand::Status(read) => {
            let (instances, files) = (lake.status()?, lake.files()?);
            if read.output.is_json() {
                let answer = serde_json::json!({ "instances": instances, "files": files.files, "bytes": files.bytes });
                return print_json(&answer, screen);
            }
            print_table(&instances, read.output, screen)?;
            if read.output.has_rows_only() {
                return Ok(());
            }
            let megabytes = files.bytes / 1_000_000;
            Ok(writeln!(screen, "{} files, {megabytes} MB", files.files)?)
        }
        LakeCommand::Verify(read) => {
            let verification = lake.verify()?;
            if read.output.is_json() {
                print_json(&verification, screen)?;
            } else {
                print_table(&verification.instances, read.output, screen)?;
                if !read.output.has_rows_only() {
                    print_problems(&verification.problems, screen)?;
                }
            }
            match verification.problems.len() {
                0 => Ok(()),
                n => Err(LakeCommandError::Inconsistent(n)),
            }
        }
    }
}

fn open(location: &LakeLocationArgs) -> Result<Lake, LakeCommandError> {
    let mut wrong = Vec::new();
    let config = location.lake(&mut wrong);
    if !wrong.is_empty() {
        return Err(LakeCommandError::Flags(wrong.join("; ")));
    }
    let absent = || LakeCommandError::Flags("--lake or --lake-catalog-file is required".to_owned());
    Ok(Lake::open(&config.ok_or_else(absent)?)?)
}

fn print_json(answer: &impl Serialize, screen: &mut Screen<'_>) -> Result<(), LakeCommandError> {
    let mut document = serde_json::to_vec(answer).map_err(io::Error::from)?;
    document.push(b'\n');
    Ok(json_output::print(&document, screen)?)
}

fn print_problems(problems: &[String], screen: &mut Screen<'_>) -> io::Result<()> {
    for problem in problems {
        writeln!(screen, "{problem}")?;
    }
    if problems.is_empty() {
        let consistent = "consistent: every row belongs to a slice, none is there twice";
        writeln!(screen, "{consistent}")?;
    }
    Ok(())
}

fn print_table(
    instances: &[InstanceSlices],
    output: OutputArgs,
    screen: &mut Screen<'_>,
) -> Result<(), LakeCommandError> {
    let rows: Vec<Value> = instances.iter().map(row).collect();
    let table = Table::new(&INSTANCES, &rows);
    if output.has_rows_only() {
        return Ok(table.write_rows(output, screen)?);
    }
    if rows.is_empty() {
        return Ok(writeln!(
            screen,
            "the lake is empty: no instance has committed a slice yet"
        )?);
    }
    Ok(table.print(output.layout(), screen)?)
}

/// Returns the fields of a row, with the times as text.
fn row(slices: &InstanceSlices) -> Value {
    let mut row = serde_json::json!(slices);
    let times = [
        ("open_since", slices.open_since_ns),
        ("committed", Some(slices.committed_ns)),
    ];
    for (name, nanos) in times {
        let time = nanos.map(|nanos| jiff::Timestamp::from_nanosecond(nanos.into()));
        if let (Some(Ok(time)), Some(fields)) = (time, row.as_object_mut()) {
            fields.insert(name.to_owned(), format!("{time:.0}").into());
        }
    }
    row
}
