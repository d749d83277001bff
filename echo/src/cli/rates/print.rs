//! Text output of a rates file and a fleet.

use std::collections::BTreeMap;
use std::io::{self, Write};

use echo_core::pattern::Pattern;
use echo_core::text::visible;
use echo_core::units::Nanos;
use echo_tools::rates::{Rate, Rates};
use serde_json::{Value, json};

use crate::cli::column::{Column, Layout};
use crate::cli::output::OutputArgs;
use crate::cli::rates::fleet::{Fleet, Node, Price};
use crate::cli::screen::Screen;
use crate::cli::table::Table;
use crate::cli::view::{counted, list};

/// Maximum number of nodes named per row; the rest is counted.
const MAX_NAMED: usize = 4;

const RATES: [Column<'_>; 7] = [
    Column::text("RATE", "at"),
    Column::sentence("FOR", "scope"),
    Column::text("PRICE", "price"),
    Column::text("CLASS", "class"),
    Column::text("FROM", "from"),
    Column::text("UNTIL", "to"),
    Column::text("", "remark"),
];

const LOCATIONS: [Column<'_>; 4] = [
    Column::text("CLUSTER", "cluster"),
    Column::text("NODE", "node"),
    Column::text("PROVIDER", "provider"),
    Column::text("REGION", "region"),
];

const GPUS: [Column<'_>; 6] = [
    Column::text("CLUSTER", "cluster"),
    Column::text("MODEL", "model"),
    Column::count("GPUS", "gpus"),
    Column::text("RATE", "at"),
    Column::text("PRICE", "price"),
    Column::sentence("NODES", "nodes"),
];

/// Rates as CSV.
const RATES_CSV: [Column<'_>; 12] = [
    Column::text("", "at"),
    Column::text("", "node"),
    Column::text("", "cluster"),
    Column::text("", "provider"),
    Column::text("", "region"),
    Column::text("", "gpu_model"),
    Column::text("", "per_gpu_hour"),
    Column::text("", "currency"),
    Column::text("", "rate_class"),
    Column::text("", "from"),
    Column::text("", "to"),
    Column::text("", "in_force"),
];

/// GPUs of a fleet as CSV.
const GPUS_CSV: [Column<'_>; 10] = [
    Column::text("", "cluster"),
    Column::text("", "node_id"),
    Column::text("", "gpu_model"),
    Column::text("", "n_ranks"),
    Column::text("", "provider"),
    Column::text("", "region"),
    Column::text("", "rate"),
    Column::text("", "per_gpu_hour"),
    Column::text("", "currency"),
    Column::text("", "rate_class"),
];

/// Prints the GPUs of the fleet of a JSON report as CSV, or without a fleet its rates.
pub(super) fn rows(report: &Value, output: OutputArgs, screen: &mut Screen<'_>) -> io::Result<()> {
    match report.get("fleet").filter(|fleet| !fleet.is_null()) {
        Some(fleet) => Table::new(&GPUS_CSV, list(fleet, "nodes")).write_rows(output, screen),
        None => Table::new(&RATES_CSV, list(report, "rates")).write_rows(output, screen),
    }
}

/// How rates and GPUs are printed as text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Printed {
    pub(super) layout: Layout,
    /// Time of the prices.
    pub(super) now: Nanos,
}

impl Printed {
    /// Prints the rates in order of precedence.
    pub(super) fn table(
        self,
        file: &str,
        rates: &Rates,
        screen: &mut Screen<'_>,
    ) -> io::Result<()> {
        let Self { layout, now } = self;
        let n_rates = rates.all().len();
        let rows = rates.by_precedence();
        writeln!(
            screen,
            "{file} is valid: {}\n",
            count_with(n_rates, "rate", "the first match applies to a GPU")
        )?;
        let rows: Vec<Value> = rows.iter().map(|(at, rate)| row(at, rate, now)).collect();
        Table::new(&RATES, &rows).print(layout, screen)?;
        if !rates.locations().is_empty() {
            writeln!(screen)?;
            let locations = rates.locations().iter().map(|place| {
                let name = |pattern: &Option<Pattern>| {
                    let name = pattern.as_ref().map(Pattern::as_str);
                    name.unwrap_or("*").to_owned()
                };
                json!({
                    "cluster": name(&place.cluster),
                    "node": name(&place.node),
                    "provider": place.provider,
                    "region": place.region,
                })
            });
            let locations: Vec<Value> = locations.collect();
            Table::new(&LOCATIONS, &locations).print(layout, screen)?;
        }
        for note in rates.notes() {
            writeln!(screen, "\nnote: {note}")?;
        }
        Ok(())
    }

    /// Prints the GPUs of a fleet with their prices; GPUs without a price come last, with all their
    /// nodes.
    pub(super) fn fleet(self, fleet: &Fleet, screen: &mut Screen<'_>) -> io::Result<()> {
        let mut groups: BTreeMap<_, Vec<&Node>> = BTreeMap::new();
        for node in &fleet.nodes {
            let key = (
                node.price.is_none(),
                node.cluster.as_str(),
                node.model.as_deref(),
                node.price.as_ref(),
            );
            groups.entry(key).or_default().push(node);
        }
        writeln!(
            screen,
            "\nGPUs of {}, at the prices of today:\n",
            fleet.source
        )?;
        let rows = groups.iter().map(|((_, cluster, model, price), nodes)| {
            let shown = |price: &Price| {
                let amount = price.per_gpu_hour.normalize();
                format!("{amount} {} {}", price.currency, price.class)
            };
            json!({
                "cluster": visible(cluster),
                "model": visible(model.unwrap_or("unknown")),
                "gpus": n_gpus(nodes),
                "at": price.map(|price| price.at.as_str()),
                "price": price.map_or_else(|| "NO PRICE".to_owned(), shown),
                "nodes": names(nodes),
            })
        });
        let rows: Vec<Value> = rows.collect();
        Table::new(&GPUS, &rows).print(self.layout, screen)?;
        let unpriced_nodes: Vec<&Node> = fleet.unpriced().collect();
        let unpriced = n_gpus(&unpriced_nodes);
        let all: u64 = fleet.nodes.iter().map(|node| node.n_ranks).sum();
        if unpriced == 0 {
            writeln!(screen, "\nall GPUs have a price")?;
        } else {
            let n_nodes = counted(unpriced_nodes.len(), "node");
            writeln!(
                screen,
                "\n{unpriced} of {all} GPUs, on {n_nodes}, have no price: add rates for their models, spelled as above"
            )?;
        }
        if fleet.truncated {
            let n_nodes = fleet.nodes.len();
            writeln!(
                screen,
                "list truncated to {n_nodes} entries: use --db for all"
            )?;
        }
        Ok(())
    }
}

fn count_with(n: usize, one: &str, rest: &str) -> String {
    match n {
        1 => format!("1 {one}, {rest}"),
        n => format!("{n} {one}s, {rest}"),
    }
}

fn row(at: &str, rate: &Rate, now: Nanos) -> Value {
    let date = |instant: Nanos| instant.to_string().chars().take(10).collect::<String>();
    let from = Some(rate.from).filter(|from| *from != Nanos::EARLIEST);
    let is_in_force = rate.is_in_force(now);
    json!({
        "at": at,
        "scope": scope(rate),
        "price": format!("{} {}", rate.per_gpu_hour.normalize(), rate.currency),
        "class": rate.class.name(),
        "from": from.map(date),
        "to": rate.to.map(date),
        "remark": if is_in_force { "" } else { "not in force today" },
    })
}

/// Describes the GPUs that a rate applies to.
fn scope(rate: &Rate) -> String {
    let named = [
        ("node", rate.node.as_ref().map(ToString::to_string)),
        ("cluster", rate.cluster.as_ref().map(ToString::to_string)),
        ("model", rate.gpu_model.as_ref().map(ToString::to_string)),
        ("region", rate.region.clone()),
        ("provider", rate.provider.clone()),
    ];
    let named = named.into_iter();
    let parts: Vec<String> = named
        .filter_map(|(what, name)| Some(format!("{what} {}", name?)))
        .collect();
    if parts.is_empty() {
        "all GPUs".to_owned()
    } else {
        parts.join(", ")
    }
}

/// Number of GPUs: one per rank.
fn n_gpus(nodes: &[&Node]) -> u64 {
    nodes.iter().map(|node| node.n_ranks).sum()
}

fn names(nodes: &[&Node]) -> String {
    let is_unpriced = nodes.iter().any(|node| node.price.is_none());
    let most = if is_unpriced { usize::MAX } else { MAX_NAMED };
    let named = nodes.iter().take(most);
    let named: Vec<_> = named.map(|node| visible(node.node.as_str())).collect();
    match nodes.len().saturating_sub(most) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}
