//! `fleet-echo outliers`: ranks that hold back their jobs.

use std::io::{self, Write};

use clap::Args;
use serde_json::Value;

use crate::cli::view::{decimals, heading, list, percent, quality, table, text};
use crate::cli::{CliError, ClientArgs, ScopeArgs, ToolInput, query};

/// Ranks that hold back their jobs, with confidence and start time.
#[derive(Debug, Clone, Args)]
pub struct OutliersArgs {
    /// Connection and output format.
    #[command(flatten)]
    pub client: ClientArgs,
    /// Cluster and time window.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Maximum number of outliers listed [default: 40]
    #[arg(long, env = "FLEET_ECHO_LIMIT")]
    pub limit: Option<u32>,
}

/// Runs the command.
pub fn run(args: &OutliersArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let input = ToolInput::from_scope(&args.scope).with("limit", args.limit);
    if let Some(answer) = query(&args.client, "fleet.cluster.find_outlier_nodes", input, out)? {
        print(&answer, out)?;
    }
    Ok(())
}

fn print(answer: &Value, out: &mut dyn Write) -> io::Result<()> {
    let (outliers, conditions) = (list(answer, "outliers"), list(answer, "conditions"));
    writeln!(out, "{}", heading(answer))?;
    if outliers.is_empty() && conditions.is_empty() {
        let is_known = answer.pointer("/data_quality/quorum_met") == Some(&Value::Bool(true));
        writeln!(
            out,
            "{}",
            if is_known {
                "no outliers"
            } else {
                "not enough data to name outliers"
            }
        )?;
    }
    if !outliers.is_empty() {
        writeln!(out)?;
        let header = [
            "STATE",
            "NODE",
            "RANK",
            "ROLE",
            "LAG ms",
            "SLOWDOWN",
            "CONFIDENCE",
            "SINCE",
            "REASON",
        ];
        table(
            out,
            &header,
            &outliers.iter().map(outlier).collect::<Vec<_>>(),
        )?;
        for line in outliers.iter().filter_map(host_evidence) {
            writeln!(out, "{line}")?;
        }
    }
    if !conditions.is_empty() {
        writeln!(out)?;
        let header = [
            "STATE",
            "CONDITION",
            "SLOWDOWN",
            "CONFIDENCE",
            "SINCE",
            "REASON",
        ];
        table(
            out,
            &header,
            &conditions.iter().map(condition).collect::<Vec<_>>(),
        )?;
    }
    if answer.get("truncated") == Some(&Value::Bool(true)) {
        writeln!(out, "\nlist truncated: raise --limit")?;
    }
    writeln!(out, "\n{}", quality(answer))
}

fn outlier(outlier: &Value) -> Vec<String> {
    vec![
        text(outlier, "state"),
        text(outlier, "node_id"),
        text(outlier, "rank"),
        text(outlier, "role"),
        decimals(outlier, "lag_ms", 1),
        percent(outlier, "effect_ratio"),
        percent(outlier, "confidence"),
        text(outlier, "first_seen"),
        text(outlier, "reason"),
    ]
}

/// Host evidence in excess of the peers; `None` if there is none.
fn host_evidence(outlier: &Value) -> Option<String> {
    let is_host_evidence = |evidence: &&Value| evidence.get("lag_ms").is_some_and(Value::is_null);
    let evidence = list(outlier, "evidence").iter().filter(is_host_evidence);
    let evidence: Vec<String> = evidence
        .map(|evidence| text(evidence, "sentence"))
        .collect();
    let rank = text(outlier, "rank");
    (!evidence.is_empty()).then(|| format!("host of rank {rank}: {}", evidence.join("; ")))
}

fn condition(condition: &Value) -> Vec<String> {
    vec![
        text(condition, "state"),
        text(condition, "kind"),
        percent(condition, "effect_ratio"),
        percent(condition, "confidence"),
        text(condition, "first_seen"),
        text(condition, "reason"),
    ]
}
