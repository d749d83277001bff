//! Incidents of the window that are not open now: those that were open at its end, and cleared ones.

use echo_tools::find_outlier_nodes::Outliers;
use echo_tools::outlier::{Condition, Lifecycle, Outlier};
use maud::{Markup, html};

use super::incidents::{card, cost_of, why};
use super::{Current, View, rank_path};
use crate::pages::answer::{Answer, late};
use crate::pages::format::{self, STALE_AFTER_S, parse_instant};
use crate::pages::open_incidents::{OpenIncident, open_incidents, subject};
use crate::pages::overview::badge;
use crate::pages::permalink::permalink;
use crate::pages::status::ClusterStatus;

/// Renders the incident that is shown first, on a page about one.
pub(super) fn chosen(view: &View<'_>, current: Option<&Current<'_>>) -> Markup {
    let Some(id) = view.chosen else {
        return html! {};
    };
    let now =
        current.and_then(|current| find(open_incidents(current.outliers, current.origins), id));
    let of_window = view.outliers.known();
    let at_end = of_window.and_then(|answer| find(open_incidents(answer, &[]), id));
    html! {
        @if let Some(one) = now {
            (card(view, current.and_then(|current| current.cost), &one, true))
        } @else if let Some(one) = at_end {
            (card(view, view.cost.known(), &one, true))
        } @else if let Some(answer) = of_window {
            @let cleared = Cleared::new(answer, |one| one == id);
            (cleared.table(view, "This incident"))
            @if cleared.is_empty() { p.caveat { "This incident is not among the most severe ones of its time." } }
        }
    }
}

fn find<'a>(open: Vec<OpenIncident<'a>>, id: &str) -> Option<OpenIncident<'a>> {
    open.into_iter().find(|one| one.id() == id)
}

/// Renders the incidents that were open at the end of a window that ends before now, without those
/// that are open now.
pub(super) fn at_end(view: &View<'_>, current: Option<&Current<'_>>) -> Markup {
    let Some(answer) = view.outliers.known() else {
        return html! {};
    };
    let to = parse_instant(&answer.window.to).unwrap_or(view.now);
    if view.now.millis_since(to) <= STALE_AFTER_S * 1e3 {
        return html! {};
    }
    let is_now = |id: &str| {
        let now = current.map(|current| current.outliers);
        now.is_some_and(|now| {
            let culprits = now.outliers.iter();
            let culprits = culprits.map(|one| (&one.incident_id, &one.lifecycle));
            let conditions = now.conditions.iter();
            let conditions = conditions.map(|one| (&one.incident_id, &one.lifecycle));
            let mut all = culprits.chain(conditions);
            all.any(|(known, course)| known == id && course.is_open())
        })
    };
    let open = open_incidents(answer, &[]);
    let others = open
        .iter()
        .filter(|one| !is_now(one.id()) && !view.is_chosen(one.id()));
    let others: Vec<&OpenIncident<'_>> = others.collect();
    let is_silent = open.is_empty() && answer.data_quality.last_event_age_s.is_none();
    html! {
        @if is_silent || !others.is_empty() {
            section aria-labelledby="at-end" {
                h2 id="at-end" { "At the end of the window" }
                @if is_silent { (badge(&ClusterStatus::new(&open, answer, view.now))) }
                @for one in others { (card(view, view.cost.known(), one, false)) }
            }
        }
    }
}

/// Renders the cleared incidents, without the one that is shown first.
pub(super) fn section(view: &View<'_>) -> Markup {
    let cleared = match &view.outliers {
        Answer::Known(answer) => Some(Cleared::new(answer, |id| !view.is_chosen(id))),
        Answer::Late => None,
        Answer::Hidden => return html! {},
    };
    html! {
        section aria-labelledby="past" {
            h2 id="past" { "Past incidents" }
            @match cleared {
                None => { (late()) }
                Some(none) if none.is_empty() => { p { "No incident was cleared in this window." } }
                Some(some) => { (some.table(view, "Incidents of the window that were cleared")) }
            }
        }
    }
}

/// Cleared incidents.
struct Cleared<'a> {
    outliers: Vec<&'a Outlier>,
    conditions: Vec<&'a Condition>,
}

impl<'a> Cleared<'a> {
    fn new(answer: &'a Outliers, is_shown: impl Fn(&str) -> bool) -> Self {
        let outliers = answer.outliers.iter();
        let outliers =
            outliers.filter(|one| !one.lifecycle.is_open() && is_shown(&one.incident_id));
        let conditions = answer.conditions.iter();
        let conditions =
            conditions.filter(|one| !one.lifecycle.is_open() && is_shown(&one.incident_id));
        Self {
            outliers: outliers.collect(),
            conditions: conditions.collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.outliers.is_empty() && self.conditions.is_empty()
    }

    fn table(&self, view: &View<'_>, caption: &str) -> Markup {
        html! {
            @if !self.is_empty() {
                div.scroll role="region" aria-label=(caption) tabindex="0" {
                    table {
                        caption { (caption) }
                        (columns())
                        tbody {
                            @for one in &self.outliers { (outlier(view, one)) }
                            @for one in &self.conditions { (condition(view, one)) }
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
                th.number scope="col" { "Slowdown" } th.number scope="col" { "Confidence" }
                th.number scope="col" { "Cost" }
            }
        }
    }
}

fn outlier(view: &View<'_>, one: &Outlier) -> Markup {
    html! {
        tr.chosen[view.is_chosen(&one.incident_id)] id={ "incident-" (one.incident_id) } {
            th scope="row" {
                span.name { (subject(one)) }
                details open[view.is_chosen(&one.incident_id)] {
                    summary { "Why" }
                    (why(one))
                    p.links {
                        @if let Some(rank) = one.rank.filter(|_| view.may_explain) {
                            a href=(rank_path(view, rank, one.lifecycle.job.as_deref())) { "Rank " (rank) " in detail" }
                        }
                        (permalink(view.query, view.cluster, &one.incident_id))
                    }
                }
            }
            (times(&one.lifecycle))
            (numbers(view, &one.incident_id, one.effect_ratio, one.confidence))
        }
    }
}

fn condition(view: &View<'_>, one: &Condition) -> Markup {
    html! {
        tr.chosen[view.is_chosen(&one.incident_id)] id={ "incident-" (one.incident_id) } {
            th scope="row" {
                (format::capitalized(&format::plain(one.kind)))
                details open[view.is_chosen(&one.incident_id)] {
                    summary { "Why" }
                    p { (format::capitalized(&one.reason)) "." }
                    @if !one.detail.is_empty() && one.detail != one.reason { p { (format::capitalized(&one.detail)) "." } }
                    p.links { (permalink(view.query, view.cluster, &one.incident_id)) }
                }
            }
            (times(&one.lifecycle))
            (numbers(view, &one.incident_id, Some(one.effect_ratio).filter(|ratio| *ratio > 0.0), one.confidence))
        }
    }
}

fn numbers(view: &View<'_>, id: &str, slowdown: Option<f64>, confidence: f64) -> Markup {
    let slowdown = slowdown.map_or_else(|| format::UNKNOWN.to_owned(), format::percent);
    let cost = view.cost.known().and_then(|cost| cost_of(cost, id));
    html! {
        td.number { (slowdown) }
        td.number { (format::percent(confidence)) }
        td.number { (cost.map_or_else(|| format::UNKNOWN.to_owned(), |cost| cost.text(""))) }
    }
}

fn end(course: &Lifecycle) -> &str {
    course.cleared_at.as_deref().unwrap_or(&course.last_seen)
}

fn times(course: &Lifecycle) -> Markup {
    html! {
        td { (format::instant(&course.first_seen)) }
        td { (format::instant(end(course))) }
    }
}
