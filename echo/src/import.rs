//! `fleet-echo import`: prints what traces and dumps of other tools show, with verdict and cost. An
//! agent reads the files and sends their points to an instance that lasts as long as the command.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use clap::Args;
use fleet_import::report::Report;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::app::{App, AppError, interrupted};
use crate::cli::output::OutputArgs;
use crate::demo::agents::agent_program;
use crate::demo::report::{ToolAnswers, print_cost, print_verdict};
use crate::demo::{DemoError, serve_args};
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
(Kineto) traces, PyTorch Flight Recorder dumps (pickle or JSON), NCCL Inspector lines; each may be
gzipped. Nothing in a pickle is run.";

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

/// Error of an import.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The files cannot be read, or do not allow a verdict.
    #[error("{0}")]
    Input(String),
    /// The instance, the agent program or the output failed.
    #[error(transparent)]
    Run(#[from] DemoError),
}

impl From<io::Error> for ImportError {
    fn from(error: io::Error) -> Self {
        Self::Run(error.into())
    }
}

impl From<AppError> for ImportError {
    fn from(error: AppError) -> Self {
        Self::Run(error.into())
    }
}

/// Summary that the agent prints.
#[derive(Debug, Deserialize)]
struct Summary {
    report: Option<Report>,
    error: Option<String>,
}

/// Imports the files and prints the results.
#[expect(
    clippy::significant_drop_tightening,
    reason = "the instance runs until it is stopped"
)]
pub async fn run(args: &ImportArgs, out: &mut (dyn Write + Send)) -> Result<(), ImportError> {
    let agent = agent_program(args.agent.as_deref())?;
    let folder = tempfile::Builder::new()
        .prefix("fleet-echo-import-")
        .tempdir()?;
    let temporary = folder.path().join("fleet.duckdb");
    let db = args.db.clone().unwrap_or(temporary);
    let app = App::start(&serve_args(args.rates.clone(), db)).await?;
    let outcome = tokio::select! {
        imported = import(args, &agent, &app, out) => imported,
        interrupted = interrupted() => interrupted.map_err(ImportError::from),
    };
    if outcome.is_ok() && args.serve {
        let http = app.http_address();
        writeln!(out, "  page     http://{http}/, until Ctrl-C")?;
        out.flush()?;
        return Ok(app.run_until_signal().await?);
    }
    let stopped = app.stop().await;
    outcome?;
    Ok(stopped?)
}

async fn import(
    args: &ImportArgs,
    agent: &Path,
    app: &App,
    out: &mut (dyn Write + Send),
) -> Result<(), ImportError> {
    let spinner = spinner("reading the files".to_owned());
    let summary = run_agent(args, agent, app).await?;
    drop(spinner);
    let Some(report) = summary.report else {
        let unknown = || "the agent gave no reason".to_owned();
        return Err(ImportError::Input(summary.error.unwrap_or_else(unknown)));
    };
    let answers = match report.iterations {
        Some(_) => {
            app.wait_until_judged().await;
            Some(ToolAnswers::query(app.http_address(), &args.cluster).await?)
        }
        None => None,
    };
    if args.output.is_json() {
        let outliers = answers.as_ref().map(|answers| &answers.outliers);
        let cost = answers.as_ref().map(|answers| &answers.cost);
        let all = json!({ "report": report, "outliers": outliers, "cost": cost });
        writeln!(out, "{all:#}")?;
    } else {
        write!(out, "{report}")?;
        if let Some(answers) = &answers {
            if is_empty(&answers.outliers) {
                writeln!(out, "  verdict  {}", without_outlier(&report))?;
            } else {
                print_verdict(out, &answers.outliers)?;
            }
            print_cost(out, &answers.cost)?;
        }
    }
    match summary.error {
        Some(error) => Err(ImportError::Input(error)),
        None => Ok(()),
    }
}

/// Returns why the detector names nobody.
fn without_outlier(report: &Report) -> &'static str {
    if report.late.is_empty() {
        "no rank is named: no lag reaches the limits of the detector"
    } else {
        "no rank is named: the traced steps have no healthy ones to compare with, or are too few; see arrival"
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

/// Runs the agent and returns its summary.
async fn run_agent(args: &ImportArgs, agent: &Path, app: &App) -> Result<Summary, ImportError> {
    let endpoint = format!("http://{}", app.otlp_address());
    let output = Command::new(agent)
        .arg("import")
        .args([
            "--endpoint",
            &endpoint,
            "--cluster",
            &args.cluster,
            "--json",
        ])
        .arg("--")
        .args(&args.paths)
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
