//! `fleet-echo outliers`: which ranks are slow.

use std::io::{self, Write};

use clap::Args;
use serde_json::Value;

use crate::cli::view::{decimals, heading, list, percent, quality, table, text};
use crate::cli::{CliError, ClientArgs, ScopeArgs, ToolInput, query};

/// Which ranks hold back their jobs, how sure that is, and since when.
#[derive(Debug, Clone, Args)]
pub struct OutliersArgs {
    /// Whom to ask.
    #[command(flatten)]
    pub client: ClientArgs,
    /// What about.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Largest number of outliers listed, 40 when absent
    #[arg(long, env = "FLEET_ECHO_LIMIT")]
    pub limit: Option<u32>,
}

/// Asks, and prints the answer.
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
            "STATE", "NODE", "RANK", "ROLE", "LAG ms", "DAMAGE", "SURE", "SINCE", "WHY",
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
        let header = ["STATE", "CONDITION", "DAMAGE", "SURE", "SINCE", "WHY"];
        table(
            out,
            &header,
            &conditions.iter().map(condition).collect::<Vec<_>>(),
        )?;
    }
    if answer.get("truncated") == Some(&Value::Bool(true)) {
        writeln!(out, "\nmore with a larger --limit")?;
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

/// What the host went through beyond its peers; nothing when that is not known.
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
