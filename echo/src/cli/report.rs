//! `fleet-echo report`: GPU costs of a day, for chargeback.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::cli::column::{Column, Layout};
use crate::cli::connection::ConnectionArgs;
use crate::cli::screen::Screen;
use crate::cli::table::Table;
use crate::cli::view::{list, sanitize, text};
use crate::cli::{CliError, get_bytes, json_output};

/// GPU costs of a day, by hour, cluster and node.
#[derive(Debug, Clone, Args)]
pub struct ReportArgs {
    /// Connection.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// Day in UTC: a date such as 2026-11-21, `yesterday` or `today`
    #[arg(
        long,
        value_name = "DAY",
        env = "FLEET_ECHO_DAY",
        required_unless_present = "from"
    )]
    pub day: Option<String>,
    /// Start instead of --day: a full hour, RFC 3339
    #[arg(long, value_name = "TIME", conflicts_with = "day", requires = "to")]
    pub from: Option<String>,
    /// End, exclusive: a full hour, RFC 3339
    #[arg(long, value_name = "TIME", requires = "from")]
    pub to: Option<String>,
    /// Cluster [default: all that the token may read]
    #[arg(short, long, env = "FLEET_ECHO_CLUSTER")]
    pub cluster: Option<String>,
    /// Output format
    // `--log-format` already has the ID that clap would derive from the field name.
    #[arg(
        id = "report_format",
        long = "format",
        value_enum,
        default_value = "table",
        env = "FLEET_ECHO_FORMAT"
    )]
    pub format: Format,
    /// Print the table or the CSV without its header line
    #[arg(long)]
    pub no_headers: bool,
    /// Include hours that are not closed yet; such a report will change
    #[arg(long)]
    pub allow_open: bool,
    /// Output file, replaced atomically [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// File for metadata of the rows (FOCUS version, window, date of the rates), as JSON
    #[arg(long, value_name = "FILE")]
    pub metadata: Option<PathBuf>,
}

/// Format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// CSV in ten columns: hour, cluster, node, model, rate, GPU-hours and cost, used and lost
    Csv,
    /// CSV in FOCUS 1.2 columns
    FocusCsv,
    /// The same columns as JSON, with totals
    Json,
    /// Totals as text
    Table,
}

const SUMS: [Column<'_>; 8] = [
    Column::text("CLUSTER", "cluster"),
    Column::text("RATE CLASS", "rate_class"),
    Column::decimals("GPU-HOURS", "gpu_hours", 4),
    Column::money("COST", "cost"),
    Column::decimals("LOST GPU-HOURS", "straggler_gpu_hours", 4),
    Column::money("LOST COST", "straggler_cost"),
    Column::text("CURRENCY", "currency"),
    Column::percent("COVERAGE", "coverage"),
];

/// Columns of the short CSV, with their fields in the rows of the report.
const SHORT: [Column<'_>; 10] = [
    Column::value("hour", "ChargePeriodStart", false),
    Column::value("cluster", "SubAccountId", false),
    Column::value("node", "ResourceName", false),
    Column::value("gpu_model", "SkuId", false),
    Column::value("rate_class", "x_EchoRateClass", false),
    Column::value("gpu_hours", "ConsumedQuantity", true),
    Column::value("cost", "EffectiveCost", true),
    Column::value("lost_gpu_hours", "x_EchoStragglerGpuHours", true),
    Column::value("lost_cost", "x_EchoStragglerCost", true),
    Column::value("currency", "BillingCurrency", false),
];

/// Currency of rows without a price, in which FOCUS demands a number nevertheless.
const NO_CURRENCY: &str = "XXX";

/// Runs the command.
pub fn run(args: &ReportArgs, screen: &mut Screen<'_>) -> Result<(), CliError> {
    let report = match args.format {
        Format::Csv => args.short_csv()?,
        Format::FocusCsv => {
            let csv = get_bytes(&args.connection, "/api/v1/cost.csv", &args.query(true))?;
            if args.no_headers {
                without_first_line(&csv)
            } else {
                csv
            }
        }
        Format::Json => get_bytes(&args.connection, "/api/v1/cost.json", &args.query(true))?,
        Format::Table => {
            let mut text = Vec::new();
            let mut page = Screen::plain(&mut text);
            if args.out.is_none() {
                page.width = screen.width;
                page.has_color = screen.has_color;
            }
            print(&sanitize(args.answer(false)?), args.layout(), &mut page)?;
            text
        }
    };
    if let Some(path) = &args.metadata {
        let sums = args.answer(false)?;
        let metadata = sums.get("metadata").unwrap_or(&Value::Null);
        replace(path, format!("{metadata}\n").as_bytes())?;
    }
    match &args.out {
        Some(path) => replace(path, &report),
        None if args.format == Format::Json => Ok(json_output::print(&report, screen)?),
        None => Ok(screen.write_all(&report).and_then(|()| screen.flush())?),
    }
}

/// Removes the header, whose names have no line feeds.
fn without_first_line(csv: &[u8]) -> Vec<u8> {
    let mut lines = csv.splitn(2, |byte| *byte == b'\n');
    lines.nth(1).unwrap_or_default().to_vec()
}

impl ReportArgs {
    fn query(&self, with_rows: bool) -> Vec<(&'static str, String)> {
        let parameters = [
            ("day", self.day.clone()),
            ("from", self.from.clone()),
            ("to", self.to.clone()),
            ("cluster", self.cluster.clone()),
            ("open", self.allow_open.then(|| true.to_string())),
            ("rows", (!with_rows).then(|| false.to_string())),
        ];
        parameters
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }

    const fn layout(&self) -> Layout {
        Layout {
            is_wide: false,
            has_header: !self.no_headers,
        }
    }

    /// Returns the rows in the columns that a person reads; without a price money is empty.
    fn short_csv(&self) -> Result<Vec<u8>, CliError> {
        let mut answer = self.answer(true)?;
        let rows = answer.get_mut("rows").and_then(Value::as_array_mut);
        let mut rows = rows.map(std::mem::take).unwrap_or_default();
        for row in &mut rows {
            if text(row, "BillingCurrency") == NO_CURRENCY
                && let Some(row) = row.as_object_mut()
            {
                row.remove("EffectiveCost");
                row.remove("BillingCurrency");
            }
        }
        let mut csv = Vec::new();
        Table::new(&SHORT, &rows).write_csv(self.layout(), &mut csv)?;
        Ok(csv)
    }

    /// Fetches metadata and totals of the report, and its rows if asked.
    fn answer(&self, with_rows: bool) -> Result<Value, CliError> {
        let body = get_bytes(
            &self.connection,
            "/api/v1/cost.json",
            &self.query(with_rows),
        )?;
        serde_json::from_slice(&body).map_err(|_no_json| CliError::NotEcho {
            server: self.connection.server.clone(),
            status: 200,
        })
    }
}

/// Replaces a file atomically.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let written = fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, path));
    written.map_err(|error| {
        let message = format!("cannot write {}: {error}", path.display());
        CliError::Output(io::Error::new(error.kind(), message))
    })
}

fn print(answer: &Value, layout: Layout, out: &mut Screen<'_>) -> io::Result<()> {
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
            "{open} hours are not closed yet: these numbers will change"
        )?;
    }
    if let Some(note) = metadata.get("note").and_then(Value::as_str) {
        writeln!(out, "note: {note}")?;
    }
    let sums = list(answer, "summary");
    if sums.is_empty() {
        return writeln!(out, "no GPU reported");
    }
    writeln!(out)?;
    Table::new(&SUMS, sums).print(layout, out)
}
