//! `fleet-echo assert`: CI check that fails a build when the cost or number of stragglers exceeds a
//! limit. It passes on known numbers only: if a number is unknown or rests on too little data, the
//! exit code is 4, never 0.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use case::{Case, Failure, Outcome};
use clap::{Args, Subcommand};
use cost::CostLimitArgs;
use echo_tools::rates::Currency;
use echo_tools::time::{TimeArg, WindowArg};
use outliers::OutlierLimitArgs;
use serde_json::Value;

use crate::cli::connection::ConnectionArgs;
use crate::cli::{ToolInput, call_tool};

mod case;
pub mod cost;
mod ingest_lag;
mod junit;
pub mod outliers;
mod report;

/// Exit code for invalid flags.
pub const USAGE: u8 = 2;

/// Flags of `assert`.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
pub struct AssertArgs {
    /// Subcommand.
    #[command(subcommand)]
    pub subject: Subject,
}

/// Subcommands of `assert`.
#[derive(Debug, Clone, Subcommand)]
pub enum Subject {
    /// Check the cost of stragglers against limits
    #[command(after_help = COST_HELP)]
    Cost(CostArgs),
    /// Check the number of stragglers against a limit, and that no condition such as a hang was found
    #[command(after_help = OUTLIERS_HELP)]
    Outliers(OutliersArgs),
}

/// Limits of the cost of stragglers.
#[derive(Debug, Clone, Args)]
pub struct CostArgs {
    /// The limits.
    #[command(flatten)]
    pub limits: CostLimitArgs,
    /// Currency of the limits [default: that of the rates]
    #[arg(long, value_name = "CODE", env = "FLEET_ECHO_CURRENCY")]
    pub currency: Option<Currency>,
    /// Clusters, window and output.
    #[command(flatten)]
    pub gate: GateArgs,
}

/// Limit of the number of stragglers, with clusters, window and output.
#[derive(Debug, Clone, Args)]
pub struct OutliersArgs {
    /// The limit.
    #[command(flatten)]
    pub limits: OutlierLimitArgs,
    /// Clusters, window and output.
    #[command(flatten)]
    pub gate: GateArgs,
}

/// Clusters, window, required coverage and output of a check.
#[derive(Debug, Clone, Args)]
pub struct GateArgs {
    /// Cluster. Can be repeated
    #[arg(
        short,
        long,
        required = true,
        value_name = "NAME",
        env = "FLEET_ECHO_CLUSTER",
        value_delimiter = ','
    )]
    pub cluster: Vec<String>,
    /// Time window: the last `30m`, `24h`, `7d`, or `all` [default: 30m]
    #[arg(short, long, value_name = "LENGTH", env = "FLEET_ECHO_WINDOW", value_parser = parse_window, conflicts_with_all = ["from", "to"])]
    pub window: Option<String>,
    /// Start instead of --window: RFC 3339, a date (UTC), Unix milliseconds or relative such as `now-15m`
    /// [default: 1h before the end]
    #[arg(long, value_name = "TIME", env = "FLEET_ECHO_FROM", value_parser = parse_time)]
    pub from: Option<String>,
    /// End instead of --window, in the same formats [default: now]
    #[arg(long, value_name = "TIME", env = "FLEET_ECHO_TO", value_parser = parse_time)]
    pub to: Option<String>,
    /// Minimum share of the expected ranks that must report: `0.9` or `90%`
    #[arg(long, value_name = "SHARE", default_value = "0.9", env = "FLEET_ECHO_MIN_COVERAGE", value_parser = parse_share)]
    pub min_coverage: f64,
    /// Skip clusters without enough data instead of failing
    #[arg(long, env = "FLEET_ECHO_ALLOW_MISSING")]
    pub allow_missing: bool,
    /// Also write the result to this file, as JUnit XML
    #[arg(long, value_name = "FILE", env = "FLEET_ECHO_JUNIT")]
    pub junit: Option<PathBuf>,
    /// Print JSON
    #[arg(long, env = "FLEET_ECHO_JSON")]
    pub json: bool,
    /// Connection.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

const HELP: &str = "\
Exit codes, the first that applies to any of the clusters:
  1  a limit is exceeded, according to the data available
  2  invalid flags or request
  3  the server cannot be reached, rejects the token or fails; or the result
     cannot be written
  4  not enough data to confirm the limits; 0 with --allow-missing
  0  all clusters are within the limits
Requests are not retried: retry exit codes 3 and 4 in the pipeline.";

const COST_HELP: &str = "\
Prints one line per cluster: PASS, FAIL, NO DATA, SKIP or ERROR, with the numbers. A number equal \
to its limit passes.

  fleet-echo assert cost --cluster prod --window 30m --max-cost-per-hour 25
  fleet-echo assert cost --cluster prod --window 24h --max-lost-ratio 2% \\
      --junit cost.xml
  fleet-echo assert cost --cluster a --cluster b --max-window-total 100 \\
      --from 2026-11-20T00:00:00Z --to 2026-11-20T06:00:00Z

Not enough data means: no events; coverage below --min-coverage; a window that ends more than a \
minute after the last event (set --to to the end of the job); events that the detector has not \
processed yet; and for limits in money: GPUs without a price, several currencies, or a currency \
other than --currency.

Exit codes: 0 within the limits, 1 exceeded, 2 invalid flags, 3 no response, 4 not enough data \
(0 with --allow-missing).";

const OUTLIERS_HELP: &str = "\
Counts ranks that hold back others at any time in the window, once per incident. Ranks that only \
wait for them are not counted. A condition of the whole job, such as a hang or a slowdown of all \
ranks, exceeds the limit too, unless --allow-condition accepts its kind.

  fleet-echo assert outliers --cluster prod --window 30m --max 0
  fleet-echo assert outliers --cluster prod --window 24h --max 2 --class host \\
      --min-confidence 90% --junit outliers.xml
  fleet-echo assert outliers --cluster prod --window 24h --max 0 \\
      --allow-condition uniform_slowdown

Not enough data means: no events; coverage below --min-coverage; a window that ends more than a \
minute after the last event (set --to to the end of the job); events that the detector has not \
processed yet.

Exit codes: 0 within the limit, 1 exceeded, 2 invalid flags, 3 no response, 4 not enough data \
(0 with --allow-missing).";

/// Checks the clusters against the limits, prints the result, and returns the exit code.
pub fn run(args: &AssertArgs, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let gate = args.subject.gate();
    let cases = evaluate(&args.subject, gate);
    let outcome = cases.iter().map(Case::outcome).min();
    let mut outcome = outcome.unwrap_or(Outcome::Missing);
    let mut report_error = |what: &str, error: io::Error| {
        let _broken_pipe = writeln!(err, "fleet-echo: cannot write {what}: {error}");
    };
    let name = args.subject.name();
    if let Some(file) = &gate.junit
        && let Err(error) = junit::write(name, &cases, file)
    {
        report_error(&format!("--junit {}", file.display()), error);
        // A reader of the file would take the missing result for a pass.
        outcome = outcome.min(Outcome::Failed);
    }
    let written = if gate.json {
        report::json(name, &cases, outcome, out)
    } else {
        report::text(&cases, out)
    };
    if let Err(error) = written {
        report_error("the result", error);
        outcome = outcome.min(Outcome::Failed);
    }
    outcome.exit_code()
}

/// Queries each cluster and checks it against the limits.
fn evaluate(subject: &Subject, gate: &GateArgs) -> Vec<Case> {
    // Clusters may share a server, which is waited for once.
    let mut lag_by_server = BTreeMap::new();
    let mut query_cluster = |cluster: &str, case: &mut Case| -> Result<(Vec<u8>, Value), Failure> {
        let connection = gate.connection.for_cluster(Some(cluster))?;
        let wait = || ingest_lag::wait_until_processed(&connection).map_err(Failure::from);
        let behind = lag_by_server
            .entry(connection.server.clone())
            .or_insert_with(wait);
        case.missing.extend(behind.clone()?);
        let (tool, input) = (subject.tool(), gate.input(cluster, subject.limit()));
        call_tool(&connection, tool, input).map_err(|error| Failure::from_tool(error, tool))
    };
    let case = |cluster: &String| {
        let mut case = Case::new(cluster, gate.allow_missing);
        match query_cluster(cluster, &mut case) {
            Ok((_, answer)) => {
                case.record_quality(&answer, gate.min_coverage);
                match subject {
                    Subject::Cost(args) => cost::check_limits(args, &answer, &mut case),
                    Subject::Outliers(args) => {
                        outliers::check_limits(&args.limits, &answer, &mut case);
                    }
                }
            }
            Err(failure) => case.record_failure(failure),
        }
        case
    };
    gate.cluster.iter().map(case).collect()
}

impl Subject {
    const fn gate(&self) -> &GateArgs {
        match self {
            Self::Cost(args) => &args.gate,
            Self::Outliers(args) => &args.gate,
        }
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Cost(_) => "cost",
            Self::Outliers(_) => "outliers",
        }
    }

    const fn tool(&self) -> &'static str {
        match self {
            Self::Cost(_) => "fleet.cluster.get_cost",
            Self::Outliers(_) => "fleet.cluster.find_outlier_nodes",
        }
    }

    /// Maximum list length of the tool; a truncated list counts as missing data.
    const fn limit(&self) -> u32 {
        match self {
            Self::Cost(_) => 2_000,
            Self::Outliers(_) => 1_000,
        }
    }
}

impl GateArgs {
    /// Returns the tool input for one cluster.
    fn input(&self, cluster: &str, limit: u32) -> ToolInput {
        let usual = (self.from.is_none() && self.to.is_none()).then(|| "30m".to_owned());
        ToolInput::default()
            .with("cluster", Some(cluster))
            .with("from", self.from.clone())
            .with("to", self.to.clone())
            .with("window", self.window.clone().or(usual))
            .with("limit", Some(limit))
    }
}

fn parse_window(text: &str) -> Result<String, String> {
    text.parse::<WindowArg>().map(|_| text.to_owned())
}

fn parse_time(text: &str) -> Result<String, String> {
    text.parse::<TimeArg>().map(|_| text.to_owned())
}

/// Parses a share such as `0.02` or `2%`.
fn parse_share(text: &str) -> Result<f64, String> {
    let (digits, whole) = match text.trim().strip_suffix('%') {
        Some(percent) => (percent.trim_end(), 100.0),
        None => (text.trim(), 1.0),
    };
    let share = digits.parse::<f64>().ok().map(|number| number / whole);
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "expected a share from 0 to 1, or from 0% to 100%".to_owned())
}

/// Parses a limit.
fn parse_amount(text: &str) -> Result<f64, String> {
    let amount = text.trim().parse::<f64>().ok();
    amount
        .filter(|amount| amount.is_finite() && *amount >= 0.0)
        .ok_or_else(|| "expected a number of at least 0".to_owned())
}

#[cfg(test)]
mod tests;
