//! GPUs of a fleet, as reported by their ranks, with prices.

use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use echo_core::ids::{ClusterId, NodeId};
use echo_core::units::Nanos;
use echo_tools::rates::{Gpu, Rates};
use serde_json::{Value, json};

use crate::cli::connection::ConnectionArgs;
use crate::cli::rates::price::number;
use crate::cli::sql_permission::{self, RUN_ANALYSIS};
use crate::cli::view::list;
use crate::cli::{CliError, ToolInput, call_tool};

/// Source of the fleet.
#[derive(Debug, Clone, Args)]
pub struct FleetArgs {
    /// Database file of a stopped instance, to read instead of --server
    #[arg(long, value_name = "PATH")]
    pub db: Option<PathBuf>,
    /// Connection to a running instance.
    #[command(flatten)]
    pub server: NamedServer,
}

/// Connection given by flag, environment variable or chosen context; there is no default here.
#[derive(Debug, Clone)]
pub struct NamedServer(Option<ConnectionArgs>);

/// GPUs of one model on a node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) cluster: ClusterId,
    pub(super) node: NodeId,
    pub(super) model: Option<String>,
    pub(super) n_ranks: u64,
    pub(super) place: Option<(String, Option<String>)>,
    pub(super) price: Option<Price>,
}

/// Price of one GPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Price {
    /// Location of the rate in the file.
    pub(super) at: String,
    pub(super) per_gpu_hour: rust_decimal::Decimal,
    pub(super) currency: String,
    pub(super) class: &'static str,
}

/// GPUs of all nodes.
#[derive(Debug)]
pub(super) struct Fleet {
    /// Server address or database file.
    pub(super) source: String,
    pub(super) nodes: Vec<Node>,
    /// Whether the list of nodes is incomplete.
    pub(super) truncated: bool,
}

/// GPU model of each rank; reports from before a rank knew its model are ignored.
const GPUS_QUERY: &str = "\
    SELECT cluster_id, node_id, gpu_model, count(*)::BIGINT AS n_ranks \
    FROM (SELECT cluster_id, node_id, job, rank, max(gpu_model) AS gpu_model FROM ranks WHERE rank IS NOT NULL \
          GROUP BY cluster_id, node_id, job, rank) AS gpus \
    GROUP BY cluster_id, node_id, gpu_model ORDER BY cluster_id, node_id, gpu_model";

/// Limits of the SQL result.
const MAX_ROWS: u32 = 10_000;
const MAX_BYTES: u32 = 4 * 1024 * 1024;

impl FleetArgs {
    /// Loads the fleet; `None` if no source was given.
    pub(super) fn load(&self) -> Result<Option<Fleet>, CliError> {
        if let Some(db) = &self.db {
            return load_from_database(db).map(Some);
        }
        let Some(connection) = &self.server.0 else {
            return Ok(None);
        };
        let input = ToolInput::default()
            .with("sql", Some(GPUS_QUERY))
            .with("max_rows", Some(MAX_ROWS))
            .with("max_bytes", Some(MAX_BYTES));
        let answer = call_tool(connection, RUN_ANALYSIS, input);
        let (_, answer) = answer.map_err(sql_permission::explain)?;
        Ok(Some(Fleet {
            source: connection.server.clone(),
            nodes: list(&answer, "rows").iter().filter_map(parse_row).collect(),
            truncated: answer.get("truncated") == Some(&Value::Bool(true)),
        }))
    }
}

/// Parses a row of the result.
fn parse_row(row: &Value) -> Option<Node> {
    let text = |at: usize| row.get(at).and_then(Value::as_str);
    Some(Node {
        cluster: text(0)?.parse().ok()?,
        node: text(1)?.parse().ok()?,
        model: text(2).map(str::to_owned),
        n_ranks: row.get(3)?.as_u64()?,
        place: None,
        price: None,
    })
}

fn load_from_database(db: &std::path::Path) -> Result<Fleet, CliError> {
    use echo_core::clock::SystemClock;
    use echo_store::duckdb::offline::gpus::gpus;

    let to_node = |row: echo_store::duckdb::inventory::Gpus| Node {
        cluster: row.cluster,
        node: row.node,
        model: row.model,
        n_ranks: row.n_ranks,
        place: None,
        price: None,
    };
    Ok(Fleet {
        source: db.display().to_string(),
        nodes: gpus(db, &SystemClock)?.into_iter().map(to_node).collect(),
        truncated: false,
    })
}

impl Fleet {
    /// Adds the prices in force at `now`.
    pub(super) fn priced(mut self, rates: &Rates, now: Nanos) -> Self {
        for node in &mut self.nodes {
            let gpu = Gpu {
                cluster: &node.cluster,
                node: &node.node,
                model: node.model.as_deref(),
            };
            let place = rates.location(&node.cluster, &node.node);
            node.place = place.map(|place| (place.provider.clone(), place.region.clone()));
            node.price = rates.rate(&gpu, now).map(|rate| Price {
                at: rates.key_path(rate).unwrap_or_default().to_owned(),
                per_gpu_hour: rate.per_gpu_hour,
                currency: rate.currency.to_string(),
                class: rate.class.name(),
            });
        }
        self
    }

    /// Returns the nodes without a price.
    pub(super) fn unpriced(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.price.is_none())
    }

    /// Converts the fleet to JSON.
    pub(super) fn to_json(&self) -> Value {
        let row = |node: &Node| {
            let (price, place) = (node.price.as_ref(), node.place.as_ref());
            json!({
                "cluster": node.cluster.as_str(),
                "node_id": node.node.as_str(),
                "gpu_model": node.model,
                "n_ranks": node.n_ranks,
                "provider": place.map(|(provider, _)| provider),
                "region": place.and_then(|(_, region)| region.as_ref()),
                "rate": price.map(|price| &price.at),
                "per_gpu_hour": price.map(|price| number(price.per_gpu_hour)),
                "currency": price.map(|price| &price.currency),
                "rate_class": price.map(|price| price.class),
            })
        };
        json!({
            "source": self.source,
            "nodes": self.nodes.iter().map(row).collect::<Vec<_>>(),
            "unpriced_nodes": self.unpriced().count(),
            "truncated": self.truncated,
        })
    }
}

impl Args for NamedServer {
    fn augment_args(cmd: Command) -> Command {
        ConnectionArgs::augment_args(cmd).mut_arg("server", |arg| {
            arg.hide_default_value(true)
                .help("Server address; lists its GPUs with their prices")
        })
    }

    fn augment_args_for_update(cmd: Command) -> Command {
        Self::augment_args(cmd)
    }
}

impl FromArgMatches for NamedServer {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        // The current context is a default.
        let is_given = |flag| {
            let source = matches.value_source(flag);
            source.is_some_and(|source| source != ValueSource::DefaultValue)
        };
        let is_named = is_given("server") || is_given("context");
        let connection = is_named.then(|| ConnectionArgs::from_arg_matches(matches));
        connection.transpose().map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
