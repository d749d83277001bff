//! `fleet-echo open`: an investigation of recordings of one or many hosts, without a server: each
//! file is replayed as the node that it is named after, into an instance that lasts as long as the
//! command.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use echo_core::clock::SystemClock;

use crate::app::{App, interrupted};
use crate::cli::connection::ConnectionArgs;
use crate::cli::mcp::{self, McpArgs};
use crate::demo::agents::agent_program;
use crate::demo::report::{ToolAnswers, print_verdict};
use crate::demo::serve_args;
use crate::import::error::ImportError;
use crate::import::recordings::{Node, Target, files_in, header, unreadable};
use crate::progress::spinner;

/// Examples of the help.
pub const EXAMPLES: &str = "\
Examples:
  fleet-echo open gpu-7.jsonl.gz gpu-8.jsonl.gz     # page, SQL and MCP on both
  fleet-echo open recordings/ --db incident.duckdb  # keeps the database
  claude mcp add incident -- fleet-echo open --mcp recordings/

FILE is a recording of fleet-agent record, gzipped or not, or a folder with recordings. A recording \
is the node that its file is named after, so recordings of several hosts keep their nodes apart. The \
events are stored as of now. Until Ctrl-C, or with --mcp until the client closes the input.

fleet-echo import --serve does the same for traces and dumps of other tools.";

/// Flags of `open`.
#[derive(Debug, Clone, Args)]
pub struct OpenArgs {
    /// Recordings, or folders with recordings
    #[arg(required = true, value_name = "FILE")]
    pub paths: Vec<PathBuf>,

    /// Database file to keep; created if missing [default: a temporary one]
    #[arg(long, value_name = "PATH")]
    pub db: Option<PathBuf>,

    /// Speak the Model Context Protocol on standard input and output
    #[arg(long)]
    pub mcp: bool,

    /// Cluster name of the recordings
    #[arg(long, value_name = "NAME", default_value = "recordings")]
    pub cluster: String,

    /// GPU-hour rates (YAML); without it, costs are reported in GPU time only
    #[arg(long, value_name = "FILE", env = "FLEET_ECHO_RATES")]
    pub rates: Option<PathBuf>,

    /// Agent program [default: fleet-agent in the directory of this program]
    #[arg(long, value_name = "PROGRAM", env = "FLEET_ECHO_DEMO_AGENT")]
    pub agent: Option<PathBuf>,
}

/// Opens the recordings. With `--mcp` messages go through standard input and output, and `out` is
/// another stream.
#[expect(
    clippy::significant_drop_tightening,
    reason = "the instance runs until it is stopped"
)]
pub async fn run(args: &OpenArgs, out: &mut (dyn Write + Send)) -> Result<(), ImportError> {
    let agent = agent_program(args.agent.as_deref())?;
    let nodes = nodes(&args.paths)?;
    let folder = tempfile::Builder::new()
        .prefix("fleet-echo-open-")
        .tempdir()?;
    let temporary = folder.path().join("fleet.duckdb");
    let db = args.db.clone().unwrap_or(temporary);
    let serve = serve_args(args.rates.clone(), db);
    let app = App::start(&serve, Arc::new(SystemClock)).await?;
    let outcome = tokio::select! {
        opened = open(args, (agent.as_path(), &nodes), &app, out) => opened,
        interrupted = interrupted() => interrupted.map_err(ImportError::from),
    };
    if outcome.is_ok() && !args.mcp {
        return Ok(app.run_until_signal().await?);
    }
    let outcome = match outcome {
        Ok(()) => {
            tokio::select! {
                served = serve_mcp(app.http_address()) => served,
                interrupted = interrupted() => interrupted.map_err(ImportError::from),
            }
        }
        failed => failed,
    };
    let stopped = app.stop().await;
    outcome?;
    Ok(stopped?)
}

/// Replays the recordings, and prints what the detector found and where to go on.
async fn open(
    args: &OpenArgs,
    (agent, nodes): (&Path, &BTreeMap<String, PathBuf>),
    app: &App,
    out: &mut (dyn Write + Send),
) -> Result<(), ImportError> {
    let spinner = spinner("reading the recordings".to_owned());
    if let Some(reason) = app.not_ready_reasons().first() {
        return Err(ImportError::NotStored(reason.to_string()));
    }
    let endpoint = format!("http://{}", app.otlp_address());
    let target = Target {
        agent,
        endpoint: &endpoint,
        cluster: &args.cluster,
    };
    let files = nodes.iter();
    let files: Vec<_> = files
        .map(|(node, file)| (file.as_path(), Node::Named(node)))
        .collect();
    let unread_ends = target.replay(&files).await?;
    app.wait_until_judged().await;
    let http = app.http_address();
    let answers = ToolAnswers::query(http, &args.cluster).await?;
    drop(spinner);
    let names: Vec<&str> = nodes.keys().map(String::as_str).collect();
    writeln!(out, "  nodes    {}", names.join(", "))?;
    for reason in unread_ends {
        writeln!(out, "           {reason}")?;
    }
    print_verdict(out, &answers.outliers)?;
    print_next(out, http)?;
    Ok(out.flush()?)
}

/// Prints where to go on.
fn print_next(out: &mut dyn Write, http: SocketAddr) -> io::Result<()> {
    let server = format!("--server http://{http}");
    writeln!(out, "  page     http://{http}/")?;
    writeln!(out, "  why      fleet-echo host chains {server}")?;
    writeln!(out, "  sql      fleet-echo sql --views {server}")?;
    writeln!(out, "  mcp      http://{http}/mcp")
}

/// Forwards messages between standard input and output and the instance.
async fn serve_mcp(http: SocketAddr) -> Result<(), ImportError> {
    /// Above the deadline of queries.
    const TIMEOUT: Duration = Duration::from_mins(1);
    let args = McpArgs {
        stdio: true,
        connection: ConnectionArgs {
            context: None,
            server: format!("http://{http}"),
            shards: None,
            timeout: TIMEOUT,
            tls_ca: None,
            token: None,
            token_file: None,
            insecure_token: false,
        },
        compat: false,
    };
    let input = tokio::io::BufReader::new(tokio::io::stdin());
    Ok(mcp::run(&args, input, tokio::io::stdout()).await?)
}

/// Returns the recordings by the names of their nodes.
fn nodes(paths: &[PathBuf]) -> Result<BTreeMap<String, PathBuf>, ImportError> {
    let mut nodes = BTreeMap::new();
    for path in paths {
        let is_folder = path.is_dir();
        let files = if is_folder {
            files_in(path).map_err(|error| unreadable(path, &error))?
        } else {
            vec![path.clone()]
        };
        for file in files {
            if header(&file)?.is_some() {
                let node = unused(&nodes, &node_name(&file));
                nodes.insert(node, file);
            } else if !is_folder {
                return Err(ImportError::Input(format!(
                    "{}: not a recording of fleet-agent; fleet-echo import --serve reads traces and dumps of other tools",
                    file.display()
                )));
            }
        }
    }
    if nodes.is_empty() {
        let paths: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let reason = format!(
            "{}: no recordings of fleet-agent; make one with fleet-agent record",
            paths.join(", ")
        );
        return Err(ImportError::Input(reason));
    }
    Ok(nodes)
}

/// Returns the name of a file without its extensions.
fn node_name(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    name.strip_suffix(".jsonl").unwrap_or(name).to_owned()
}

/// Returns the name, with a number if a node has it.
fn unused(nodes: &BTreeMap<String, PathBuf>, name: &str) -> String {
    let numbered = (2_u32..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    let is_unused = |name: &String| !nodes.contains_key(name);
    names.find(is_unused).unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};

    use super::{node_name, unused};

    #[test]
    fn a_node_is_named_after_the_file_of_its_recording() {
        for (file, node) in [
            ("/tmp/gpu-7.jsonl.gz", "gpu-7"),
            ("gpu-8.example.org.jsonl", "gpu-8.example.org"),
            ("recording", "recording"),
        ] {
            assert_eq!(node_name(Path::new(file)), node);
        }
    }

    #[test]
    fn files_of_one_name_are_nodes_of_their_own() {
        let mut nodes = BTreeMap::new();
        for expected in ["host", "host-2", "host-3"] {
            let name = unused(&nodes, "host");
            assert_eq!(name, expected);
            nodes.insert(name, PathBuf::new());
        }
    }
}
