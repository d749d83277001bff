//! Overview page: every visible cluster with its status and cost, most urgent first.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use echo_core::shard::Shard;
use echo_core::units::Nanos;
use echo_tools::ToolError;
use echo_tools::find_outlier_nodes::Outliers;
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::answer::{ALL_BY, INCIDENTS_BY};
use super::body::Body;
use super::client::{Inventory, ToolClient};
use super::format::{self, Amounts};
use super::open_incidents::{hangs, open_for_s, open_incidents};
use super::status::{ClusterStatus, Tone, last_event_age_s};
use super::view_query::ViewQuery;
use super::window_query::WindowQuery;

pub(super) mod search;

use search::{Order, OverviewQuery};

/// Most clusters with their status; the others are linked.
const MAX_CLUSTERS: usize = 50;

/// Most clusters that are linked.
const MAX_LINKS: usize = 1_000;

/// Most jobs or GPU models that a card names.
const MAX_NAMED: usize = 3;

/// Nanoseconds per day.
pub(super) const DAY_NANOS: i64 = 86_400_000_000_000;

/// Card of one cluster.
struct Card {
    name: String,
    inventory: Inventory,
    /// Status, and the time for which the most severe incident has been open, in seconds.
    status: Option<(ClusterStatus, Option<f64>)>,
    outliers: Option<Outliers>,
    /// Current loss per hour, and the cost of today.
    per_hour: Option<Amounts>,
    today: Option<Amounts>,
    is_priced: bool,
}

impl Card {
    async fn fetch(
        client: &ToolClient,
        name: String,
        inventory: Inventory,
        today: &WindowQuery,
    ) -> Result<Self, ToolError> {
        let recent = WindowQuery::last_hour();
        let outliers = client.outliers(&name, &recent).await?;
        let cost = client.cost(&name, today).await?;
        let origins = match &outliers {
            Some(outliers) if hangs(outliers) => client.origins(&name, &recent).await?,
            _ => Vec::new(),
        };
        let now = client.now();
        let status = outliers.as_ref().map(|outliers| {
            let open = open_incidents(outliers, &origins);
            let first = open.first();
            let open_for_s = first.and_then(|one| open_for_s(one.lifecycle(), now));
            (ClusterStatus::new(&open, outliers, now), open_for_s)
        });
        Ok(Self {
            name,
            inventory,
            status,
            outliers,
            per_hour: cost.as_ref().and_then(|cost| Amounts::per_hour(cost, now)),
            today: cost.as_ref().and_then(Amounts::of_window),
            is_priced: cost.is_some(),
        })
    }

    fn is_stale(&self) -> bool {
        self.status
            .as_ref()
            .is_some_and(|(status, _)| status.is_stale)
    }

    fn tone(&self) -> Tone {
        let status = self.status.as_ref();
        status.map_or(Tone::Idle, |(status, _)| status.tone)
    }

    /// Compares cards by an order.
    fn compare(&self, other: &Self, order: Order) -> Ordering {
        let first = match order {
            Order::Urgency => self
                .most_urgent_first(other)
                .then(self.dearest_first(other)),
            Order::Cost => self.dearest_first(other),
            Order::Name => Ordering::Equal,
        };
        first.then_with(|| self.name.cmp(&other.name))
    }

    /// Orders cards by severity. A cluster without events and without incidents is last.
    fn most_urgent_first(&self, other: &Self) -> Ordering {
        let is_over = |card: &Self| card.is_stale() && card.tone() == Tone::Idle;
        is_over(self)
            .cmp(&is_over(other))
            .then(self.tone().cmp(&other.tone()))
    }

    fn dearest_first(&self, other: &Self) -> Ordering {
        let weight = |amounts: &Option<Amounts>| amounts.as_ref().map_or(0.0, Amounts::weight);
        weight(&other.per_hour)
            .total_cmp(&weight(&self.per_hour))
            .then(weight(&other.today).total_cmp(&weight(&self.today)))
    }
}

/// Clusters of the page.
struct Found {
    cards: Vec<Card>,
    /// Names of the matching clusters without a card.
    others: Vec<String>,
    /// Whether jobs and GPUs were not known in time.
    is_partial: bool,
    /// Whether the visitor sees any cluster at all.
    is_empty: bool,
}

/// Fetches the cards of the matching clusters while there is time.
async fn fetch(client: &ToolClient, query: &OverviewQuery) -> Result<Found, ToolError> {
    let mut names = client.clusters().await?;
    let is_empty = names.is_empty();
    let began = client.now();
    let deadline_ms = client.soft_deadline().as_secs_f64() * 1e3;
    let has_time_left = || client.now().millis_since(began) < deadline_ms;
    let mut inventories = None;
    if !is_empty && has_time_left() {
        inventories = client.in_time(INCIDENTS_BY, client.inventories()).await?;
    }
    let is_partial = !is_empty && inventories.is_none();
    let mut inventories = inventories.unwrap_or_default();
    names.retain(|name| query.matches(name, inventories.get(name)));
    let today = WindowQuery {
        from: midnight(client.now()).to_string(),
        ..WindowQuery::default()
    };
    let mut cards = Vec::new();
    for name in names.iter().take(MAX_CLUSTERS) {
        if !has_time_left() {
            break;
        }
        let inventory = inventories.remove(name).unwrap_or_default();
        let card = Box::pin(Card::fetch(client, name.clone(), inventory, &today));
        // A cluster whose card is late is linked like those after it.
        let Some(card) = client.in_time(ALL_BY, card).await? else {
            break;
        };
        cards.push(card);
    }
    let others = names.split_off(cards.len());
    cards.sort_by(|a, b| a.compare(b, query.order()));
    Ok(Found {
        cards,
        others,
        is_partial,
        is_empty,
    })
}

/// Renders the page. `otlp` is the URL to which agents send.
pub(super) async fn page(
    client: &ToolClient,
    otlp: Option<&str>,
    query: &OverviewQuery,
    view: &ViewQuery,
) -> Result<Body, ToolError> {
    let found = Box::pin(fetch(client, query)).await?;
    let Found { cards, others, .. } = &found;
    let shard = client.shard().filter(|shard| shard.count() > 1);
    let markup = html! {
        h1 { "Clusters" }
        @if found.is_empty {
            (no_clusters(otlp))
        } @else {
            (query.controls(view))
            @if found.is_partial { p.caveat { "The jobs and GPUs were not available in time; load the page again." } }
            @if cards.is_empty() && others.is_empty() { p { "No cluster matches." } }
            @if cards.len() > 1 { (sum(cards)) }
            ul.cards { @for card in cards { li { (card_markup(card, client.now(), view)) } } }
            p.quiet { "As of " (format::instant(&client.now().to_string())) ", over the last hour of events." }
        }
        @if let Some(shard) = shard { (other_shards(shard, view)) }
        @if !others.is_empty() { (more_clusters(others, view)) }
    };
    Ok(Body {
        is_partial: found.is_partial,
        ..Body::whole(markup)
    })
}

fn more_clusters(others: &[String], view: &ViewQuery) -> Markup {
    let not_listed = others.len().saturating_sub(MAX_LINKS);
    html! {
        h2 { "More clusters" }
        ul.links { @for name in others.iter().take(MAX_LINKS) { li { a href=(view.link(&path(name), "")) { (name) } } } }
        @if not_listed > 0 { p.quiet { "And " (not_listed) " more: search for them, or " code { "fleet-echo outliers --cluster NAME" } "." } }
    }
}

/// Renders the sums over all clusters with a card.
fn sum(cards: &[Card]) -> Markup {
    let total = |amounts: fn(&Card) -> Option<&Amounts>| {
        let mut sum = Amounts::default();
        cards
            .iter()
            .filter_map(amounts)
            .for_each(|one| sum.add_all(one));
        sum
    };
    let n_open = cards
        .iter()
        .filter(|card| matches!(card.tone(), Tone::Bad | Tone::Warn))
        .count();
    html! {
        dl.figures.sum {
            (figure("Clusters with an incident", &format!("{n_open} of {}", cards.len())))
            @if cards.iter().any(|card| card.is_priced) {
                (figure("Cost now", &total(|card| card.per_hour.as_ref()).text("/h")))
                (figure("Cost today", &total(|card| card.today.as_ref()).text("")))
            }
        }
    }
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
fn other_shards(shard: &Shard, view: &ViewQuery) -> Markup {
    let hidden = shard.others().skip(MAX_OTHERS).count();
    html! {
        p.quiet {
            "This is shard " (shard.ordinal()) " of " (shard.count()) ". Other clusters are at "
            @for (index, other) in shard.others().take(MAX_OTHERS).enumerate() {
                @if index > 0 { ", " }
                a href={ (other.url) (view.link("/", "")) } { "shard " (other.ordinal) }
            }
            @if hidden > 0 { " and " (hidden) " more" }
            "."
        }
    }
}

fn no_clusters(otlp: Option<&str>) -> Markup {
    html! {
        div.empty {
            p.lead { "No events are stored yet." }
            p { "Start an agent on each host:" }
            pre { code { "fleet-agent run --cluster NAME --endpoint " (otlp.unwrap_or("URL")) } }
            @if otlp.is_none() { p { "URL is the address of " code { "--otlp-listen" } "." } }
            p { "This page shows the cluster as soon as its first events are stored." }
        }
    }
}

fn card_markup(card: &Card, now: Nanos, view: &ViewQuery) -> Markup {
    let is_over = card.is_stale() && card.tone() == Tone::Idle;
    html! {
        article.card.over[is_over] {
            h2 { a href=(view.link(&path(&card.name), "")) { (card.name) } }
            @if let Some((status, open_for_s)) = &card.status {
                (badge(status))
                @if let Some(seconds) = open_for_s { p.quiet { "Open for " (format::length(*seconds)) } }
            }
            dl.figures {
                @if let Some(per_hour) = &card.per_hour { (figure("Cost now", &per_hour.text("/h"))) }
                @if let Some(today) = &card.today { (figure("Cost today", &today.text(""))) }
                @if let Some(outliers) = card.outliers.as_ref().filter(|_| !card.is_stale()) { (quality(outliers, now)) }
                (named("GPU", &card.inventory.gpu_models))
                (named("Job", &card.inventory.jobs))
            }
        }
    }
}

/// Renders the first of some names; nothing without any.
fn named(label: &str, names: &BTreeSet<String>) -> Markup {
    let shown: Vec<&str> = names.iter().take(MAX_NAMED).map(String::as_str).collect();
    let more = names.len().saturating_sub(MAX_NAMED);
    let more = (more > 0).then(|| format!(" and {more} more"));
    html! {
        @if !names.is_empty() {
            (figure(label, &format!("{}{}", shown.join(", "), more.unwrap_or_default())))
        }
    }
}

/// Renders the coverage and the age of the last event.
pub(super) fn quality(answer: &Outliers, now: Nanos) -> Markup {
    let quality = &answer.data_quality;
    let coverage = quality.coverage.map(format::percent);
    let ranks = format!("{} of {}", quality.ranks_reporting, quality.ranks_expected);
    let age = last_event_age_s(answer, now);
    let age = age.map(|age_s| format!("{} ago", format::length(age_s)));
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
