//! Output of the demo: verdict, cost and policy of each job, and commands to query them by hand.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::SocketAddr;

use echo_core::policy_table::ClusterPolicy;
use fleet_proto::policy::PolicySet;
use jiff::{SignedDuration, Timestamp};
use prost::Message;
use serde_json::{Value, json};

use crate::demo::DemoError;
use crate::demo::agents::AgentSummary;
use crate::demo::recording::Recording;

/// Tool results for one cluster.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolAnswers {
    server: SocketAddr,
    /// Outliers and conditions.
    pub(crate) outliers: Value,
    /// Cost.
    pub(crate) cost: Value,
}

impl ToolAnswers {
    /// Queries the tools over HTTP, like any client. The loss per hour is that at the end of the job, which
    /// may have ended long ago.
    pub(crate) async fn query(server: SocketAddr, cluster: &str) -> Result<Self, DemoError> {
        let cluster = cluster.to_owned();
        let task = tokio::task::spawn_blocking(move || {
            let call = |tool: &str, input: &Value| -> Result<Value, ureq::Error> {
                let url = format!("http://{server}/api/v1/tools/fleet.cluster.{tool}");
                ureq::post(&url).send_json(input)?.into_body().read_json()
            };
            let all = json!({ "cluster": cluster, "window": "all" });
            let outliers = call("find_outlier_nodes", &all)?;
            let until_end = until_end(&cluster, &outliers).unwrap_or(all);
            Ok::<_, ureq::Error>(Self {
                server,
                cost: call("get_cost", &until_end)?,
                outliers,
            })
        });
        let failed = |error: String| DemoError::Query(error);
        let answers = task.await.map_err(|error| failed(error.to_string()))?;
        answers.map_err(|error| failed(error.to_string()))
    }
}

/// Arguments for the window of an answer, as one of the past.
fn until_end(cluster: &str, answer: &Value) -> Option<Value> {
    let window = answer.get("window")?;
    let to: Timestamp = window.get("to")?.as_str()?.parse().ok()?;
    // Answers have milliseconds, and the window ends after the last event.
    let to = to.checked_add(SignedDuration::from_millis(1)).ok()?;
    Some(json!({ "cluster": cluster, "from": window.get("from")?, "to": to.to_string() }))
}

/// Policies pushed to the agents of one cluster.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PolicyHistory {
    last: Option<PolicySet>,
    named: BTreeSet<u32>,
}

impl PolicyHistory {
    /// Records the next policy.
    pub(super) fn record(&mut self, policy: &ClusterPolicy) {
        if let Ok(set) = PolicySet::decode(policy.encoded.as_ref()) {
            self.named.extend(
                set.cohorts
                    .iter()
                    .flat_map(|cohort| cohort.outlier_ranks.iter()),
            );
            self.last = Some(set);
        }
    }
}

/// Prints the results of one job.
pub(super) fn print(
    out: &mut dyn Write,
    recording: &Recording,
    answers: &ToolAnswers,
    agents: &[AgentSummary],
    history: &PolicyHistory,
) -> io::Result<()> {
    let scenario = recording.scenario.as_deref().unwrap_or("unknown");
    writeln!(out, "{}   scenario: {scenario}", recording.name)?;
    print_verdict(out, &answers.outliers)?;
    print_cost(out, &answers.cost)?;
    print_policy(out, history, agents)?;
    writeln!(
        out,
        "  query    fleet-echo outliers --server http://{} --cluster {} --window all",
        answers.server, recording.name,
    )?;
    let points: u64 = agents.iter().map(|agent| agent.points_sent).sum();
    let batches: u64 = agents.iter().map(|agent| agent.batches_acked).sum();
    writeln!(
        out,
        "  agents   {} sent {points} points in {batches} batches, all acknowledged\n",
        agents.len()
    )
}

/// Prints the ranks and conditions that hold back a job.
pub(crate) fn print_verdict(out: &mut dyn Write, answer: &Value) -> io::Result<()> {
    let list = |name: &str| {
        answer
            .get(name)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let (outliers, conditions) = (list("outliers"), list("conditions"));
    if outliers.is_empty() && conditions.is_empty() {
        return writeln!(out, "  verdict  healthy: no rank holds the others back");
    }
    for outlier in &outliers {
        writeln!(
            out,
            "  verdict  rank {} on {}: {:.1} ms late, iterations {:.1} % longer, confidence {:.2}, class {}",
            number(outlier, "rank"),
            text(outlier, "node_id"),
            number(outlier, "lag_ms"),
            number(outlier, "effect_ratio") * 100.0,
            number(outlier, "confidence"),
            text(outlier, "class"),
        )?;
        print_timeline(out, outlier)?;
    }
    for condition in &conditions {
        writeln!(
            out,
            "  verdict  {}, no rank named: iterations {:.1} % longer",
            text(condition, "kind"),
            number(condition, "effect_ratio") * 100.0,
        )?;
        print_timeline(out, condition)?;
    }
    Ok(())
}

fn print_timeline(out: &mut dyn Write, incident: &Value) -> io::Result<()> {
    let cleared = incident.get("cleared_iteration").and_then(Value::as_f64);
    let end = cleared.map_or_else(
        || "still open".to_owned(),
        |at| format!("cleared at {at:.0}"),
    );
    writeln!(
        out,
        "           since iteration {:.0}, raised at {:.0}, {end}",
        number(incident, "first_iteration"),
        number(incident, "raised_iteration"),
    )?;
    writeln!(out, "           {}", text(incident, "reason"))
}

/// Prints what they cost.
pub(crate) fn print_cost(out: &mut dyn Write, cost: &Value) -> io::Result<()> {
    let gpu_seconds = number(cost, "lost_gpu_hours") * 3_600.0;
    let currency = cost.get("currency").and_then(Value::as_str).unwrap_or("");
    let money = |name: &str, digits: usize| {
        cost.get(name).and_then(Value::as_f64).map_or_else(
            || "unknown".to_owned(),
            |amount| format!("{currency} {amount:.digits$}"),
        )
    };
    if cost.get("window_total").is_none_or(Value::is_null) {
        return writeln!(
            out,
            "  cost     {gpu_seconds:.2} GPU-seconds lost; for an amount of money give --rates FILE"
        );
    }
    writeln!(
        out,
        "  cost     {gpu_seconds:.2} GPU-seconds lost, {} in the window; {} per hour at this rate",
        money("window_total", 6),
        money("run_rate_per_hour", 2),
    )
}

fn print_policy(
    out: &mut dyn Write,
    history: &PolicyHistory,
    agents: &[AgentSummary],
) -> io::Result<()> {
    let Some(set) = &history.last else {
        return writeln!(out, "  policy   none pushed");
    };
    let reached = agents
        .iter()
        .filter(|agent| agent.policy_version.is_some())
        .count();
    let named = if history.named.is_empty() {
        "no outlier".to_owned()
    } else {
        format!("outlier: rank {}", join(&history.named))
    };
    writeln!(
        out,
        "  policy   {} versions pushed, received by {reached} agents; {named}",
        set.version
    )?;
    for cohort in &set.cohorts {
        writeln!(
            out,
            "           v{}: {} center {:.2} ms, sigma {:.2} ms, limits z {:.1} and {:.0} % of {:.1} ms, quorum {}",
            set.version,
            cohort.signal,
            cohort.center_ms,
            cohort.sigma_ms,
            cohort.critical_z,
            cohort.effect_gate * 100.0,
            cohort.period_ms,
            if cohort.quorum_met { "met" } else { "not met" },
        )?;
    }
    Ok(())
}

/// Prints the address of the page of the first job with a fault, where the instance stays.
pub(super) fn print_page(
    out: &mut dyn Write,
    server: SocketAddr,
    recordings: &[Recording],
) -> io::Result<()> {
    let cluster = with_a_fault(recordings).map(|recording| format!("clusters/{}", recording.name));
    let path = cluster.unwrap_or_default();
    writeln!(out, "  page     http://{server}/{path}\n")
}

/// Prints commands to query the results by hand.
pub(super) fn print_commands(
    out: &mut dyn Write,
    server: SocketAddr,
    recordings: &[Recording],
) -> io::Result<()> {
    let Some(recording) = with_a_fault(recordings) else {
        return Ok(());
    };
    let cluster = &recording.name;
    writeln!(out, "To query the results by hand:")?;
    writeln!(
        out,
        "  fleet-echo status --server http://{server} --window all"
    )?;
    for tool in ["outliers", "cost", "history"] {
        writeln!(
            out,
            "  fleet-echo {tool} --server http://{server} --cluster {cluster} --window all"
        )?;
    }
    writeln!(
        out,
        "  curl -s http://{server}/api/v1/tools/fleet.cluster.find_outlier_nodes -H 'content-type: application/json' \\\n    -d '{{\"cluster\":\"{cluster}\",\"window\":\"all\"}}'",
    )
}

/// Returns the first recording of a job with a fault.
fn with_a_fault(recordings: &[Recording]) -> Option<&Recording> {
    recordings
        .iter()
        .find(|recording| recording.name != "healthy")
}

fn join(ranks: &BTreeSet<u32>) -> String {
    ranks
        .iter()
        .map(u32::to_string)
        .collect::<Vec<String>>()
        .join(", ")
}

fn number(value: &Value, name: &str) -> f64 {
    value.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or("?")
}
