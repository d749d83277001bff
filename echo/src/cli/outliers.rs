//! `fleet-echo outliers`: ranks that hold back their jobs, and nodes that report bad health.

use std::io::{self, Write};

use clap::Args;
use serde_json::Value;

use crate::cli::age::with_age;
use crate::cli::column::Column;
use crate::cli::output::OutputArgs;
use crate::cli::scope::ScopeArgs;
use crate::cli::screen::Screen;
use crate::cli::table::{Table, write_lines};
use crate::cli::view::{self, heading, list, quality, text};
use crate::cli::watch::WatchArgs;
use crate::cli::{CliError, ClientArgs, ToolInput, hang, query};

/// Ranks that hold back their jobs, and unhealthy nodes, with confidence and start time.
#[derive(Debug, Clone, Args)]
pub struct OutliersArgs {
    /// Cluster and time window.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Maximum number of outliers listed [default: 40]
    #[arg(long, env = "FLEET_ECHO_LIMIT")]
    pub limit: Option<u32>,
    /// Repetition.
    #[command(flatten)]
    pub watch: WatchArgs,
    /// Connection and output format.
    #[command(flatten)]
    pub client: ClientArgs,
}

const OUTLIERS: [Column<'_>; 16] = [
    Column::state(),
    Column::text("CLUSTER", "cluster"),
    Column::text("NODE", "node_id"),
    Column::count("RANK", "rank"),
    Column::text("GPU MODEL", "gpu_model").wide(),
    Column::text("GPU UUID", "gpu_uuid").wide(),
    Column::text("ROLE", "role"),
    Column::decimals("LAG ms", "lag_ms", 1),
    Column::percent("SLOWDOWN", "effect_ratio"),
    Column::percent("CONFIDENCE", "confidence"),
    Column::count("FOR", "for").text_only(),
    Column::computed("GPU", "gpu_uuid", view::gpu).narrow(),
    Column::text("SINCE", "first_seen").wide(),
    Column::text("JOB", "job").wide(),
    Column::text("INCIDENT", "incident_id").wide(),
    Column::sentence("REASON", "reason"),
];

const CONDITIONS: [Column<'_>; 10] = [
    Column::state(),
    Column::text("CLUSTER", "cluster"),
    Column::text("CONDITION", "kind"),
    Column::number("SLOWDOWN", "effect_ratio", hang::slowdown),
    Column::percent("CONFIDENCE", "confidence"),
    Column::count("FOR", "for").text_only(),
    Column::text("SINCE", "first_seen").wide(),
    Column::text("JOB", "job").wide(),
    Column::text("INCIDENT", "incident_id").wide(),
    Column::sentence("REASON", "reason"),
];

/// Columns of the one table of outliers and conditions that is CSV.
const CSV: [Column<'_>; 17] = [
    Column::text("", "incident_id"),
    Column::text("", "cluster"),
    Column::text("", "state"),
    Column::text("", "severity"),
    Column::text("", "kind"),
    Column::text("", "node_id"),
    Column::text("", "rank"),
    Column::text("", "ranks"),
    Column::text("", "gpu_model"),
    Column::text("", "gpu_uuid"),
    Column::text("", "job"),
    Column::text("", "lag_ms"),
    Column::text("", "effect_ratio"),
    Column::text("", "confidence"),
    Column::text("", "first_seen"),
    Column::text("", "last_seen"),
    Column::text("", "reason"),
];

/// Runs the command.
pub fn run(args: &OutliersArgs, screen: &mut Screen<'_>) -> Result<(), CliError> {
    args.watch
        .repeat(args.client.output, screen, |screen| once(args, screen))
}

fn once(args: &OutliersArgs, screen: &mut Screen<'_>) -> Result<(), CliError> {
    let input = ToolInput::from_scope(&args.scope).with("limit", args.limit);
    let Some(answer) = query(
        &args.client,
        "fleet.cluster.find_outlier_nodes",
        input,
        screen,
    )?
    else {
        return Ok(());
    };
    let (connection, output) = (&args.client.connection, args.client.output);
    let conditions = hang::named(&answer, connection);
    if output.has_rows_only() {
        let rows = rows(&answer, &conditions);
        return Ok(Table::new(&CSV, &rows).write_rows(output, screen)?);
    }
    let [outliers, conditions] = [list(&answer, "outliers"), &conditions]
        .map(|incidents| with_age(incidents, &answer, &args.scope, connection));
    Ok(print(&answer, (&outliers, &conditions), output, screen)?)
}

/// Returns outliers and conditions as rows of one table.
fn rows(answer: &Value, conditions: &[Value]) -> Vec<Value> {
    let outliers = list(answer, "outliers").iter().cloned().map(|mut row| {
        let role = row.get("role").cloned().unwrap_or_default();
        if let Some(fields) = row.as_object_mut() {
            fields.insert("kind".to_owned(), role);
        }
        row
    });
    outliers.chain(conditions.iter().cloned()).collect()
}

fn print(
    answer: &Value,
    (outliers, conditions): (&[Value], &[Value]),
    output: OutputArgs,
    screen: &mut Screen<'_>,
) -> io::Result<()> {
    let names_cluster = answer.get("cluster").is_some_and(Value::is_string);
    writeln!(screen, "{}", heading(answer))?;
    if outliers.is_empty() && conditions.is_empty() {
        let is_known = answer.pointer("/data_quality/quorum_met") == Some(&Value::Bool(true));
        let verdict = if is_known {
            "no outliers"
        } else {
            "not enough data to name outliers"
        };
        writeln!(screen, "{verdict}")?;
    }
    if !outliers.is_empty() {
        writeln!(screen)?;
        let table = Table::new(&OUTLIERS, outliers).without_if("cluster", names_cluster);
        table.print(output.layout(), screen)?;
        for line in outliers.iter().flat_map(explanation) {
            write_lines(screen, &line)?;
        }
    }
    if !conditions.is_empty() {
        writeln!(screen)?;
        let table = Table::new(&CONDITIONS, conditions).without_if("cluster", names_cluster);
        table.print(output.layout(), screen)?;
        for one in conditions {
            let subject = format!("job {}", text(one, "job"));
            for line in advice(one, &subject) {
                write_lines(screen, &line)?;
            }
        }
    }
    if answer.get("truncated") == Some(&Value::Bool(true)) {
        writeln!(screen, "\nlist truncated: raise --limit")?;
    }
    writeln!(screen, "\n{}", quality(answer))
}

/// Host evidence in excess of the peers, and what to do.
fn explanation(outlier: &Value) -> Vec<String> {
    let sentences = view::host_evidence(outlier);
    let subject = format!("rank {}", text(outlier, "rank"));
    let evidence =
        (!sentences.is_empty()).then(|| format!("host of {subject}: {}", sentences.join("; ")));
    let recurrence = view::recurrence(outlier).map(|sentence| format!("{subject}: {sentence}"));
    let lines = evidence.into_iter().chain(recurrence);
    lines.chain(advice(outlier, &subject)).collect()
}

/// What to do about an open incident.
fn advice(incident: &Value, subject: &str) -> Vec<String> {
    let advice = view::advice(incident).into_iter();
    advice
        .map(|text| format!("do ({subject}): {text}"))
        .collect()
}
