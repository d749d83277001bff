//! `fleet-echo import`: prints what traces and dumps of other tools show, with verdict and cost. An
//! agent reads the files and sends their points to an instance that lasts as long as the command.

mod error;
pub mod open;
mod recordings;
mod text;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use echo_core::clock::DelayedClock;
use fleet_import::progress::REPORT_TIMES;
use fleet_import::report::Report;
use serde::Deserialize;
use tokio::process::Command;

use crate::app::{App, interrupted};
use crate::cli::CliError;
use crate::cli::output::OutputArgs;
use crate::demo::agents::agent_program;
use crate::demo::report::ToolAnswers;
use crate::demo::serve_args;
pub use crate::import::error::ImportError;
use crate::import::recordings::{Recordings, Target};
use crate::import::text::Shown;
use crate::progress::spinner;

/// Examples of the help.
pub const EXAMPLES: &str = "\
Examples: who did not join a hanging operation, from the dumps of PyTorch's Flight Recorder:
  fleet-echo import /tmp/dumps
Which rank held back a job that was traced with the PyTorch profiler, and what it cost:
  fleet-echo import traces/ --rates rates.yaml
Keep the database, and serve the page, SQL and MCP on it:
  fleet-echo import traces/ --db traces.duckdb --serve

Give one file per rank, or a folder with them. Formats are recognised by content: PyTorch profiler \
(Kineto) traces, PyTorch Flight Recorder dumps (pickle or JSON), NCCL Inspector lines, exports of \
Nsight Systems (SQLite), operations of StragglerAnalysis (Parquet), tables of call times (CSV), \
recordings of fleet-agent; and one answer of NCCL's RAS subsystem, or logs with lines of PyTorch's \
watchdog; each but databases may be gzipped. Of several folders in a folder give one. Nothing in a \
pickle is run.

fleet-echo open takes recordings of several hosts and keeps their nodes apart.";

/// Cluster name without `--cluster`.
const DEFAULT_CLUSTER: &str = "import";

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
    #[arg(long, value_name = "NAME", default_value = DEFAULT_CLUSTER)]
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
    if args.output.has_rows_only() {
        let message = "import prints text or JSON, and no rows: give --output json; or --serve, and \
                       query the server with fleet-echo outliers --output csv";
        return Err(CliError::Usage(message.to_owned()).into());
    }
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
        let files = recordings.as_ref().map(|found| found.files().to_vec());
        let summary = match recordings {
            Some(recordings) => self.replay(recordings).await?,
            None => self.send().await?,
        };
        drop(spinner);
        let Some(report) = &summary.report else {
            let unknown = || "the agent gave no reason".to_owned();
            return Err(ImportError::Input(summary.error.unwrap_or_else(unknown)));
        };
        let is_stored = files.is_some() || report.iterations.is_some() || report.hang.is_some();
        let answers = if is_stored && summary.is_delivered() {
            self.app.wait_until_judged().await;
            Some(ToolAnswers::query(self.app.http_address(), &self.args.cluster).await?)
        } else {
            None
        };
        let shown = Shown {
            args: self.args,
            report,
            answers: answers.as_ref(),
            points_rejected: summary.points_rejected,
            recordings: files.as_deref().unwrap_or_default(),
            page: self.args.serve.then(|| page(self.app)),
        };
        if self.args.output.is_json() {
            writeln!(out, "{:#}", shown.to_json())?;
        } else {
            shown.print(out)?;
            if report.refusal.is_some() {
                return Err(ImportError::NoVerdict);
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
