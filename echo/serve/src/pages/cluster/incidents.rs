//! Open incidents of a cluster page, one card each, with their evidence and cost.

use echo_tools::get_cost::answer::{Contributor, Cost};
use echo_tools::outlier::{Condition, Evidence, Lifecycle, Outlier};
use maud::{Markup, html};

use super::{Current, View, plot_path, rank_path, rank_query};
use crate::pages::format::{self, Amounts, parse_instant, shell_word};
use crate::pages::open_incidents::{Hang, OpenIncident, is_recent, open_for_s, open_incidents};
use crate::pages::overview::{badge, figure};
use crate::pages::permalink::{permalink, trace_link, trace_path};
use crate::pages::runbook;
use crate::pages::status::{ClusterStatus, Tone};
use crate::pages::window_query::WindowQuery;

/// Most ranks that are listed individually.
const MAX_LISTED: usize = 16;

/// Most incidents with a plot; each is a query.
const MAX_PLOTS: usize = 3;

/// Renders the open incidents, or the status if there are none.
pub(super) fn current(view: &View<'_>, current: &Current<'_>) -> Markup {
    let open = open_incidents(current.outliers, current.origins);
    let mut status = ClusterStatus::new(&open, current.outliers, view.now);
    let is_silent = current.outliers.data_quality.last_event_age_s.is_none();
    if is_silent && *view.window != WindowQuery::last_hour() {
        status.caveat = Some("no events in the last hour".to_owned());
    }
    html! {
        section aria-labelledby="current" {
            h2.visually-hidden id="current" { "Now" }
            @if open.is_empty() {
                (badge(&status))
            } @else if let Some(caveat) = status.caveat.as_deref().filter(|caveat| !caveat.is_empty()) {
                p.caveat { (format::capitalized(caveat)) }
            }
            @for (index, one) in open.iter().enumerate().filter(|(_, one)| !view.is_chosen(one.id())) {
                (card(view, current.cost, one, index < MAX_PLOTS))
            }
            @if current.outliers.truncated { p.quiet { "More, less severe incidents are not listed." } }
        }
    }
}

/// Renders the card of an incident, with a plot of its rank if `has_plot`.
pub(super) fn card(
    view: &View<'_>,
    cost: Option<&Cost>,
    incident: &OpenIncident<'_>,
    has_plot: bool,
) -> Markup {
    let tone = Tone::from_incident(incident).name();
    let cost = cost_figures(cost, incident.id(), incident.lifecycle());
    html! {
        article class={ "incident " (tone) @if view.is_chosen(incident.id()) { " chosen" } } id={ "incident-" (incident.id()) } {
            h3 { (incident.headline()) }
            (duration(view, incident.lifecycle()))
            @match incident {
                OpenIncident::Hang(hang) => { (hanging(hang, cost)) }
                OpenIncident::Outlier(one) => { (outlier(view, one, cost, has_plot)) }
                OpenIncident::Condition(one) => { (condition(one, cost)) }
            }
            (advice(incident))
            (next(view, incident))
        }
    }
}

/// Renders what to do about an incident.
fn advice(incident: &OpenIncident<'_>) -> Markup {
    let advice = incident.advice();
    html! {
        @if !advice.is_empty() {
            p { "Do:" }
            ul.advice { @for text in advice { li { (format::capitalized(text)) } } }
        }
    }
}

fn duration(view: &View<'_>, course: &Lifecycle) -> Markup {
    html! {
        p.duration {
            @if let Some(seconds) = open_for_s(course, view.now) { b { "Open for " (format::length(seconds)) } ", since " }
            @else { "Since " }
            (format::instant(&course.first_seen))
            @if !is_recent(course, view.now) { ", last seen " (format::instant(&course.last_seen)) }
            @if course.occurrences > 1 { ", " (course.occurrences) " times in total" }
            @if course.provisional { ", provisional" }
        }
    }
}

fn hanging(hang: &Hang<'_>, cost: Markup) -> Markup {
    let origin = hang.origin;
    let gpu = origin.map(|origin| Gpu {
        model: origin.gpu_model.as_deref(),
        uuid: origin.gpu_uuid.as_deref(),
        namespace: origin.namespace.as_deref(),
        pod: origin.pod.as_deref(),
    });
    let job = hang.condition.lifecycle.job.as_deref();
    html! {
        dl.figures {
            @if let Some(waiting) = hang.n_waiting { (figure("Waiting", &format::count(waiting, "rank"))) }
            (cost)
            @if let Some(gpu) = gpu { (gpu.figures()) }
            @if let Some(job) = job { (figure("Job", job)) }
        }
        p { (format::capitalized(&hang.condition.reason)) "." }
    }
}

fn outlier(view: &View<'_>, one: &Outlier, cost: Markup, has_plot: bool) -> Markup {
    let gpu = Gpu {
        model: one.gpu_model.as_deref(),
        uuid: one.gpu_uuid.as_deref(),
        namespace: one.namespace.as_deref(),
        pod: one.pod.as_deref(),
    };
    let job = one.lifecycle.job.as_deref();
    html! {
        dl.figures {
            (slowdown(one.effect_ratio))
            (cost)
            (gpu.figures())
            @if let Some(job) = job { (figure("Job", job)) }
            @if let Some(class) = one.class { (figure("Cause", class)) }
            (confidence(one.confidence, &one.lifecycle))
        }
        @if let Some(rank) = one.rank.filter(|_| view.may_explain && has_plot) {
            img.plot src=(plot_path(view, rank, job)) alt={ "Lag of rank " (rank) " over time" };
        }
        (why(one))
        @if let Some(sentence) = recurrence(one) { p { (format::capitalized(sentence)) "." } }
    }
}

/// Returns how often its GPU or node had incidents before.
fn recurrence(one: &Outlier) -> Option<&str> {
    one.recurrence.as_ref()?.sentence.as_deref()
}

/// Renders what to do next: the command that explains the rank, and links.
fn next(view: &View<'_>, incident: &OpenIncident<'_>) -> Markup {
    let job = incident.lifecycle().job.as_deref();
    let rank = incident.rank().filter(|_| view.may_explain);
    let window = view.window.given();
    let window = window.filter(|_| *view.window != WindowQuery::last_hour());
    let flags = job.map(|job| ("job", job)).into_iter().chain(window);
    let flags = flags.map(|(name, value)| format!(" --{name} {}", shell_word(value)));
    let flags = flags.collect::<Vec<_>>().concat();
    html! {
        @if let Some(rank) = rank {
            p.next { "Next: " code { "fleet-echo explain --cluster " (shell_word(view.cluster)) " --rank " (rank) (flags) } }
        }
        p.links {
            @if let Some(rank) = rank { a href=(rank_path(view, rank, job)) { "Rank " (rank) " in detail" } }
            @if let Some(rank) = rank.filter(|_| view.may_trace) { (trace_link(&trace_path(view.cluster, rank, &rank_query(view, job)))) }
            (permalink(view.query, view.cluster, incident.id()))
            a href={ (view.query.link(runbook::PATH, "")) "#" (incident.runbook_heading()) } { "Runbook" }
        }
    }
}

/// Renders the reason of an outlier and its evidence. The reason has the lag already.
pub(super) fn why(one: &Outlier) -> Markup {
    let reason = &one.reason;
    let has_lag = one
        .lag_ms
        .is_some_and(|lag_ms| reason.contains(&format!(" {lag_ms:.1} ms ")));
    let facts = one
        .evidence
        .iter()
        .filter(|fact| fact.lag_ms.is_none() || !has_lag);
    let facts: Vec<&Evidence> = facts.collect();
    html! {
        p { (format::capitalized(reason)) "." }
        @if !facts.is_empty() { ul { @for fact in facts { li { (format::capitalized(&fact.sentence)) } } } }
    }
}

fn condition(one: &Condition, cost: Markup) -> Markup {
    html! {
        dl.figures {
            (slowdown(Some(one.effect_ratio)))
            (cost)
            (confidence(one.confidence, &one.lifecycle))
            @if one.rank_count > 0 { (figure("Affected", &listed(&one.ranks, one.rank_count))) }
        }
        p { (format::capitalized(&one.reason)) "." }
        @if !one.detail.is_empty() && one.detail != one.reason { p { (format::capitalized(&one.detail)) "." } }
    }
}

fn slowdown(ratio: Option<f64>) -> Markup {
    html! {
        @if let Some(ratio) = ratio.filter(|ratio| *ratio > 0.0) {
            (figure("Slowdown", &format!("+{}", format::percent(ratio))))
        }
    }
}

fn confidence(confidence: f64, course: &Lifecycle) -> Markup {
    let estimated = if course.baseline == "none" {
        ", by an estimated baseline"
    } else {
        ""
    };
    figure(
        "Confidence",
        &format!("{}{estimated}", format::percent(confidence)),
    )
}

/// GPU and pod of a rank.
struct Gpu<'a> {
    model: Option<&'a str>,
    uuid: Option<&'a str>,
    namespace: Option<&'a str>,
    pod: Option<&'a str>,
}

impl Gpu<'_> {
    fn figures(&self) -> Markup {
        let gpu: Vec<&str> = [self.model, self.uuid].into_iter().flatten().collect();
        let pod: Vec<&str> = [self.namespace, self.pod].into_iter().flatten().collect();
        html! {
            @if !gpu.is_empty() { (figure("GPU", &gpu.join(", "))) }
            @if self.pod.is_some() { (figure("Pod", &pod.join("/"))) }
        }
    }
}

/// Renders the cost of incidents: per hour now, and in the window of the answer.
fn cost_figures(cost: Option<&Cost>, id: &str, course: &Lifecycle) -> Markup {
    let Some(cost) = cost else {
        return html! {};
    };
    let began = parse_instant(&course.first_seen);
    let covers_all = parse_instant(&cost.window.from)
        .zip(began)
        .is_some_and(|(from, began)| from <= began);
    let label = if covers_all {
        "Cost so far"
    } else {
        "Cost in the last hour"
    };
    let per_hour = per_hour(cost, id);
    html! {
        @if let Some(per_hour) = per_hour { (figure("Cost per hour", &per_hour.text(""))) }
        @if let Some(total) = cost_of(cost, id) { (figure(label, &total.text(""))) }
    }
}

fn contributors<'a>(cost: &'a Cost, id: &'a str) -> impl Iterator<Item = &'a Contributor> {
    let parts = cost.contributors.iter();
    parts.filter(move |part| part.incident_id == id)
}

/// Returns the cost of an incident in the window of the answer; `None` if it costs nothing.
pub(super) fn cost_of(cost: &Cost, id: &str) -> Option<Amounts> {
    let mut sum = None;
    for part in contributors(cost, id) {
        let sum = sum.get_or_insert_with(Amounts::default);
        sum.add_bound(part.lower_bound);
        match (part.amount.cost, part.amount.currency.as_deref()) {
            (Some(amount), Some(currency)) => sum.add(Some(currency), amount),
            _ => sum.add(None, part.amount.lost_gpu_hours),
        }
    }
    sum
}

fn per_hour(cost: &Cost, id: &str) -> Option<Amounts> {
    let mut sum = None;
    for part in contributors(cost, id) {
        if let Some(amount) = part.run_rate_per_hour {
            let sum = sum.get_or_insert_with(Amounts::default);
            sum.add_bound(part.lower_bound);
            sum.add(part.amount.currency.as_deref(), amount);
        }
    }
    sum
}

/// Returns ranks as text.
fn listed(ranks: &[u32], count: usize) -> String {
    let shown: Vec<String> = ranks.iter().take(MAX_LISTED).map(u32::to_string).collect();
    let n_shown = shown.len();
    let noun = if count == 1 { "rank" } else { "ranks" };
    let more = (count > n_shown).then(|| format!(" and {} more", count - n_shown));
    format!("{noun} {}{}", shown.join(", "), more.unwrap_or_default())
}
