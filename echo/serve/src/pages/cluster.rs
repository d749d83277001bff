//! The page of one cluster: who holds it back, how late its ranks were, what it costs.

use std::collections::BTreeMap;

use echo_tools::ToolError;
use echo_tools::explain_rank::ExplainRank;
use echo_tools::find_outlier_nodes::Outliers;
use echo_tools::get_cost::answer::Cost;
use echo_tools::lag_map::RankKey;
use echo_tools::outlier::Outlier;
use echo_tools::tool::Tool;
use maud::{Markup, html};

use super::client::{Asked, Questions};
use super::format;
use super::overview::{badge, encoded, figure, path, quality};
use super::status::Standing;

mod costs;
mod incidents;
mod map;

use costs::Days;

/// Windows that are one click away.
const WINDOWS: [(&str, &str); 5] = [
    ("15m", "15 minutes"),
    ("1h", "1 hour"),
    ("24h", "24 hours"),
    ("7d", "7 days"),
    ("all", "All"),
];

/// What the parts of the page share.
struct View<'a> {
    cluster: &'a str,
    asked: &'a Asked,
    outliers: Option<Outliers>,
    cost: Option<Cost>,
    may_explain: bool,
}

impl View<'_> {
    /// The window as the end of an address.
    fn window_query(&self) -> String {
        let said = self.asked.said();
        let said: Vec<String> = said
            .map(|(name, value)| format!("&{name}={}", encoded(value)))
            .collect();
        said.concat()
    }
}

/// The page.
pub(super) async fn page(
    questions: &Questions<'_>,
    cluster: &str,
    asked: &Asked,
) -> Result<Markup, ToolError> {
    let usual = Asked::last_hour();
    let asked = if asked.said().next().is_some() {
        asked
    } else {
        &usual
    };
    let view = View {
        cluster,
        asked,
        outliers: questions.outliers(cluster, asked).await?,
        cost: questions.cost(cluster, asked).await?,
        may_explain: questions.may_explain(),
    };
    let marks = view.outliers.as_ref().map(marks).unwrap_or_default();
    let map = questions.map(cluster, (asked, &named(&marks))).await;
    let map = map::of(map, &marks)?;
    let days = Days::of(questions, cluster).await?;
    Ok(html! {
        (head(&view))
        (windows(&view))
        @if let Some(outliers) = &view.outliers { (incidents::current(&view, outliers)) }
        @if let Some(map) = &map { (map::shown(&view, map)) }
        @if let Some(outliers) = &view.outliers { (incidents::past(&view, outliers)) }
        @if let Some(cost) = &view.cost { (costs::shown(cost, &days)) }
    })
}

/// What ranks have to do with incidents, and how important that is.
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
        mark_as(&mut marks, one, (one.rank, mark));
        for victim in &one.victims {
            mark_as(&mut marks, one, (*victim, Mark::Victim(vec![one.rank])));
        }
    }
    marks
}

fn mark_as(marks: &mut Marks, incident: &Outlier, (rank, mark): (u32, Mark)) {
    let known = marks.entry((incident.lifecycle.job.clone(), rank));
    let known = known.or_insert_with(|| mark.clone());
    *known = mark.min(known.clone());
}

fn named(marks: &Marks) -> Vec<RankKey> {
    let mut named: Vec<(&RankKey, &Mark)> = marks.iter().collect();
    named.sort_by_key(|(_, mark)| *mark);
    named.into_iter().map(|(rank, _)| rank.clone()).collect()
}

fn head(view: &View<'_>) -> Markup {
    let outliers = view.outliers.as_ref();
    html! {
        nav.crumbs aria-label="Way back" { a href="/" { "Clusters" } }
        h1 { (view.cluster) }
        @if let Some(outliers) = outliers {
            (badge(&Standing::of(outliers)))
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
                        a href={ (here) "?window=" (length) } aria-current=[(view.asked.window == length).then_some("true")] { (words) }
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
    let is_used = !view.asked.from.is_empty() || !view.asked.to.is_empty();
    html! {
        details open[is_used] {
            summary { "Another window" }
            form.row method="get" action=(here) {
                label for="from" { "From" }
                input id="from" name="from" value=(view.asked.from) placeholder="now-2h" aria-describedby="forms";
                label for="to" { "to" }
                input id="to" name="to" value=(view.asked.to) placeholder="now" aria-describedby="forms";
                button type="submit" { "Show" }
                p.quiet id="forms" { "As " code { "2026-11-22T08:00:00Z" } ", or back from now: " code { "now-15m" } "." }
            }
        }
    }
}

/// Address of what is known of a rank, as a picture or as JSON.
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
