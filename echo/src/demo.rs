//! `fleet-echo demo`: replays recorded jobs through real agents and a real instance, and prints the
//! results.

pub(crate) mod agents;
pub mod recording;
pub(crate) mod report;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use echo_analysis::settings::Settings;
use echo_core::clock::SystemClock;
use echo_core::ids::ClusterId;
use echo_core::policy_table::PolicyTable;
use echo_store::limits::Amount;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::watch;

use crate::app::{App, AppError, interrupted};
use crate::config::{DemoArgs, ServeArgs};
use crate::demo::agents::{AgentSummary, agent_program, replay};
use crate::demo::recording::{Recording, RecordingError};
use crate::demo::report::{PolicyHistory, ToolAnswers};
use crate::feedback::health::HealthConfig;

/// Error of the demo.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The recordings are missing, or cannot be read or written.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The agent program is missing.
    #[error("no agent program at {}: install fleet-agent there, or give --agent", .0.display())]
    NoAgent(PathBuf),
    /// An agent failed.
    #[error("the agent of rank {rank} failed: {reason}")]
    Agent {
        /// Rank of the agent.
        rank: u32,
        /// Cause.
        reason: String,
    },
    /// The instance failed.
    #[error(transparent)]
    App(#[from] AppError),
    /// A query failed.
    #[error("query failed: {0}")]
    Query(String),
    /// The database or the output cannot be written.
    #[error("cannot write")]
    Io(#[from] std::io::Error),
}

/// Replays every recording and prints the results.
#[expect(
    clippy::significant_drop_tightening,
    reason = "the instance runs until it is stopped"
)]
pub async fn run(args: &DemoArgs, out: &mut (dyn Write + Send)) -> Result<(), DemoError> {
    let agent = agent_program(args.agent.as_deref())?;
    let folder = tempfile::Builder::new()
        .prefix("fleet-echo-demo-")
        .tempdir()?;
    let recordings = if args.recordings.is_empty() {
        recording::built_in(folder.path())?
    } else {
        recording::find(&args.recordings)?
    };
    let rates = match &args.rates {
        Some(rates) => rates.clone(),
        None => recording::built_in_rates(folder.path())?,
    };
    let serve = serve_args(Some(rates), folder.path().join("fleet.duckdb"));
    let app = App::start(&serve, Arc::new(SystemClock)).await?;
    let outcome = tokio::select! {
        replayed = replay_all(args, &agent, &recordings, &app, out) => replayed,
        interrupted = interrupted() => interrupted.map_err(DemoError::App),
    };
    if outcome.is_ok() && args.keep {
        writeln!(
            out,
            "\nEcho keeps running. Stop it with Ctrl-C, which also deletes the database."
        )?;
        out.flush()?;
        return Ok(app.run_until_signal().await?);
    }
    let stopped = app.stop().await;
    outcome?;
    Ok(stopped?)
}

async fn replay_all(
    args: &DemoArgs,
    agent: &Path,
    recordings: &[Recording],
    app: &App,
    out: &mut (dyn Write + Send),
) -> Result<(), DemoError> {
    let (otlp, http) = (app.otlp_address(), app.http_address());
    if args.keep {
        report::print_page(out, http, recordings)?;
    }
    writeln!(
        out,
        "Echo listens on {otlp} (OTLP) and {http} (HTTP), with a temporary database."
    )?;
    let n_hosts = recordings.iter().map(|recording| recording.n_ranks).max();
    let unit = if args.speed == "max" { "" } else { "x" };
    writeln!(
        out,
        "Replaying {} recorded jobs on up to {} hosts, clock error up to {}, speed {}{unit}.\n",
        recordings.len(),
        n_hosts.unwrap_or(0),
        args.clock_skew,
        args.speed,
    )?;
    for (recording, number) in recordings.iter().zip(1..) {
        let title = format!("{} ({number} of {})", recording.name, recordings.len());
        let (agents, history) = replay_job(args, agent, recording, app, title).await?;
        let answers = ToolAnswers::query(http, &recording.name).await?;
        report::print(out, recording, &answers, &agents, &history)?;
    }
    if args.keep {
        report::print_commands(out, http, recordings)?;
    } else {
        writeln!(
            out,
            "For the page, and to query the results by hand: fleet-echo demo --keep"
        )?;
    }
    Ok(())
}

/// Runs the agents of one job to completion, and waits until the detector has processed their
/// events.
async fn replay_job(
    args: &DemoArgs,
    agent: &Path,
    recording: &Recording,
    app: &App,
    title: String,
) -> Result<(Vec<AgentSummary>, PolicyHistory), DemoError> {
    let progress = spinner(title);
    let (ended, until) = watch::channel(false);
    let cluster: ClusterId = recording.name.parse().map_err(AppError::Name)?;
    let record = record_policies(app.policies(), cluster, until);
    let replay = async {
        let endpoint = format!("http://{}", app.otlp_address());
        let agents = replay(agent, recording, &endpoint, args).await;
        app.wait_until_judged().await;
        ended.send_replace(true);
        agents
    };
    let (agents, history) = tokio::join!(replay, record);
    progress.finish_and_clear();
    Ok((agents?, history))
}

/// Records every policy of the cluster until the replay has ended.
async fn record_policies(
    mut policies: watch::Receiver<Arc<PolicyTable>>,
    cluster: ClusterId,
    mut until: watch::Receiver<bool>,
) -> PolicyHistory {
    let mut history = PolicyHistory::default();
    loop {
        let policy = policies.borrow_and_update().for_cluster(&cluster).cloned();
        if let Some(policy) = policy {
            history.record(&policy);
        }
        tokio::select! {
            changed = policies.changed() => if changed.is_err() { return history },
            _ = until.wait_for(|ended| *ended) => {
                let last = policies.borrow().for_cluster(&cluster).cloned();
                if let Some(policy) = last {
                    history.record(&policy);
                }
                return history;
            }
        }
    }
}

fn spinner(title: String) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} replaying {msg}, {elapsed}") {
        bar.set_style(style);
    }
    bar.set_message(title);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// Flags of an instance for this command: on free ports of this host.
pub(crate) fn serve_args(rates: Option<PathBuf>, db: PathBuf) -> ServeArgs {
    let health = HealthConfig::default();
    ServeArgs {
        db,
        otlp_listen: ([127, 0, 0, 1], 0).into(),
        otlp_http_listen: ([127, 0, 0, 1], 0).into(),
        http_listen: ([127, 0, 0, 1], 0).into(),
        security: crate::config::security::SecurityArgs::local(),
        rates,
        actions: None,
        default_cluster: None,
        limits: crate::config::limits::LimitArgs::default(),
        bounds: crate::config::bounds::BoundArgs::default(),
        allowed_origins: crate::config::allowed_origins::AllowedOriginArgs::default(),
        trace: crate::config::trace::TraceArgs::default(),
        shard: crate::config::shard::ShardArgs::default(),
        lake: crate::config::lake::LakeArgs::default(),
        memory_limit: Amount::Bytes(1_000_000_000),
        effect_gate: Settings::default().effect_gate,
        hang_after: Duration::from_secs_f64(Settings::default().hang_after_ms / 1e3),
        ingero_k: health.k,
        ingero_ema: health.ema_alpha,
        ingero_quorum: health.quorum,
    }
}
