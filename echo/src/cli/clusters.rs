//! `fleet-echo clusters`: the clusters that send events.

use std::io::Write;

use clap::Args;
use serde_json::Value;

use crate::cli::column::Column;
use crate::cli::screen::Screen;
use crate::cli::table::Table;
use crate::cli::view::{UNKNOWN, list};
use crate::cli::{CliError, ClientArgs, for_display, get_json};

/// Clusters with their nodes, ranks and open incidents.
#[derive(Debug, Clone, Args)]
pub struct ClustersArgs {
    /// Connection and output format.
    #[command(flatten)]
    pub client: ClientArgs,
}

const CLUSTERS: [Column<'_>; 9] = [
    Column::text("CLUSTER", "cluster"),
    Column::count("NODES", "n_nodes"),
    Column::count("JOBS", "n_jobs"),
    Column::count("GPUS", "n_gpus"),
    Column::count("OPEN", "n_open"),
    Column::text("OPEN SINCE", "open_since"),
    Column::text("FIRST EVENT", "first_event").wide(),
    Column::text("LAST EVENT", "last_event").wide(),
    Column::computed("GPU MODELS", "gpu_models", gpu_models),
];

/// Path of the list on the server.
const PATH: &str = "/api/v1/clusters";

/// What to do where no agent has sent events.
const FIRST_STEP: &str = "start one on each host: fleet-agent run --cluster NAME --endpoint URL
URL is the address of --otlp-listen, which `fleet-echo serve` prints";

/// Runs the command.
pub fn run(args: &ClustersArgs, screen: &mut Screen<'_>) -> Result<(), CliError> {
    let response = get_json(&args.client.connection, PATH);
    let Some(answer) = for_display(&args.client, response, screen)? else {
        return Ok(());
    };
    let (rows, output) = (list(&answer, "clusters"), args.client.output);
    let table = Table::new(&CLUSTERS, rows);
    if output.has_rows_only() {
        return Ok(table.write_rows(output, screen)?);
    }
    if rows.is_empty() {
        writeln!(
            screen,
            "no clusters: no agent has sent events yet\n{FIRST_STEP}"
        )?;
        return Ok(());
    }
    table.print(output.layout(), screen)?;
    if answer.get("truncated") == Some(&Value::Bool(true)) {
        let n_rows = rows.len();
        writeln!(screen, "\nlist truncated: the first {n_rows} by name")?;
    }
    Ok(())
}

/// Formats the models of the GPUs of a cluster; a dash if none is known.
fn gpu_models(row: &Value) -> String {
    let models = list(row, "gpu_models").iter().filter_map(Value::as_str);
    let models = models.collect::<Vec<_>>().join(", ");
    if models.is_empty() {
        return UNKNOWN.to_owned();
    }
    models
}
