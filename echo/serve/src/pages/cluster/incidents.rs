//! Incident sections of a cluster page: open incidents with their evidence, and cleared ones.

use echo_tools::find_outlier_nodes::Outliers;
use echo_tools::get_cost::answer::Contributor;
use echo_tools::outlier::{Condition, Lifecycle, Outlier};
use maud::{Markup, html};

use super::{View, explained};
use crate::pages::format;
use crate::pages::overview::figure;
use crate::pages::status::Tone;

/// Most ranks that are listed individually.
const MAX_LISTED: usize = 16;

/// Renders the open incidents.
pub(super) fn current(view: &View<'_>, answer: &Outliers) -> Markup {
    let culprits = answer.outliers.iter().filter(|one| one.is_culprit());
    let culprits: Vec<&Outlier> = culprits.filter(|one| one.lifecycle.is_open()).collect();
    let conditions = answer.conditions.iter();
    let conditions: Vec<&Condition> = conditions.filter(|one| one.lifecycle.is_open()).collect();
    html! {
        section aria-labelledby="current" {
            h2 id="current" { "Now" }
            @if culprits.is_empty() && conditions.is_empty() {
                p { (nothing(answer)) }
            }
            @for one in culprits { (culprit(view, one)) }
            @for one in conditions { (condition(view, one)) }
            @if answer.truncated { p.quiet { "More, less severe incidents are not listed; a shorter window shows them." } }
        }
    }
}

fn nothing(answer: &Outliers) -> &'static str {
    let quality = &answer.data_quality;
    match (quality.last_event_age_s, quality.quorum_met) {
        (None, _) => "No events in this window, so the status is unknown.",
        (Some(_), false) => "No verdict: too few ranks report to compare them.",
        (Some(_), true) => "No rank holds back its peers.",
    }
}

fn culprit(view: &View<'_>, one: &Outlier) -> Markup {
    let course = &one.lifecycle;
    html! {
        article class={ "incident " (Tone::from_severity(course.severity).name()) } {
            h3 {
                "Rank " (one.rank)
                @if let Some(node) = &one.node_id { " on " span.name { (node) } }
                " holds back its peers"
            }
            (tags(course, one.class))
            p { (one.reason) }
            dl.figures {
                (figure("Lag", &format::maybe_millis(one.lag_ms)))
                (effect(one.effect_ratio, course))
                (figure("Confidence", &one.confidence.map_or_else(|| format::UNKNOWN.to_owned(), format::percent)))
                (since(course))
                (cost(view, &one.incident_id))
            }
            @if !one.evidence.is_empty() {
                h4 { "Evidence" }
                ul { @for fact in &one.evidence { li { (fact.sentence) } } }
            }
            @if one.victim_count > 0 {
                p { b { "Waiting for it: " } (listed(&one.victims, one.victim_count)) }
            }
            @if view.may_explain {
                p.links {
                    a href=(explained(view, one, "svg")) { "Lag of rank " (one.rank) " over time (picture)" } " "
                    a href=(explained(view, one, "json")) { "Full explanation (JSON)" }
                }
            }
        }
    }
}

fn condition(view: &View<'_>, one: &Condition) -> Markup {
    let course = &one.lifecycle;
    html! {
        article class={ "incident " (Tone::from_severity(course.severity).name()) } {
            h3 { (kind(one)) @if let Some(job) = &course.job { " in " span.name { (job) } } }
            (tags(course, None))
            p { (one.reason) }
            @if !one.detail.is_empty() { p { (one.detail) } }
            @if one.rank_count > 0 { p { b { "Affected: " } (listed(&one.ranks, one.rank_count)) } }
            dl.figures {
                (effect(Some(one.effect_ratio), course))
                (figure("Confidence", &format::percent(one.confidence)))
                (since(course))
                (cost(view, &one.incident_id))
            }
        }
    }
}

fn kind(one: &Condition) -> String {
    let words = format::plain(one.kind);
    let mut letters = words.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

fn tags(course: &Lifecycle, class: Option<&str>) -> Markup {
    html! {
        ul.tags {
            li { (course.severity) }
            @if let Some(class) = class { li { "cause: " (class) } }
            @if course.provisional { li { "provisional" } }
            @if course.occurrences > 1 { li { "recurred, " (course.occurrences) " times in total" } }
            @if course.baseline == "none" { li { "baseline: none" } }
        }
    }
}

fn effect(ratio: Option<f64>, course: &Lifecycle) -> Markup {
    let ratio = ratio.map_or_else(|| format::UNKNOWN.to_owned(), format::percent);
    let periods = format!(
        "{ratio} longer: {} instead of {}",
        format::millis(course.period_ms),
        format::millis(course.healthy_period_ms)
    );
    figure("Iteration", &periods)
}

fn since(course: &Lifecycle) -> Markup {
    html! { div { dt { "Since" } dd { (format::instant(&course.first_seen)) } } }
}

fn cost(view: &View<'_>, incident: &str) -> Markup {
    html! {
        @if let Some(cost) = cost_of(view, incident) { (figure("Cost in the window", &cost)) }
    }
}

fn cost_of(view: &View<'_>, incident: &str) -> Option<String> {
    let parts = &view.cost.as_ref()?.contributors;
    let words = |part: &Contributor| match (part.amount.cost, &part.amount.currency) {
        (Some(cost), Some(currency)) => format::money(cost, currency),
        _ => format::gpu_hours(part.amount.lost_gpu_hours),
    };
    let of_it = parts.iter().filter(|part| part.incident_id == incident);
    let parts: Vec<String> = of_it.map(words).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn listed(ranks: &[u32], count: usize) -> String {
    let shown: Vec<String> = ranks.iter().take(MAX_LISTED).map(u32::to_string).collect();
    let n_shown = shown.len();
    let noun = if count == 1 { "rank" } else { "ranks" };
    let more = (count > n_shown).then(|| format!(" and {} more", count - n_shown));
    format!("{noun} {}{}", shown.join(", "), more.unwrap_or_default())
}

/// Renders the cleared incidents.
pub(super) fn past(view: &View<'_>, answer: &Outliers) -> Markup {
    let culprits = answer.outliers.iter().filter(|one| one.is_culprit());
    let culprits: Vec<&Outlier> = culprits.filter(|one| !one.lifecycle.is_open()).collect();
    let conditions = answer.conditions.iter();
    let conditions: Vec<&Condition> = conditions.filter(|one| !one.lifecycle.is_open()).collect();
    html! {
        section aria-labelledby="past" {
            h2 id="past" { "Past incidents" }
            @if culprits.is_empty() && conditions.is_empty() {
                p { "No incident was cleared in this window." }
            } @else {
                div.scroll role="region" aria-labelledby="past-table" tabindex="0" {
                    table {
                        caption id="past-table" { "Incidents of the window that were cleared" }
                        (columns())
                        tbody {
                            @for one in culprits { (past_culprit(view, one)) }
                            @for one in conditions { (past_condition(view, one)) }
                        }
                    }
                }
            }
        }
    }
}

fn columns() -> Markup {
    html! {
        thead {
            tr {
                th scope="col" { "Incident" } th scope="col" { "From" } th scope="col" { "Cleared" }
                th.number scope="col" { "Lag" } th.number scope="col" { "Effect" } th.number scope="col" { "Confidence" }
                th.number scope="col" { "Cost" }
            }
        }
    }
}

fn past_culprit(view: &View<'_>, one: &Outlier) -> Markup {
    html! {
        tr {
            th scope="row" {
                "Rank " (one.rank)
                @if let Some(node) = &one.node_id { " on " span.name { (node) } }
                details {
                    summary { "Why" }
                    p { (one.reason) }
                    ul { @for fact in &one.evidence { li { (fact.sentence) } } }
                    @if one.victim_count > 0 { p { "Waiting for it: " (listed(&one.victims, one.victim_count)) } }
                    @if view.may_explain { p { a href=(explained(view, one, "svg")) { "Lag over time (picture)" } } }
                }
            }
            (times(&one.lifecycle))
            td.number { (format::maybe_millis(one.lag_ms)) }
            td.number { (one.effect_ratio.map_or_else(|| format::UNKNOWN.to_owned(), format::percent)) }
            td.number { (one.confidence.map_or_else(|| format::UNKNOWN.to_owned(), format::percent)) }
            td.number { (cost_of(view, &one.incident_id).unwrap_or_else(|| format::UNKNOWN.to_owned())) }
        }
    }
}

fn past_condition(view: &View<'_>, one: &Condition) -> Markup {
    html! {
        tr {
            th scope="row" {
                (kind(one))
                details { summary { "Why" } p { (one.reason) } @if !one.detail.is_empty() { p { (one.detail) } } }
            }
            (times(&one.lifecycle))
            td.number { (format::UNKNOWN) }
            td.number { (format::percent(one.effect_ratio)) }
            td.number { (format::percent(one.confidence)) }
            td.number { (cost_of(view, &one.incident_id).unwrap_or_else(|| format::UNKNOWN.to_owned())) }
        }
    }
}

fn times(course: &Lifecycle) -> Markup {
    let cleared = course.cleared_at.as_deref().unwrap_or(&course.last_seen);
    html! {
        td { (format::instant(&course.first_seen)) }
        td { (format::instant(cleared)) }
    }
}
