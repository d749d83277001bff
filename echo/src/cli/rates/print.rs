//! Text output of a rates file and a fleet.

use std::collections::BTreeMap;
use std::io::{self, Write};

use echo_core::pattern::Pattern;
use echo_core::text::visible;
use echo_core::units::Nanos;
use echo_tools::rates::{Rate, Rates};

use crate::cli::rates::fleet::{Fleet, Node};
use crate::cli::view;

/// Maximum number of nodes named per row; the rest is counted.
const MAX_NAMED: usize = 4;

/// Prints the rates in order of precedence.
pub(super) fn table(file: &str, rates: &Rates, now: Nanos, out: &mut dyn Write) -> io::Result<()> {
    let n_rates = rates.all().len();
    let rows = rates.by_precedence();
    writeln!(
        out,
        "{file} is valid: {}\n",
        count_with(n_rates, "rate", "the first match applies to a GPU")
    )?;
    let header = ["RATE", "FOR", "PRICE", "CLASS", "FROM", "UNTIL", ""];
    let rows: Vec<Vec<String>> = rows.iter().map(|(at, rate)| row(at, rate, now)).collect();
    view::table(out, &header, &rows)?;
    if !rates.locations().is_empty() {
        writeln!(out)?;
        let locations = rates.locations().iter().map(|place| {
            let name = |pattern: &Option<Pattern>| {
                pattern
                    .as_ref()
                    .map_or_else(|| "*".to_owned(), |pattern| pattern.as_str().to_owned())
            };
            let region = place.region.clone().unwrap_or_else(|| "-".to_owned());
            vec![
                name(&place.cluster),
                name(&place.node),
                place.provider.clone(),
                region,
            ]
        });
        let header = ["CLUSTER", "NODE", "PROVIDER", "REGION"];
        view::table(out, &header, &locations.collect::<Vec<_>>())?;
    }
    for note in rates.notes() {
        writeln!(out, "\nnote: {note}")?;
    }
    Ok(())
}

fn count_with(n: usize, one: &str, rest: &str) -> String {
    match n {
        1 => format!("1 {one}, {rest}"),
        n => format!("{n} {one}s, {rest}"),
    }
}

fn row(at: &str, rate: &Rate, now: Nanos) -> Vec<String> {
    let date = |instant: Nanos| instant.to_string().chars().take(10).collect::<String>();
    let from = Some(rate.from).filter(|from| *from != Nanos::EARLIEST);
    vec![
        at.to_owned(),
        scope(rate),
        format!("{} {}", rate.per_gpu_hour.normalize(), rate.currency),
        rate.class.name().to_owned(),
        from.map_or_else(|| "-".to_owned(), date),
        rate.to.map_or_else(|| "-".to_owned(), date),
        if rate.is_in_force(now) {
            String::new()
        } else {
            "not in force today".to_owned()
        },
    ]
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

/// Prints the GPUs of a fleet with their prices; GPUs without a price come last, with all their
/// nodes.
pub(super) fn fleet(fleet: &Fleet, out: &mut dyn Write) -> io::Result<()> {
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
    writeln!(out, "\nGPUs of {}, at the prices of today:\n", fleet.source)?;
    let rows = groups.iter().map(|((_, cluster, model, price), nodes)| {
        let n_ranks: u64 = nodes.iter().map(|node| node.n_ranks).sum();
        let (at, price) = price.map_or_else(
            || ("-".to_owned(), "NO PRICE".to_owned()),
            |price| {
                let amount = price.per_gpu_hour.normalize();
                (
                    price.at.clone(),
                    format!("{amount} {} {}", price.currency, price.class),
                )
            },
        );
        let model = visible(model.unwrap_or("unknown")).into_owned();
        vec![
            visible(cluster).into_owned(),
            model,
            n_ranks.to_string(),
            at,
            price,
            names(nodes),
        ]
    });
    let header = ["CLUSTER", "MODEL", "RANKS", "RATE", "PRICE", "NODES"];
    view::table(out, &header, &rows.collect::<Vec<_>>())?;
    let (n_nodes, n_unpriced) = (fleet.nodes.len(), fleet.unpriced().count());
    if n_unpriced == 0 {
        writeln!(out, "\nall GPUs have a price")?;
    } else {
        writeln!(
            out,
            "\n{n_unpriced} of {n_nodes} have no price: add rates for their models, spelled as above"
        )?;
    }
    if fleet.truncated {
        writeln!(out, "list truncated to {n_nodes} entries: use --db for all")?;
    }
    Ok(())
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
