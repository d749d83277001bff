//! Overview page: every visible cluster with its status and cost.

use echo_core::shard::Shard;
use echo_core::units::Nanos;
use echo_tools::ToolError;
use echo_tools::find_outlier_nodes::Outliers;
use echo_tools::get_cost::answer::Cost;
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::client::{ToolClient, WindowQuery};
use super::format;
use super::status::ClusterStatus;

/// Most clusters with their status; the others are linked.
const MAX_CLUSTERS: usize = 50;

/// Most clusters that are linked.
const MAX_LINKS: usize = 1_000;

/// Nanoseconds per day.
pub(super) const DAY_NANOS: i64 = 86_400_000_000_000;

/// Card of one cluster.
struct Card {
    name: String,
    outliers: Option<Outliers>,
    cost: Option<Cost>,
}

/// Renders the page.
pub(super) async fn page(client: &ToolClient<'_>) -> Result<Markup, ToolError> {
    let mut names = client.clusters().await?.into_iter();
    let today = WindowQuery {
        from: midnight(client.now()).to_string(),
        ..WindowQuery::default()
    };
    let began = client.now();
    let has_time_left = || client.now().millis_since(began) < client.soft_deadline_ms();
    let mut cards = Vec::new();
    while cards.len() < MAX_CLUSTERS && has_time_left() {
        let Some(name) = names.next() else { break };
        cards.push(Card {
            outliers: client.outliers(&name, &WindowQuery::last_hour()).await?,
            cost: client.cost(&name, &today).await?,
            name,
        });
    }
    let others: Vec<String> = names.by_ref().take(MAX_LINKS).collect();
    let not_listed = names.count();
    Ok(html! {
        h1 { "Clusters" }
        @if cards.is_empty() {
            (no_clusters())
        } @else {
            p.quiet { "As of " (format::instant(&client.now().to_string())) ", over the last hour of events." }
            ul.cards { @for card in &cards { li { (card_markup(card)) } } }
        }
        @if let Some(shard) = client.shard().filter(|shard| shard.count() > 1) { (other_shards(shard)) }
        @if !others.is_empty() {
            h2 { "More clusters" }
            ul.links { @for name in &others { li { a href=(path(name)) { (name) } } } }
            @if not_listed > 0 { p.quiet { "And " (not_listed) " more: " code { "fleet-echo outliers --cluster NAME" } "." } }
        }
    })
}

/// Returns the path of a cluster's page.
pub(super) fn path(cluster: &str) -> String {
    format!("/clusters/{}", encoded(cluster))
}

/// Percent-encodes a name.
pub(super) fn encoded(name: &str) -> String {
    utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()
}

/// Returns the start of the day, in UTC.
pub(super) fn midnight(now: Nanos) -> Nanos {
    now.offset(-now.value().rem_euclid(DAY_NANOS))
}

/// Most other shards that are linked; their URLs differ in a number.
const MAX_OTHERS: usize = 16;

/// Renders links to the other shards.
fn other_shards(shard: &Shard) -> Markup {
    let hidden = shard.others().skip(MAX_OTHERS).count();
    html! {
        p.quiet {
            "This is shard " (shard.ordinal()) " of " (shard.count()) ". Other clusters are at "
            @for (index, other) in shard.others().take(MAX_OTHERS).enumerate() {
                @if index > 0 { ", " }
                a href={ (other.url) "/" } { "shard " (other.ordinal) }
            }
            @if hidden > 0 { " and " (hidden) " more" }
            "."
        }
    }
}

fn no_clusters() -> Markup {
    html! {
        div.empty {
            p.lead { "No events are stored yet." }
            p { "Start an agent on each host, and let it send to the address that " code { "--otlp-listen" } " names:" }
            pre { code { "fleet-agent run --cluster NAME --endpoint https://ECHO:4317" } }
            p { "Then load this page again." }
        }
    }
}

fn card_markup(card: &Card) -> Markup {
    let status = card.outliers.as_ref().map(ClusterStatus::from_outliers);
    html! {
        article.card {
            h2 { a href=(path(&card.name)) { (card.name) } }
            @if let Some(status) = &status { (badge(status)) }
            dl.figures {
                @if let Some(outliers) = &card.outliers { (outlier_figures(outliers)) }
                @if let Some(cost) = &card.cost {
                    (figure("Cost now", &format::run_rate(cost)))
                    (figure("Cost today", &format::total(cost)))
                }
            }
        }
    }
}

fn outlier_figures(answer: &Outliers) -> Markup {
    let culprits = answer.outliers.iter().filter(|one| one.is_culprit());
    let open = culprits.filter(|one| one.lifecycle.is_open()).count();
    html! {
        (figure("Outliers now", &open.to_string()))
        (quality(answer))
    }
}

/// Renders the coverage and the age of the last event.
pub(super) fn quality(answer: &Outliers) -> Markup {
    let quality = &answer.data_quality;
    let coverage = quality.coverage.map(format::percent);
    let ranks = format!("{} of {}", quality.ranks_reporting, quality.ranks_expected);
    let age = quality
        .last_event_age_s
        .map(|age_s| format!("{} ago", format::length(age_s)));
    html! {
        (figure("Coverage", &coverage.map_or_else(|| format::UNKNOWN.to_owned(), |share| format!("{share}, {ranks}"))))
        (figure("Last event", age.as_deref().unwrap_or(format::UNKNOWN)))
    }
}

/// Renders a labeled value.
pub(super) fn figure(name: &str, value: &str) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

/// Renders the status of a cluster.
pub(super) fn badge(status: &ClusterStatus) -> Markup {
    html! {
        p class={ "badge " (status.tone.name()) } { (status.summary) }
        @if let Some(caveat) = status.caveat.as_deref().filter(|caveat| !caveat.is_empty()) {
            p.caveat { (caveat) }
        }
    }
}
