//! Lag section of a cluster page: a table with a strip for each rank, and the same figures as text.
//! Culprits come first; ranks without a notable lag are folded.

use std::collections::BTreeMap;

use echo_core::units::Nanos;
use echo_tools::find_outlier_nodes::Outliers;
use echo_tools::lag_map::lags::RankLags;
use echo_tools::lag_map::{LagMap, RankKey};
use echo_tools::outlier::Lifecycle;
use maud::{Markup, html};

use super::{Mark, Marks, View, rank_path};
use crate::pages::answer::{Answer, late};
use crate::pages::bars::{Line, Run, strip};
use crate::pages::client::MapOfPart;
use crate::pages::format;
use crate::pages::open_incidents::is_hang;
use crate::pages::overview::path;
use crate::pages::sharing::Shared;
use crate::pages::view_query::Fold;

mod axis;
mod scale;

use axis::Axis;
use scale::{DARKEST, Scale};

/// Largest number of ranks without a notable lag that are not folded.
const MAX_UNFOLDED: usize = 8;

/// A lag map, prepared for rendering.
pub(super) enum MapView {
    /// Ranks to compare.
    Ranks(Box<Ranks>),
    /// No ranks to compare.
    Empty,
    /// Being made for the next load of the page.
    Begun,
    /// Not available in time.
    Late,
    /// It could not be made, for example because there were too many queries.
    Unavailable(String),
}

impl MapView {
    /// Returns whether a newer map is being made.
    pub(super) const fn is_awaited(&self) -> bool {
        match self {
            Self::Begun => true,
            Self::Ranks(ranks) => ranks.is_earlier,
            Self::Empty | Self::Late | Self::Unavailable(_) => false,
        }
    }

    /// Returns whether it was not available in time.
    pub(super) const fn is_late(&self) -> bool {
        matches!(self, Self::Late)
    }
}

/// Ranks with their lags.
pub(super) struct Ranks {
    map: LagMap,
    /// Whether a newer map is being made.
    is_earlier: bool,
    axis: Axis,
    scale: Scale,
    has_several_jobs: bool,
    /// Culprits and ranks with a notable lag.
    notable: Vec<Row>,
    /// The others.
    quiet: Vec<Row>,
}

/// One rank.
struct Row {
    lags: RankLags,
    mark: Option<Mark>,
    runs: Vec<Run>,
    /// Instants at which its incidents began.
    began: Vec<Line>,
}

/// Prepares a map; `None` if it may not be seen.
pub(super) fn from_lags(
    map: Answer<Shared<MapOfPart>>,
    answer: Option<&Outliers>,
    marks: &Marks,
) -> Option<MapView> {
    let (map, is_earlier) = match map {
        Answer::Known(Shared::Current(map)) => (map, false),
        Answer::Known(Shared::Earlier(map)) => (map, true),
        Answer::Known(Shared::Begun) => return Some(MapView::Begun),
        Answer::Known(Shared::Failed(error)) => {
            return Some(MapView::Unavailable(error.to_string()));
        }
        Answer::Late => return Some(MapView::Late),
        Answer::Hidden => return None,
    };
    Some(lay_out(map.map.clone(), is_earlier, answer, marks))
}

fn lay_out(mut map: LagMap, is_earlier: bool, answer: Option<&Outliers>, marks: &Marks) -> MapView {
    let Some(axis) = Axis::of_map(&map) else {
        return MapView::Empty;
    };
    let scale = Scale::new(&map, answer);
    let began = beginnings(answer);
    let ranks = std::mem::take(&mut map.ranks);
    let has_several_jobs = ranks.windows(2).any(|pair| match pair {
        [one, next] => one.job != next.job,
        _ => false,
    });
    let row = |lags: RankLags| Row {
        mark: marks.get(&lags.key()).copied(),
        runs: runs(&axis, &scale, &lags),
        began: lines(&axis, began.get(&lags.key()).map_or(&[][..], Vec::as_slice)),
        lags,
    };
    let is_notable = |row: &Row| {
        let peak = row.lags.peak_ms();
        row.mark.is_some()
            || row.lags.missing_ms.iter().any(Option::is_some)
            || peak.is_some_and(|(_, lag_ms)| scale.is_notable(row.lags.job.as_deref(), lag_ms))
    };
    let (mut notable, mut quiet): (Vec<Row>, Vec<Row>) =
        ranks.into_iter().map(row).partition(is_notable);
    notable.sort_by_key(|row| (row.mark.is_none(), row.mark));
    if quiet.len() <= MAX_UNFOLDED && map.n_omitted == 0 {
        notable.append(&mut quiet);
    }
    MapView::Ranks(Box::new(Ranks {
        map,
        is_earlier,
        axis,
        scale,
        has_several_jobs,
        notable,
        quiet,
    }))
}

/// Returns the instants at which incidents of each culprit, or rank missing from a hang, began.
fn beginnings(answer: Option<&Outliers>) -> BTreeMap<RankKey, Vec<Nanos>> {
    let mut began: BTreeMap<RankKey, Vec<Nanos>> = BTreeMap::new();
    let mut add = |course: &Lifecycle, rank: u32| {
        let instant = format::parse_instant(&course.first_seen);
        let key = (course.job.clone(), rank);
        began.entry(key).or_default().extend(instant);
    };
    let culprits = answer.into_iter().flat_map(|answer| &answer.outliers);
    for one in culprits.filter(|one| one.is_culprit()) {
        one.rank
            .into_iter()
            .for_each(|rank| add(&one.lifecycle, rank));
    }
    let hangs = answer.into_iter().flat_map(|answer| &answer.conditions);
    for one in hangs.filter(|one| is_hang(one)) {
        one.ranks.iter().for_each(|rank| add(&one.lifecycle, *rank));
    }
    began
}

fn lines(axis: &Axis, began: &[Nanos]) -> Vec<Line> {
    let line = |instant: &Nanos| {
        Some(Line {
            at: axis.position(*instant)?,
            tooltip: format!("Incident began: {} UTC", time(*instant)),
        })
    };
    began.iter().filter_map(line).collect()
}

/// Groups adjacent cells of the same shade.
fn runs(axis: &Axis, scale: &Scale, lags: &RankLags) -> Vec<Run> {
    let cells: Vec<Option<f64>> = lags.cells().collect();
    let shades: Vec<Option<usize>> = lags
        .cells()
        .zip(&lags.missing_ms)
        .map(|(lag, missing)| match missing {
            Some(_) => Some(DARKEST),
            None => Some(scale.shade(lags.job.as_deref(), lag?)),
        })
        .collect();
    let mut from = 0;
    let mut runs = Vec::new();
    for same in shades.chunk_by(PartialEq::eq) {
        let to = from + same.len();
        if let Some(Some(shade)) = same.first() {
            let cells = cells.get(from..to).unwrap_or_default();
            let span = format!(
                "{} to {} UTC",
                time(axis.begins(from)),
                time(axis.begins(to))
            );
            runs.push(Run {
                from,
                to,
                shade: *shade,
                tooltip: format!("{span}: {}", between(cells)),
            });
        }
        from = to;
    }
    runs
}

fn between(cells: &[Option<f64>]) -> String {
    let known = || cells.iter().flatten().copied();
    let (least, most) = (
        known().fold(f64::INFINITY, f64::min),
        known().fold(f64::NEG_INFINITY, f64::max),
    );
    let (least, most) = (format::millis(least), format::millis(most));
    if least == most {
        most
    } else {
        format!("{least} to {most}")
    }
}

fn time(instant: Nanos) -> String {
    let text = instant.to_string();
    let parts: Vec<&str> = text.split(['T', '.', 'Z']).take(2).collect();
    parts.join(" ")
}

/// Renders the section.
pub(super) fn section(view: &View<'_>, map_view: &MapView) -> Markup {
    html! {
        section aria-labelledby="lag" {
            h2 id="lag" { "Lag of ranks over time" }
            @match map_view {
                MapView::Ranks(ranks) => { (tables(view, ranks)) }
                MapView::Empty => {
                    p { "Nothing to compare: no two ranks of one role reported waits in this window." }
                    @if view.window.window != "all" {
                        @let all = view.query.stay(&path(view.cluster), "&window=all");
                        p { a href=(all) { "Show all that is stored" } }
                    }
                }
                MapView::Begun => {
                    p.caveat { "It is being made, which takes some seconds for thousands of ranks: load the page again." }
                }
                MapView::Late => { (late()) }
                MapView::Unavailable(why) => { p.caveat { "Not shown: " (why) } }
            }
        }
    }
}

fn tables(view: &View<'_>, ranks: &Ranks) -> Markup {
    html! {
        @if ranks.is_earlier {
            p.caveat { "Until " (format::instant(&ranks.map.window.to)) "; a newer one is being made." }
        }
        @if ranks.notable.is_empty() {
            p { "No rank had a notable lag in the iterations that ended." }
        } @else {
            (table(view, ranks, &ranks.notable, "Ranks with their lag"))
        }
        @if !ranks.quiet.is_empty() {
            p { (view.toggle(Fold::Ranks, &quiet(ranks))) }
            @if view.query.is_open(Fold::Ranks) {
                (table(view, ranks, &ranks.quiet, "Ranks without a notable lag"))
            }
        }
        (ranks.scale.legend())
        (notes(&ranks.map))
    }
}

/// Summarizes the folded ranks and the omitted ones.
fn quiet(ranks: &Ranks) -> String {
    let peaks = ranks.quiet.iter().filter_map(|row| row.lags.peak_ms());
    let peaks = peaks
        .map(|(_, lag_ms)| lag_ms)
        .chain(ranks.map.omitted_peak_ms);
    let most = peaks.fold(0.0, f64::max);
    let n_quiet = ranks.quiet.len() + ranks.map.n_omitted;
    let count = if ranks.notable.is_empty() {
        format::count(n_quiet, "rank")
    } else {
        format::count(n_quiet, "other rank")
    };
    format!("{count}, never more than {} late", format::millis(most))
}

fn table(view: &View<'_>, ranks: &Ranks, rows: &[Row], caption: &str) -> Markup {
    html! {
        div.scroll.map role="region" aria-label=(caption) tabindex="0" {
            table {
                caption.visually-hidden { (caption) }
                thead {
                    tr {
                        th scope="col" { "Rank" } th scope="col" { "Node" }
                        th.wide scope="col" { span.visually-hidden { "Lag over time" } (ranks.axis.markup()) }
                        th.number scope="col" { "Mean" } th.number scope="col" { "Max" }
                    }
                }
                tbody { @for one in rows { (row(view, ranks, one)) } }
            }
        }
    }
}

fn row(view: &View<'_>, ranks: &Ranks, one: &Row) -> Markup {
    let lags = &one.lags;
    let mean = format::maybe_millis(lags.mean_ms());
    let most = lags.peak_ms();
    let label = most.map_or_else(
        || format!("Rank {}: no data", lags.rank),
        |(index, ms)| {
            format!(
                "Rank {}: {mean} on average, at most {} from {}",
                lags.rank,
                format::millis(ms),
                ranks.axis.begins(index)
            )
        },
    );
    html! {
        tr class=[one.mark.map(class)] {
            th scope="row" {
                a href=(rank_path(view, lags.rank, lags.job.as_deref())) { (lags.rank) }
                @if let Some(job) = lags.job.as_deref().filter(|_| ranks.has_several_jobs) { " " span.quiet { (job) } }
                @if let Some(mark) = one.mark { " " span.mark { (meaning(mark)) } }
            }
            td.name { (lags.node) }
            td.wide { (strip(&one.runs, &one.began, lags.lags_ms.len(), &label)) }
            td.number { (mean) }
            td.number { (format::maybe_millis(most.map(|(_, ms)| ms))) }
        }
    }
}

const fn class(mark: Mark) -> &'static str {
    match mark {
        Mark::Culprit => "culprit",
        Mark::FormerCulprit => "former",
    }
}

const fn meaning(mark: Mark) -> &'static str {
    match mark {
        Mark::Culprit => "holds back",
        Mark::FormerCulprit => "held back",
    }
}

fn notes(map: &LagMap) -> Markup {
    let is_partial = map.sampled_s < map.bucket_s * 0.99;
    html! {
        p.quiet {
            (format::instant(&map.window.from)) " to " (format::instant(&map.window.to)) ". "
            "Each step is " (format::length(map.bucket_s)) "."
            @if is_partial { " Only " (format::length(map.sampled_s)) " of each are sampled; a shorter window covers all." }
            @if map.n_omitted > 0 { " " (map.n_omitted) " ranks with smaller lags are omitted from the tables." }
        }
    }
}
