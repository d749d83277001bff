//! `fleet-echo import`: prints what traces and dumps of other tools show, with verdict and cost. An
//! agent reads the files and sends their points to an instance that lasts as long as the command.

mod error;
pub mod open;
mod recordings;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use echo_core::clock::DelayedClock;
use fleet_import::progress::REPORT_TIMES;
use fleet_import::report::Report;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::app::{App, interrupted};
use crate::cli::output::OutputArgs;
use crate::demo::agents::agent_program;
use crate::demo::report::{ToolAnswers, print_cost, print_verdict};
use crate::demo::serve_args;
pub use crate::import::error::ImportError;
use crate::import::recordings::{Recordings, Target};
use crate::progress::spinner;

/// Examples of the help.
pub const EXAMPLES: &str = "\
Examples: who did not join a hanging operation, from the dumps of PyTorch's Flight Recorder:
  fleet-echo import /tmp/dumps
Which rank held back a job that was traced with the PyTorch profiler, and what it cost:
  fleet-echo import traces/ --rates rates.yaml
Keep the database, and serve the page, SQL and MCP on it:
  fleet-echo import traces/ --db traces.duckdb --serve

Give one file per rank, or a folder with them. Formats are recognised by content: PyTorch profiler
(Kineto) traces, PyTorch Flight Recorder dumps (pickle or JSON), NCCL Inspector lines, exports of
Nsight Systems (SQLite), operations of StragglerAnalysis (Parquet), tables of call times (CSV),
recordings of fleet-agent; and one answer of NCCL's RAS subsystem, or logs with lines of PyTorch's
watchdog; each but databases may be gzipped. Of several folders in a folder give one. Nothing in a
pickle is run.

fleet-echo open takes recordings of several hosts and keeps their nodes apart.";

/// Flags of `import`.
#[derive(Debug, Clone, Args)]
pub struct ImportArgs {
    /// Files, or folders with one file per rank
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    /// Database file to keep; created if missing [default: a temporary one]
    #[arg(long, value_name = "PATH")]
    pub db: Option<PathBuf>,

    /// Serve the page, the API and MCP afterwards, until Ctrl-C
    #[arg(long)]
    pub serve: bool,

    /// Cluster name of the imported job
    #[arg(long, value_name = "NAME", default_value = "import")]
    pub cluster: String,

    /// GPU-hour rates (YAML); without it, costs are reported in GPU time only
    #[arg(long, value_name = "FILE", env = "FLEET_ECHO_RATES")]
    pub rates: Option<PathBuf>,

    /// Agent program [default: fleet-agent in the directory of this program]
    #[arg(long, value_name = "PROGRAM", env = "FLEET_ECHO_DEMO_AGENT")]
    pub agent: Option<PathBuf>,

    /// Output format
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Summary that the agent prints.
#[derive(Debug, Deserialize)]
struct Summary {
    report: Option<Report>,
    points_rejected: u64,
    points_dropped: u64,
    error: Option<String>,
    /// Reason why the instance accepts no events.
    #[serde(skip)]
    not_stored: Option<String>,
}

impl Summary {
    /// Returns whether the instance has the events.
    const fn is_delivered(&self) -> bool {
        self.error.is_none() && self.not_stored.is_none()
    }

    /// Returns the error that ended the import.
    fn result(self) -> Result<(), ImportError> {
        match (self.not_stored, self.error) {
            (Some(reason), _) => Err(ImportError::NotStored(reason)),
            (None, Some(error)) if self.points_dropped > 0 => Err(ImportError::NotStored(error)),
            (None, Some(error)) => Err(ImportError::Input(error)),
            (None, None) => Ok(()),
        }
    }
}

/// Endpoint with which an agent sends nothing.
const NO_ENDPOINT: &str = "none";

/// Delay of the instance's clock at its start. An instance with an existing database looks for
/// hangs only after the agents had 120 s to reconnect.
const START_DELAY: Duration = Duration::from_secs(150);

/// An agent that imports into an instance whose clock can be moved, so that the reports of a hang
/// arrive at the times at which live agents would send them.
struct Importer<'a> {
    args: &'a ImportArgs,
    agent: &'a Path,
    app: &'a App,
    clock: DelayedClock,
}

/// Imports the files and prints the results.
#[expect(
    clippy::significant_drop_tightening,
    reason = "the instance runs until it is stopped"
)]
pub async fn run(args: &ImportArgs, out: &mut (dyn Write + Send)) -> Result<(), ImportError> {
    let agent = agent_program(args.agent.as_deref())?;
    let recordings = Recordings::find(&args.paths)?;
    let folder = tempfile::Builder::new()
        .prefix("fleet-echo-import-")
        .tempdir()?;
    let temporary = folder.path().join("fleet.duckdb");
    let db = args.db.clone().unwrap_or(temporary);
    let clock = DelayedClock::default();
    clock.set_delay(START_DELAY);
    let serve = serve_args(args.rates.clone(), db);
    let app = App::start(&serve, Arc::new(clock.clone())).await?;
    let importer = Importer {
        args,
        agent: &agent,
        app: &app,
        clock,
    };
    let outcome = tokio::select! {
        imported = importer.import(recordings, out) => imported,
        interrupted = interrupted() => interrupted.map_err(ImportError::from),
    };
    if outcome.is_ok() && args.serve {
        if !args.output.is_json() {
            writeln!(out, "  page     {}, until Ctrl-C", page(&app))?;
        }
        out.flush()?;
        return Ok(app.run_until_signal().await?);
    }
    let stopped = app.stop().await;
    outcome?;
    Ok(stopped?)
}

impl Importer<'_> {
    /// Imports the recordings, or the files of other tools if there are none.
    async fn import(
        &self,
        recordings: Option<Recordings>,
        out: &mut (dyn Write + Send),
    ) -> Result<(), ImportError> {
        let spinner = spinner("reading the files".to_owned());
        let is_recorded = recordings.is_some();
        let summary = match recordings {
            Some(recordings) => self.replay(recordings).await?,
            None => self.send().await?,
        };
        drop(spinner);
        let Some(report) = &summary.report else {
            let unknown = || "the agent gave no reason".to_owned();
            return Err(ImportError::Input(summary.error.unwrap_or_else(unknown)));
        };
        let is_stored = is_recorded || report.iterations.is_some() || report.hang.is_some();
        let answers = if is_stored && summary.is_delivered() {
            self.app.wait_until_judged().await;
            Some(ToolAnswers::query(self.app.http_address(), &self.args.cluster).await?)
        } else {
            None
        };
        if self.args.output.is_json() {
            let outliers = answers.as_ref().map(|answers| &answers.outliers);
            let is_named =
                report.hang.is_some() || outliers.is_some_and(|answer| !is_empty(answer));
            let unknown_cost = unknown_cost(report).filter(|_| !is_named);
            let cost = answers.as_ref().map(|answers| &answers.cost);
            let cost = cost.filter(|_| unknown_cost.is_none());
            let page = self.args.serve.then(|| page(self.app));
            let all = json!({
                "report": report,
                "points_rejected": summary.points_rejected,
                "outliers": outliers,
                "cost": cost,
                "cost_unknown": unknown_cost,
                "loss_by_arrivals": report.loss().filter(|_| !is_named),
                "page": page,
            });
            writeln!(out, "{all:#}")?;
        } else {
            write!(out, "{report}")?;
            if summary.points_rejected > 0 {
                let rejected = summary.points_rejected;
                writeln!(
                    out,
                    "  stored   without {rejected} points, which were rejected"
                )?;
            }
            if let Some(answers) = &answers {
                print_answers(out, report, answers)?;
            }
        }
        summary.result()
    }

    /// Replays the recordings as of now.
    async fn replay(&self, recordings: Recordings) -> Result<Summary, ImportError> {
        self.clock.set_delay(Duration::ZERO);
        if let Some(reason) = self.app.not_ready_reasons().first() {
            return Err(ImportError::NotStored(reason.to_string()));
        }
        let endpoint = format!("http://{}", self.app.otlp_address());
        let target = Target {
            agent: self.agent,
            endpoint: &endpoint,
            cluster: &self.args.cluster,
        };
        let unread_ends = recordings.replay(target).await?;
        Ok(Summary {
            report: Some(recordings.into_report(unread_ends)),
            points_rejected: 0,
            points_dropped: 0,
            error: None,
            not_stored: None,
        })
    }

    /// Sends the events, those of a hang in one run per report, and returns the first summary with
    /// the first error.
    async fn send(&self) -> Result<Summary, ImportError> {
        // The agent would repeat its attempts for a minute.
        if let Some(reason) = self.app.not_ready_reasons().first() {
            let mut summary = self.run_agent(NO_ENDPOINT, Duration::ZERO).await?;
            if summary.error.is_none() {
                summary.not_stored = Some(reason.to_string());
            }
            return Ok(summary);
        }
        let endpoint = format!("http://{}", self.app.otlp_address());
        let [first, later @ ..] = REPORT_TIMES.map(age);
        self.clock.set_delay(first);
        let mut summary = self.run_agent(&endpoint, first).await?;
        let is_hang = |report: &Report| report.hang.is_some();
        if summary.report.as_ref().is_some_and(is_hang) {
            for age in later {
                if summary.error.is_some() {
                    break;
                }
                self.clock.set_delay(age);
                let next = self.run_agent(&endpoint, age).await?;
                summary.error = next.error;
                summary.points_dropped = next.points_dropped;
            }
        }
        self.clock.set_delay(Duration::ZERO);
        Ok(summary)
    }

    /// Runs the agent, which reports a hang as of `age` ago, and returns its summary.
    async fn run_agent(&self, endpoint: &str, age: Duration) -> Result<Summary, ImportError> {
        let output = Command::new(self.agent)
            .arg("import")
            .args(["--endpoint", endpoint, "--cluster", &self.args.cluster])
            .args(["--hang-age", &age.as_secs().to_string(), "--json", "--"])
            .args(&self.args.paths)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .output()
            .await?;
        serde_json::from_slice(&output.stdout).map_err(|_no_summary| {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let last = stderr.lines().last().unwrap_or("no error output");
            ImportError::Input(format!("the agent failed ({}): {last}", output.status))
        })
    }
}

/// Returns the address of the page.
fn page(app: &App) -> String {
    format!("http://{}/", app.http_address())
}

/// Age of a report at the time of the last one.
fn age(time: Duration) -> Duration {
    let [.., last] = REPORT_TIMES;
    last.saturating_sub(time)
}

/// Prints what the detector found. The report has already named the ranks of a hang.
fn print_answers(out: &mut dyn Write, report: &Report, answers: &ToolAnswers) -> io::Result<()> {
    if report.hang.is_none() {
        if is_empty(&answers.outliers) {
            writeln!(out, "  verdict  {}", without_outlier(report))?;
            if let Some(loss) = report.loss() {
                return writeln!(out, "  cost     {loss}");
            }
            if let Some(unknown) = unknown_cost(report) {
                return writeln!(out, "  cost     unknown: {unknown}");
            }
        } else {
            print_verdict(out, &answers.outliers)?;
        }
        return print_cost(out, &answers.cost);
    }
    if is_empty(&answers.outliers) {
        return Ok(());
    }
    print_cost(out, &answers.cost)?;
    writeln!(
        out,
        "           of {} s only: how long the ranks have waited is not read from the files",
        age(Duration::ZERO).as_secs()
    )
}

/// Least share of the time that ranks wait for one another, from which a cost of 0 would be misleading.
const MUCH_WAITING: f64 = 0.05;

/// Returns why the cost is unknown if the detector names no rank, and how long the ranks waited.
fn unknown_cost(report: &Report) -> Option<String> {
    if report.loss().is_some() {
        return Some("by its past: the detector of running jobs names no rank".to_owned());
    }
    let waiting = report.waiting.as_ref()?;
    let is_much = waiting.share >= Some(MUCH_WAITING);
    // Operations side by side count each, which can be more than all time.
    let share = waiting.share.filter(|share| *share < 1.0);
    let of_time = |share: f64| format!(", {:.1} % of the traced time", share * 100.0);
    is_much.then(|| {
        format!(
            "no part of the trace is known to be healthy; the ranks waited {:.2} GPU-seconds for one another{}",
            waiting.gpu_s,
            share.map_or_else(|| " in operations side by side".to_owned(), of_time)
        )
    })
}

/// Returns what can be said if the detector names no rank.
fn without_outlier(report: &Report) -> String {
    let why = "the detector of running jobs, which needs seconds of healthy steps before a fault, names none";
    if let Some(late) = &report.late_together {
        return format!("{}, by their arrivals alone: {why}", late.noun());
    }
    match (report.cause(), report.late.len()) {
        (Some(one), 1) => format!("rank {}, by its arrivals alone: {why}", one.rank),
        (Some(one), _) => format!("rank {}, by its arrivals and its computation: {why}", one.rank),
        (None, 0) => match report.waiting.as_ref().and_then(|waiting| waiting.by_turns.as_ref()) {
            Some(turns) => format!(
                "no rank is named: {} ranks arrive last by turns, at {} operations: uneven work, such as batches of different sizes",
                turns.n_ranks, turns.n_ops
            ),
            None => "no rank is named: no lag reaches the limits of the detector".to_owned(),
        },
        (None, _) => "no rank is named: the traced steps have no healthy ones to compare with, or are too few; see arrival"
            .to_owned(),
    }
}

/// Returns whether the answer names neither a rank nor a condition.
fn is_empty(answer: &Value) -> bool {
    let has = |name: &str| {
        let list = answer.get(name).and_then(Value::as_array);
        list.is_some_and(|list| !list.is_empty())
    };
    !has("outliers") && !has("conditions")
}
