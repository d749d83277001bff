//! Page of one cluster: its open incidents first, then outliers, lag of its ranks and cost in a
//! window.

use std::collections::BTreeMap;
use std::sync::Arc;

use echo_core::model::event::Origin;
use echo_core::units::Nanos;
use echo_tools::ToolError;
use echo_tools::explain_rank::ExplainRank;
use echo_tools::find_outlier_nodes::Outliers;
use echo_tools::get_cost::answer::Cost;
use echo_tools::lag_map::RankKey;
use echo_tools::outlier::Lifecycle;
use echo_tools::tool::Tool;
use maud::{Markup, html};

use super::Body;
use super::client::ToolClient;
use super::format::{self, Amounts};
use super::open_incidents::{hangs, is_hang};
use super::overview::{encoded, figure, path, quality};
use super::window_query::WindowQuery;

mod costs;
mod incidents;
mod map;
mod past;

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
    now: Nanos,
    /// Answers for the window.
    outliers: Option<Outliers>,
    cost: Option<Cost>,
    may_explain: bool,
    may_trace: bool,
}

/// Answers for the last hour, whatever the window.
struct Current {
    outliers: Outliers,
    cost: Option<Cost>,
    origins: Vec<Arc<Origin>>,
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

    /// Fetches the current state.
    async fn current(&self, client: &ToolClient) -> Result<Option<Current>, ToolError> {
        let recent = WindowQuery::last_hour();
        let (outliers, cost) = if *self.window == recent {
            (self.outliers.clone(), self.cost.clone())
        } else {
            let outliers = client.outliers(self.cluster, &recent).await?;
            (outliers, client.cost(self.cluster, &recent).await?)
        };
        let Some(outliers) = outliers else {
            return Ok(None);
        };
        let origins = if hangs(&outliers) {
            client.origins(self.cluster, &recent).await?
        } else {
            Vec::new()
        };
        Ok(Some(Current {
            outliers,
            cost,
            origins,
        }))
    }
}

/// Renders the page.
pub(super) async fn page(
    client: &ToolClient,
    cluster: &str,
    window: &WindowQuery,
) -> Result<Body, ToolError> {
    let window = &window.or_last_hour();
    let (outliers, cost, days) = tokio::try_join!(
        client.outliers(cluster, window),
        client.cost(cluster, window),
        Days::fetch(client, cluster),
    )?;
    let view = View {
        cluster,
        window,
        now: client.now(),
        outliers,
        cost,
        may_explain: client.may_explain(),
        may_trace: client.may_trace(),
    };
    let marks = view.outliers.as_ref().map(marks).unwrap_or_default();
    let map = client.map(cluster, window, marked_ranks(&marks));
    let (current, map) = tokio::join!(view.current(client), map);
    let current = current?;
    let map = map::from_lags(map, view.outliers.as_ref(), &marks)?;
    let is_awaited = map.as_ref().is_some_and(map::MapView::is_awaited);
    let markup = html! {
        nav.crumbs aria-label="Breadcrumb" { a href="/" { "Clusters" } }
        h1 { (cluster) }
        @if let Some(current) = &current { (incidents::current(&view, current)) }
        (windows(&view))
        @if let Some(outliers) = &view.outliers { (past::at_end(&view, outliers, current.as_ref())) }
        @if let Some(map) = &map { (map::section(&view, map)) }
        @if let Some(outliers) = &view.outliers { (past::section(&view, outliers)) }
        @if let Some(cost) = &view.cost { (costs::section(cost, &days)) }
    };
    Ok(Body { markup, is_awaited })
}

/// Relation of ranks to incidents, most important first.
type Marks = BTreeMap<RankKey, Mark>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    Culprit,
    FormerCulprit,
}

fn marks(answer: &Outliers) -> Marks {
    let mut marks = Marks::new();
    let culprits = answer.outliers.iter().filter(|one| one.is_culprit());
    for one in culprits {
        mark_as(&mut marks, &one.lifecycle, one.rank);
    }
    for one in answer.conditions.iter().filter(|one| is_hang(one)) {
        mark_as(&mut marks, &one.lifecycle, one.ranks.iter().copied());
    }
    marks
}

fn mark_as(marks: &mut Marks, course: &Lifecycle, ranks: impl IntoIterator<Item = u32>) {
    let mark = if course.is_open() {
        Mark::Culprit
    } else {
        Mark::FormerCulprit
    };
    for rank in ranks {
        let known = marks.entry((course.job.clone(), rank)).or_insert(mark);
        *known = mark.min(*known);
    }
}

fn marked_ranks(marks: &Marks) -> Vec<RankKey> {
    let mut named: Vec<(&RankKey, &Mark)> = marks.iter().collect();
    named.sort_by_key(|(_, mark)| *mark);
    named.into_iter().map(|(rank, _)| rank.clone()).collect()
}

/// Renders the figures of the window.
fn figures(view: &View<'_>) -> Markup {
    let lost = |cost: &Cost| {
        cost.lost_ratio
            .map_or_else(|| format::UNKNOWN.to_owned(), format::percent)
    };
    html! {
        dl.figures {
            @if let Some(outliers) = &view.outliers { (quality(outliers, view.now)) }
            @if let Some(cost) = &view.cost {
                @if let Some(per_hour) = Amounts::per_hour(cost, view.now) { (figure("Cost now", &per_hour.text("/h"))) }
                (figure("Cost of the window", &format::total(cost)))
                (figure("GPU time lost", &lost(cost)))
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
            (figures(view))
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

/// Returns the URL of a rank's page.
fn rank_path(view: &View<'_>, rank: u32, job: Option<&str>) -> String {
    let query = rank_query(view, job);
    format!(
        "{}/ranks/{rank}?{}",
        path(view.cluster),
        query.trim_start_matches('&')
    )
}

/// Returns the job of a rank and the window as the end of a query string.
fn rank_query(view: &View<'_>, job: Option<&str>) -> String {
    let job = job.map(|job| format!("&job={}", encoded(job)));
    format!("{}{}", job.unwrap_or_default(), view.window_query())
}

/// Returns the URL of the plot of a rank.
fn plot_path(view: &View<'_>, rank: u32, job: Option<&str>) -> String {
    format!(
        "/api/v1/tools/{}?cluster={}&rank={rank}{}&format=svg",
        ExplainRank::NAME,
        encoded(view.cluster),
        rank_query(view, job)
    )
}
