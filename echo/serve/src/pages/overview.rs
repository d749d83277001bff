//! The front page: every cluster that may be seen, how it stands and what it costs.

use echo_core::shard::Shard;
use echo_core::units::Nanos;
use echo_tools::ToolError;
use echo_tools::find_outlier_nodes::Outliers;
use echo_tools::get_cost::answer::Cost;
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::client::{Asked, Questions};
use super::format;
use super::status::Standing;

/// Most clusters whose state is shown; the others are linked.
const MAX_CLUSTERS: usize = 50;

/// Most clusters that are linked.
const MAX_LINKS: usize = 1_000;

/// Nanoseconds of a day.
pub(super) const DAY_NANOS: i64 = 86_400_000_000_000;

/// A cluster as the front page shows it.
struct Card {
    name: String,
    outliers: Option<Outliers>,
    cost: Option<Cost>,
}

/// The page.
pub(super) async fn page(questions: &Questions<'_>) -> Result<Markup, ToolError> {
    let mut names = questions.clusters().await?.into_iter();
    let today = Asked {
        from: midnight(questions.now()).to_string(),
        ..Asked::default()
    };
    let began = questions.now();
    let is_in_time = || questions.now().millis_since(began) < questions.patience_ms();
    let mut cards = Vec::new();
    while cards.len() < MAX_CLUSTERS && is_in_time() {
        let Some(name) = names.next() else { break };
        cards.push(Card {
            outliers: questions.outliers(&name, &Asked::last_hour()).await?,
            cost: questions.cost(&name, &today).await?,
            name,
        });
    }
    let others: Vec<String> = names.by_ref().take(MAX_LINKS).collect();
    let not_listed = names.count();
    Ok(html! {
        h1 { "Clusters" }
        @if cards.is_empty() {
            (empty())
        } @else {
            p.quiet { "As of " (format::instant(&questions.now().to_string())) ", by the last hour of events." }
            ul.cards { @for card in &cards { li { (shown(card)) } } }
        }
        @if let Some(shard) = questions.shard().filter(|shard| shard.count() > 1) { (elsewhere(shard)) }
        @if !others.is_empty() {
            h2 { "More clusters" }
            ul.links { @for name in &others { li { a href=(path(name)) { (name) } } } }
            @if not_listed > 0 { p.quiet { "And " (not_listed) " more: " code { "fleet-echo outliers --cluster NAME" } "." } }
        }
    })
}

/// Address of a cluster's own page.
pub(super) fn path(cluster: &str) -> String {
    format!("/clusters/{}", encoded(cluster))
}

/// A name as a part of an address.
pub(super) fn encoded(name: &str) -> String {
    utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()
}

/// When the day began, in UTC.
pub(super) fn midnight(now: Nanos) -> Nanos {
    now.offset(-now.value().rem_euclid(DAY_NANOS))
}

/// Most other Echos that are linked; their addresses differ in a number.
const MAX_OTHERS: usize = 16;

/// Where the clusters of other Echos are.
fn elsewhere(shard: &Shard) -> Markup {
    let hidden = shard.others().skip(MAX_OTHERS).count();
    html! {
        p.quiet {
            "This is shard " (shard.ordinal()) " of " (shard.count()) ". Other clusters are at "
            @for (place, other) in shard.others().take(MAX_OTHERS).enumerate() {
                @if place > 0 { ", " }
                a href={ (other.url) "/" } { "shard " (other.ordinal) }
            }
            @if hidden > 0 { " and " (hidden) " more" }
            "."
        }
    }
}

fn empty() -> Markup {
    html! {
        div.empty {
            p.lead { "No events are stored yet." }
            p { "Start an agent on each host, and let it send to the address that " code { "--otlp-listen" } " names:" }
            pre { code { "fleet-agent run --cluster NAME --endpoint https://ECHO:4317" } }
            p { "Then load this page again." }
        }
    }
}

fn shown(card: &Card) -> Markup {
    let standing = card.outliers.as_ref().map(Standing::of);
    html! {
        article.card {
            h2 { a href=(path(&card.name)) { (card.name) } }
            @if let Some(standing) = &standing { (badge(standing)) }
            dl.figures {
                @if let Some(outliers) = &card.outliers { (figures_of(outliers)) }
                @if let Some(cost) = &card.cost {
                    (figure("Cost now", &format::run_rate(cost)))
                    (figure("Cost today", &format::total(cost)))
                }
            }
        }
    }
}

fn figures_of(answer: &Outliers) -> Markup {
    let culprits = answer.outliers.iter().filter(|one| one.is_culprit());
    let open = culprits.filter(|one| one.lifecycle.is_open()).count();
    html! {
        (figure("Outliers now", &open.to_string()))
        (quality(answer))
    }
}

/// How much of a cluster reports, and since when it has not.
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

/// A number with its name.
pub(super) fn figure(name: &str, value: &str) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

/// How a cluster stands.
pub(super) fn badge(standing: &Standing) -> Markup {
    html! {
        p class={ "badge " (standing.tone.name()) } { (standing.words) }
        @if let Some(doubt) = standing.doubt.as_deref().filter(|doubt| !doubt.is_empty()) {
            p.doubt { (doubt) }
        }
    }
}
