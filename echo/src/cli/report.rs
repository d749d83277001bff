//! `fleet-echo report`: what the GPUs of a day cost, for whoever charges it on.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::cli::connection::ConnectionArgs;
use crate::cli::view::{decimals, list, percent, sanitize, table, text};
use crate::cli::{CliError, get_bytes};

/// What the GPUs of a day cost, by hour, cluster and node.
#[derive(Debug, Clone, Args)]
pub struct ReportArgs {
    /// Which Echo.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// Day of UTC such as 2026-11-21, or `yesterday`, or `today`
    #[arg(
        long,
        value_name = "DAY",
        env = "FLEET_ECHO_DAY",
        required_unless_present = "from"
    )]
    pub day: Option<String>,
    /// Instead of a day: the whole hour at which it begins, RFC 3339
    #[arg(long, value_name = "TIME", conflicts_with = "day", requires = "to")]
    pub from: Option<String>,
    /// The whole hour at which it ends, exclusive
    #[arg(long, value_name = "TIME", requires = "from")]
    pub to: Option<String>,
    /// Cluster; all that the token is for when absent
    #[arg(long, env = "FLEET_ECHO_CLUSTER")]
    pub cluster: Option<String>,
    /// What to write
    // `--log-format` has the identity that the field would give it.
    #[arg(
        id = "report_format",
        long = "format",
        value_enum,
        default_value = "table",
        env = "FLEET_ECHO_FORMAT"
    )]
    pub format: Format,
    /// Also tell hours that are not closed yet, as far as they are known; such a report will change
    #[arg(long)]
    pub allow_open: bool,
    /// File to write to, replaced as a whole; standard output when absent
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// File for what has to be known of the rows (version of FOCUS, window, date of the prices), as JSON
    #[arg(long, value_name = "FILE")]
    pub metadata: Option<PathBuf>,
}

/// What a report is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// CSV in the columns of FOCUS 1.2
    FocusCsv,
    /// The same columns as JSON, with sums
    Json,
    /// Sums for people
    Table,
}

/// Asks, and writes the report.
pub fn run(args: &ReportArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let report = match args.format {
        Format::FocusCsv => get_bytes(&args.connection, "/api/v1/cost.csv", &args.query(true))?,
        Format::Json => get_bytes(&args.connection, "/api/v1/cost.json", &args.query(true))?,
        Format::Table => {
            let mut text = Vec::new();
            print(&sanitize(args.sums()?), &mut text)?;
            text
        }
    };
    if let Some(path) = &args.metadata {
        let sums = args.sums()?;
        let metadata = sums.get("metadata").unwrap_or(&Value::Null);
        replace(path, format!("{metadata}\n").as_bytes())?;
    }
    match &args.out {
        Some(path) => replace(path, &report),
        None => Ok(out.write_all(&report).and_then(|()| out.flush())?),
    }
}

impl ReportArgs {
    fn query(&self, with_rows: bool) -> Vec<(&'static str, String)> {
        let said = [
            ("day", self.day.clone()),
            ("from", self.from.clone()),
            ("to", self.to.clone()),
            ("cluster", self.cluster.clone()),
            ("open", self.allow_open.then(|| true.to_string())),
            ("rows", (!with_rows).then(|| false.to_string())),
        ];
        said.into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }

    /// What the report rests on, and its sums.
    fn sums(&self) -> Result<Value, CliError> {
        let body = get_bytes(&self.connection, "/api/v1/cost.json", &self.query(false))?;
        serde_json::from_slice(&body).map_err(|_no_json| CliError::NotEcho {
            server: self.connection.server.clone(),
            status: 200,
        })
    }
}

/// Writes a file so that nobody ever sees half of it.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let written = fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, path));
    written.map_err(|error| {
        let message = format!("cannot write {}: {error}", path.display());
        CliError::Output(io::Error::new(error.kind(), message))
    })
}

fn print(answer: &Value, out: &mut dyn Write) -> io::Result<()> {
    let metadata = answer.get("metadata").unwrap_or(&Value::Null);
    writeln!(
        out,
        "{} to {}",
        text(metadata, "from"),
        text(metadata, "to")
    )?;
    let open = list(metadata, "open_hours").len();
    if open > 0 {
        writeln!(
            out,
            "{open} hours are not closed: these numbers will change"
        )?;
    }
    if let Some(note) = metadata.get("note").and_then(Value::as_str) {
        writeln!(out, "note: {note}")?;
    }
    let sums = list(answer, "summary");
    if sums.is_empty() {
        return writeln!(out, "no GPU reported");
    }
    let rows: Vec<Vec<String>> = sums
        .iter()
        .map(|sum| {
            vec![
                text(sum, "cluster"),
                text(sum, "rate_class"),
                decimals(sum, "gpu_hours", 2),
                decimals(sum, "cost", 2),
                decimals(sum, "straggler_gpu_hours", 2),
                decimals(sum, "straggler_cost", 2),
                text(sum, "currency"),
                percent(sum, "coverage"),
            ]
        })
        .collect();
    let header = [
        "cluster",
        "rate class",
        "GPU-hours",
        "cost",
        "lost GPU-hours",
        "lost cost",
        "currency",
        "coverage",
    ];
    writeln!(out)?;
    table(out, &header, &rows)
}
