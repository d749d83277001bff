//! `fleet-echo clusters`: the clusters that send events.

use std::io::Write;

use clap::Args;
use serde_json::Value;

use crate::cli::column::Column;
use crate::cli::screen::Screen;
use crate::cli::sql_permission::{self, RUN_ANALYSIS};
use crate::cli::table::Table;
use crate::cli::view::{list, text};
use crate::cli::{CliError, ClientArgs, ToolInput, query};

/// Clusters with their nodes, ranks and open incidents.
#[derive(Debug, Clone, Args)]
pub struct ClustersArgs {
    /// Connection and output format.
    #[command(flatten)]
    pub client: ClientArgs,
}

const CLUSTERS: [Column<'_>; 7] = [
    Column::text("CLUSTER", "cluster_id"),
    Column::count("NODES", "n_nodes"),
    Column::count("JOBS", "n_jobs"),
    Column::count("GPUS", "n_gpus"),
    Column::count("OPEN", "n_open"),
    Column::text("OPEN SINCE", "open_since"),
    Column::text("GPU MODELS", "gpu_models"),
];

/// All clusters that ever sent events and are still stored.
const QUERY: &str = "\
    SELECT r.cluster_id, count(DISTINCT r.node_id)::BIGINT AS n_nodes, count(DISTINCT r.job)::BIGINT AS n_jobs, \
        count(DISTINCT CASE WHEN r.rank IS NOT NULL THEN concat(r.node_id, ' ', coalesce(r.gpu_uuid, r.rank::VARCHAR)) END)::BIGINT AS n_gpus, \
        coalesce(max(v.n_open), 0)::BIGINT AS n_open, max(v.since_ns)::BIGINT AS since_ns, \
        string_agg(DISTINCT r.gpu_model, ', ' ORDER BY r.gpu_model) AS gpu_models \
    FROM ranks AS r LEFT JOIN (SELECT cluster_id, count(*) AS n_open, min(first_seen_ns) AS since_ns FROM verdicts \
        WHERE state = 'open' GROUP BY cluster_id) AS v ON v.cluster_id = r.cluster_id \
    GROUP BY r.cluster_id ORDER BY r.cluster_id";

/// What to do where no agent has sent events.
const FIRST_STEP: &str = "start one on each host: fleet-agent run --cluster NAME --endpoint URL
URL is the address of --otlp-listen, which `fleet-echo serve` prints";

/// Runs the command.
pub fn run(args: &ClustersArgs, screen: &mut Screen<'_>) -> Result<(), CliError> {
    let input = ToolInput::default()
        .with("sql", Some(QUERY))
        .with("max_rows", Some(10_000_u32));
    let answer = query(&args.client, RUN_ANALYSIS, input, screen);
    let Some(answer) = answer.map_err(sql_permission::explain)? else {
        return Ok(());
    };
    let (rows, output) = (rows(&answer), args.client.output);
    let table = Table::new(&CLUSTERS, &rows);
    if output.is_csv() {
        return Ok(table.write_csv(output.layout(), screen)?);
    }
    if rows.is_empty() {
        writeln!(
            screen,
            "no clusters: no agent has sent events yet\n{FIRST_STEP}"
        )?;
        return Ok(());
    }
    Ok(table.print(output.layout(), screen)?)
}

/// Returns the rows of a SQL result as objects.
fn rows(answer: &Value) -> Vec<Value> {
    let names: Vec<String> = list(answer, "columns")
        .iter()
        .map(|column| text(column, "name"))
        .collect();
    let rows = list(answer, "rows").iter().filter_map(Value::as_array);
    let rows = rows.map(|row| {
        let mut row: Value = names.iter().cloned().zip(row.iter().cloned()).collect();
        let since = row.get("since_ns").and_then(nanos);
        let since = since.and_then(|nanos| jiff::Timestamp::from_nanosecond(nanos.into()).ok());
        let since = since.map(|since| format!("{since:.3}"));
        if let (Some(since), Some(fields)) = (since, row.as_object_mut()) {
            fields.insert("open_since".to_owned(), since.into());
        }
        row
    });
    rows.collect()
}

/// Returns a large integer of a SQL result, which may be a text.
fn nanos(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}
