//! Page of one cluster: outliers, lag of its ranks, and cost.

use std::collections::BTreeMap;

use echo_tools::ToolError;
use echo_tools::explain_rank::ExplainRank;
use echo_tools::find_outlier_nodes::Outliers;
use echo_tools::get_cost::answer::Cost;
use echo_tools::lag_map::RankKey;
use echo_tools::outlier::Outlier;
use echo_tools::tool::Tool;
use maud::{Markup, html};

use super::client::{ToolClient, WindowQuery};
use super::format;
use super::overview::{badge, encoded, figure, path, quality};
use super::status::ClusterStatus;

mod costs;
mod incidents;
mod map;

use costs::Days;

/// Predefined windows.
const WINDOWS: [(&str, &str); 5] = [
    ("15m", "15 minutes"),
    ("1h", "1 hour"),
    ("24h", "24 hours"),
    ("7d", "7 days"),
    ("all", "All"),
];

/// Data shared by the sections of the page.
struct View<'a> {
    cluster: &'a str,
    window: &'a WindowQuery,
    outliers: Option<Outliers>,
    cost: Option<Cost>,
    may_explain: bool,
}

impl View<'_> {
    /// Returns the window as the end of a query string.
    fn window_query(&self) -> String {
        let given = self.window.given();
        let given: Vec<String> = given
            .map(|(name, value)| format!("&{name}={}", encoded(value)))
            .collect();
        given.concat()
    }
}

/// Renders the page.
pub(super) async fn page(
    client: &ToolClient<'_>,
    cluster: &str,
    window: &WindowQuery,
) -> Result<Markup, ToolError> {
    let default = WindowQuery::last_hour();
    let window = if window.given().next().is_some() {
        window
    } else {
        &default
    };
    let view = View {
        cluster,
        window,
        outliers: client.outliers(cluster, window).await?,
        cost: client.cost(cluster, window).await?,
        may_explain: client.may_explain(),
    };
    let marks = view.outliers.as_ref().map(marks).unwrap_or_default();
    let map = client.map(cluster, window, &marked_ranks(&marks)).await;
    let map = map::from_lags(map, &marks)?;
    let days = Days::fetch(client, cluster).await?;
    Ok(html! {
        (head(&view))
        (windows(&view))
        @if let Some(outliers) = &view.outliers { (incidents::current(&view, outliers)) }
        @if let Some(map) = &map { (map::section(&view, map)) }
        @if let Some(outliers) = &view.outliers { (incidents::past(&view, outliers)) }
        @if let Some(cost) = &view.cost { (costs::section(cost, &days)) }
    })
}

/// Relation of ranks to incidents, most important first.
type Marks = BTreeMap<RankKey, Mark>;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    Culprit,
    FormerCulprit,
    Victim(Vec<u32>),
}

fn marks(answer: &Outliers) -> Marks {
    let mut marks = Marks::new();
    for one in &answer.outliers {
        let mark = match (one.is_culprit(), one.lifecycle.is_open()) {
            (true, true) => Mark::Culprit,
            (true, false) => Mark::FormerCulprit,
            (false, _) => Mark::Victim(one.victim_of.clone()),
        };
        mark_as(&mut marks, one, one.rank, mark);
        for victim in &one.victims {
            mark_as(&mut marks, one, *victim, Mark::Victim(vec![one.rank]));
        }
    }
    marks
}

fn mark_as(marks: &mut Marks, incident: &Outlier, rank: u32, mark: Mark) {
    let known = marks.entry((incident.lifecycle.job.clone(), rank));
    let known = known.or_insert_with(|| mark.clone());
    *known = mark.min(known.clone());
}

fn marked_ranks(marks: &Marks) -> Vec<RankKey> {
    let mut named: Vec<(&RankKey, &Mark)> = marks.iter().collect();
    named.sort_by_key(|(_, mark)| *mark);
    named.into_iter().map(|(rank, _)| rank.clone()).collect()
}

fn head(view: &View<'_>) -> Markup {
    let outliers = view.outliers.as_ref();
    html! {
        nav.crumbs aria-label="Breadcrumb" { a href="/" { "Clusters" } }
        h1 { (view.cluster) }
        @if let Some(outliers) = outliers {
            (badge(&ClusterStatus::from_outliers(outliers)))
        }
        dl.figures {
            @if let Some(outliers) = outliers { (quality(outliers)) }
            @if let Some(cost) = &view.cost {
                (figure("Cost now", &format::run_rate(cost)))
                (figure("Cost of the window", &format::total(cost)))
                (figure("GPU time lost", &cost.lost_ratio.map_or_else(|| format::UNKNOWN.to_owned(), format::percent)))
            }
        }
    }
}

fn windows(view: &View<'_>) -> Markup {
    let here = path(view.cluster);
    let span = view.outliers.as_ref().map(|answer| &answer.window);
    html! {
        section.window aria-labelledby="window" {
            h2.quiet id="window" { "Window" }
            ul.tabs {
                @for (length, words) in WINDOWS {
                    li {
                        a href={ (here) "?window=" (length) } aria-current=[(view.window.window == length).then_some("true")] { (words) }
                    }
                }
            }
            @if let Some(span) = span {
                p.quiet { (format::instant(&span.from)) " to " (format::instant(&span.to)) }
            }
            (other_window(view, &here))
        }
    }
}

fn other_window(view: &View<'_>, here: &str) -> Markup {
    let is_used = !view.window.from.is_empty() || !view.window.to.is_empty();
    html! {
        details open[is_used] {
            summary { "Another window" }
            form.row method="get" action=(here) {
                label for="from" { "From" }
                input id="from" name="from" value=(view.window.from) placeholder="now-2h" aria-describedby="forms";
                label for="to" { "to" }
                input id="to" name="to" value=(view.window.to) placeholder="now" aria-describedby="forms";
                button type="submit" { "Show" }
                p.quiet id="forms" { "As " code { "2026-11-22T08:00:00Z" } ", or back from now: " code { "now-15m" } "." }
            }
        }
    }
}

/// Returns the URL of a rank's explanation, as a picture or as JSON.
fn explained(view: &View<'_>, one: &Outlier, format: &str) -> String {
    let job = one.lifecycle.job.as_deref();
    let job = job.map(|job| format!("&job={}", encoded(job)));
    format!(
        "/api/v1/tools/{}?cluster={}&rank={}{}{}&format={format}",
        ExplainRank::NAME,
        encoded(view.cluster),
        one.rank,
        job.unwrap_or_default(),
        view.window_query()
    )
}
