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

use super::answer::{ALL_BY, Answer, INCIDENTS_BY, late};
use super::body::{Body, Renewal};
use super::client::ToolClient;
use super::format::{self, Amounts};
use super::open_incidents::{hangs, is_hang};
use super::overview::{encoded, figure, path, quality};
use super::permalink::incident_path;
use super::view_query::{Fold, ViewQuery};
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

/// What the page is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) cluster: &'a str,
    pub(super) window: &'a WindowQuery,
    /// Incident that is shown first; `None` on the page of the whole cluster.
    pub(super) incident: Option<&'a str>,
    pub(super) query: &'a ViewQuery,
}

/// Data shared by the sections of the page.
struct View<'a> {
    cluster: &'a str,
    window: &'a WindowQuery,
    /// Incident that is shown first.
    chosen: Option<&'a str>,
    query: &'a ViewQuery,
    now: Nanos,
    /// Answers for the window.
    outliers: Answer<Outliers>,
    cost: Answer<Cost>,
    may_explain: bool,
    may_trace: bool,
}

/// Incidents of the last hour, whatever the window.
#[derive(Debug, Clone)]
struct Recent {
    outliers: Outliers,
    origins: Vec<Arc<Origin>>,
}

/// Answers for the last hour.
struct Current<'a> {
    outliers: &'a Outliers,
    cost: Option<&'a Cost>,
    origins: &'a [Arc<Origin>],
}

impl Recent {
    async fn fetch(client: &ToolClient, cluster: &str) -> Result<Option<Self>, ToolError> {
        let recent = WindowQuery::last_hour();
        let Some(outliers) = client.outliers(cluster, &recent).await? else {
            return Ok(None);
        };
        let origins = if hangs(&outliers) {
            client.origins(cluster, &recent).await?
        } else {
            Vec::new()
        };
        Ok(Some(Self { outliers, origins }))
    }
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

    /// Returns the path and the query of this page.
    fn here(&self) -> (String, String) {
        match self.chosen {
            Some(id) => (incident_path(self.cluster, id), String::new()),
            None => (path(self.cluster), self.window_query()),
        }
    }

    /// Renders the link that opens or closes a part of this page.
    fn toggle(&self, fold: Fold, text: &str) -> Markup {
        let (path, query) = self.here();
        self.query.toggle(fold, (&path, &query), text)
    }

    /// Returns whether an incident is the one that is shown first.
    fn is_chosen(&self, id: &str) -> bool {
        self.chosen == Some(id)
    }
}

/// Fetches the incidents of the last hour, then the outliers of the window.
async fn incidents(
    client: &ToolClient,
    cluster: &str,
    window: &WindowQuery,
) -> Result<(Answer<Recent>, Answer<Outliers>), ToolError> {
    let recent = Box::pin(Recent::fetch(client, cluster));
    let recent = client.section(INCIDENTS_BY, recent);
    if *window == WindowQuery::last_hour() {
        let recent = recent.await?;
        let outliers = recent.clone().map(|recent| recent.outliers);
        return Ok((recent, outliers));
    }
    let outliers = Box::pin(client.outliers(cluster, window));
    let outliers = client.section(INCIDENTS_BY, outliers);
    tokio::try_join!(recent, outliers)
}

/// Sections of the page besides those of the window.
struct Sections {
    recent: Answer<Recent>,
    /// Cost of the last hour; `None` if that is the window.
    recent_cost: Option<Answer<Cost>>,
    days: Answer<Days>,
    map: Option<map::MapView>,
}

/// Fetches the incidents, and then everything else as far as it is there in time.
async fn fetch<'a>(
    client: &ToolClient,
    subject: &Subject<'a>,
    window: &'a WindowQuery,
) -> Result<(View<'a>, Sections), ToolError> {
    let cluster = subject.cluster;
    let last_hour = WindowQuery::last_hour();
    let (recent, outliers) = Box::pin(incidents(client, cluster, window)).await?;
    let marks = outliers.known().map(marks).unwrap_or_default();
    let recent_cost = async {
        if *window == last_hour {
            return Ok(None);
        }
        let cost = Box::pin(client.cost(cluster, &last_hour));
        client.section(ALL_BY, cost).await.map(Some)
    };
    let cost = Box::pin(client.cost(cluster, window));
    let days = Box::pin(async { Days::fetch(client, cluster).await.map(Some) });
    let map = Box::pin(client.map(cluster, window, marked_ranks(&marks)));
    let all = async {
        tokio::try_join!(
            client.section(ALL_BY, cost),
            recent_cost,
            client.section(ALL_BY, days),
            client.section(ALL_BY, map),
        )
    };
    let (cost, recent_cost, days, map) = Box::pin(all).await?;
    let sections = Sections {
        recent,
        recent_cost,
        days,
        map: map::from_lags(map, outliers.known(), &marks),
    };
    let view = View {
        cluster,
        window,
        chosen: subject.incident,
        query: subject.query,
        now: client.now(),
        outliers,
        cost,
        may_explain: client.may_explain(),
        may_trace: client.may_trace(),
    };
    Ok((view, sections))
}

impl Sections {
    /// Returns the names of the sections that were not available in time.
    fn missing(&self, view: &View<'_>) -> Vec<&'static str> {
        let recent_cost = self.recent_cost.as_ref();
        let sections = [
            ("open incidents", self.recent.is_late()),
            ("incidents of the window", view.outliers.is_late()),
            (
                "lag of ranks",
                self.map.as_ref().is_some_and(map::MapView::is_late),
            ),
            ("cost", view.cost.is_late()),
            (
                "cost of open incidents",
                recent_cost.is_some_and(Answer::is_late),
            ),
            ("cost per day", self.days.is_late()),
        ];
        let missing = sections.into_iter().filter(|(_, is_late)| *is_late);
        missing.map(|(name, _)| name).collect()
    }

    fn markup(&self, view: &View<'_>, missing: &[&str]) -> Markup {
        let current = self.recent.known().map(|recent| Current {
            outliers: &recent.outliers,
            cost: self.recent_cost.as_ref().unwrap_or(&view.cost).known(),
            origins: &recent.origins,
        });
        html! {
            nav.crumbs aria-label="Breadcrumb" { a href=(view.query.link("/", "")) { "Clusters" } }
            h1 { (view.cluster) }
            @if !missing.is_empty() {
                p.caveat role="status" { "Not available in time: " (missing.join(", ")) ". Load the page again." }
            }
            (past::chosen(view, current.as_ref()))
            @if let Some(current) = &current { (incidents::current(view, current)) }
            @else if self.recent.is_late() { (late()) }
            (windows(view))
            (past::at_end(view, current.as_ref()))
            @if let Some(map) = &self.map { (map::section(view, map)) }
            (past::section(view))
            (costs::section(&view.cost, &self.days))
        }
    }
}

/// Renders the page.
pub(super) async fn page(client: &ToolClient, subject: &Subject<'_>) -> Result<Body, ToolError> {
    let window = &subject.window.or_last_hour();
    let (view, sections) = Box::pin(fetch(client, subject, window)).await?;
    let missing = sections.missing(&view);
    let is_awaited = sections.map.as_ref().is_some_and(map::MapView::is_awaited);
    let is_past = !window.from.is_empty() || !window.to.is_empty();
    Ok(Body {
        markup: sections.markup(&view, &missing),
        renewal: match (is_past, is_awaited) {
            (true, _) => Renewal::Never,
            (false, true) => Renewal::Soon,
            (false, false) => Renewal::Usual,
        },
        is_partial: is_awaited || !missing.is_empty(),
    })
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
            @if let Some(outliers) = view.outliers.known() { (quality(outliers, view.now)) }
            @if let Some(cost) = view.cost.known() {
                @if let Some(per_hour) = Amounts::per_hour(cost, view.now) { (figure("Cost now", &per_hour.text("/h"))) }
                (figure("Cost of the window", &format::total(cost)))
                (figure("GPU time lost", &lost(cost)))
            }
        }
    }
}

fn windows(view: &View<'_>) -> Markup {
    let cluster = path(view.cluster);
    let span = view.outliers.known().map(|answer| &answer.window);
    html! {
        section.window aria-labelledby="window" {
            h2.quiet id="window" { "Window" }
            ul.tabs {
                @for (length, words) in WINDOWS {
                    li {
                        a href=(view.query.stay(&cluster, &format!("&window={length}")))
                            aria-current=[(view.window.window == length).then_some("true")] { (words) }
                    }
                }
            }
            @if let Some(span) = span {
                p.quiet { (format::instant(&span.from)) " to " (format::instant(&span.to)) }
            }
            (other_window(view, &cluster))
            (figures(view))
        }
    }
}

/// Renders the form for another window. While it is open on request, the page is not loaded again.
fn other_window(view: &View<'_>, action: &str) -> Markup {
    let is_used = !view.window.from.is_empty() || !view.window.to.is_empty();
    html! {
        @if !is_used { p { (view.toggle(Fold::Window, "Another window")) } }
        @if is_used || view.query.is_open(Fold::Window) {
            form.row method="get" action=(action) {
                label for="from" { "From" }
                input id="from" name="from" value=(view.window.from) placeholder="now-2h" aria-describedby="forms";
                label for="to" { "to" }
                input id="to" name="to" value=(view.window.to) placeholder="now" aria-describedby="forms";
                (view.query.hidden_fields())
                button type="submit" { "Show" }
                p.quiet id="forms" { "As " code { "2026-11-22T08:00:00Z" } ", or back from now: " code { "now-15m" } "." }
            }
        }
    }
}

/// Returns the URL of a rank's page.
fn rank_path(view: &View<'_>, rank: u32, job: Option<&str>) -> String {
    let path = format!("{}/ranks/{rank}", path(view.cluster));
    view.query.link(&path, &rank_query(view, job))
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
