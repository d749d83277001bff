//! Agents of one job: one process per rank, each simulating a host.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use serde::Deserialize;
use tokio::process::Command;

use crate::config::DemoArgs;
use crate::demo::DemoError;
use crate::demo::recording::Recording;

/// Longest recorded job that ends before now.
const LONGEST: Duration = Duration::from_mins(5);

/// Summary that an agent prints after its replay.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct AgentSummary {
    /// Accepted points.
    pub(super) points_sent: u64,
    /// Acknowledged batches.
    pub(super) batches_acked: u64,
    /// Version of the last policy received.
    pub(super) policy_version: Option<u64>,
}

/// Returns the agent program: `named`, or the one in the directory of this program.
pub(crate) fn agent_program(named: Option<&Path>) -> Result<PathBuf, DemoError> {
    let program = match named {
        Some(named) => named.to_owned(),
        None => std::env::current_exe()?.with_file_name("fleet-agent"),
    };
    if program.is_file() {
        Ok(program)
    } else {
        Err(DemoError::NoAgent(program))
    }
}

/// Runs one agent per rank concurrently, and waits for all of them.
pub(super) async fn replay(
    agent: &Path,
    recording: &Recording,
    endpoint: &str,
    args: &DemoArgs,
) -> Result<Vec<AgentSummary>, DemoError> {
    // Events of the future would be outside of windows that end now.
    let start_at = (jiff::Timestamp::now() - LONGEST).to_string();
    let mut running = Vec::new();
    for rank in 0..recording.n_ranks {
        let child = Command::new(agent)
            .arg("replay")
            .arg(&recording.path)
            .args(["--endpoint", endpoint])
            .args(["--cluster", &recording.name])
            .args(["--node-per-rank", "--only-rank", &rank.to_string()])
            .args(["--clock-skew", &args.clock_skew])
            .args(["--speed", &args.speed])
            .args(["--start-at", &start_at])
            .arg("--json")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        running.push((rank, child));
    }
    let mut summaries = Vec::new();
    for (rank, child) in running {
        summaries.push(summary(rank, child.wait_with_output().await?)?);
    }
    Ok(summaries)
}

fn summary(rank: u32, output: Output) -> Result<AgentSummary, DemoError> {
    let failed = |reason: String| DemoError::Agent { rank, reason };
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let last = stderr.lines().last().unwrap_or("no error output");
        return Err(failed(format!("{} ({last})", output.status)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))
}
