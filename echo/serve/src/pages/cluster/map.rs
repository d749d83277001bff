//! Lag section of a cluster page: a table with a strip for each rank, and the same figures as text.

use echo_core::units::Nanos;
use echo_tools::ToolError;
use echo_tools::lag_map::LagMap;
use echo_tools::lag_map::lags::RankLags;
use maud::{Markup, html};

use super::{Mark, Marks, View};
use crate::pages::bars::{Run, SHADES, strip};
use crate::pages::format;

/// Smallest lag with the darkest shade, in milliseconds, and as a multiple of the usual lag, so
/// that noise stays light.
const LEAST_SCALE_MS: f64 = 0.1;
const SCALE_PER_USUAL: f64 = 12.0;

/// Lower bounds of the shades, as shares of the darkest.
const STEPS: [f64; 6] = [f64::NEG_INFINITY, 0.1, 0.25, 0.45, 0.65, 0.85];

/// A lag map, prepared for rendering.
pub(super) enum MapView {
    /// Rows, and the lag with the darkest shade in milliseconds.
    Rows(LagMap, Vec<Row>, f64),
    /// No ranks to compare.
    Empty,
    /// The query timed out or was over the limit of concurrent queries.
    Unavailable(String),
}

/// One rank.
pub(super) struct Row {
    lags: RankLags,
    mark: Option<Mark>,
    runs: Vec<Run>,
}

/// Prepares a map; `None` if it may not be seen. A map that times out does not fail the rest of the
/// page.
pub(super) fn from_lags(
    map: Result<Option<LagMap>, ToolError>,
    marks: &Marks,
) -> Result<Option<MapView>, ToolError> {
    let map = match map {
        Err(error @ (ToolError::Timeout { .. } | ToolError::Overloaded { .. })) => {
            return Ok(Some(MapView::Unavailable(error.to_string())));
        }
        map => map?,
    };
    Ok(map.map(|map| lay_out(map, marks)))
}

fn lay_out(mut map: LagMap, marks: &Marks) -> MapView {
    if map.ranks.is_empty() {
        return MapView::Empty;
    }
    let most = map.ranks.iter().filter_map(RankLags::peak_ms);
    let most = most.map(|(_, ms)| ms).fold(LEAST_SCALE_MS, f64::max);
    let scale_ms = most.max(map.median_abs_ms.unwrap_or(0.0) * SCALE_PER_USUAL);
    let ranks = std::mem::take(&mut map.ranks).into_iter();
    let row = |lags: RankLags| Row {
        mark: marks.get(&lags.key()).cloned(),
        runs: runs(&map, scale_ms, &lags),
        lags,
    };
    let rows = ranks.map(row).collect();
    MapView::Rows(map, rows, scale_ms)
}

/// Groups adjacent cells of the same shade.
fn runs(map: &LagMap, scale_ms: f64, lags: &RankLags) -> Vec<Run> {
    let shades: Vec<Option<usize>> = lags
        .lags_ms
        .iter()
        .map(|lag| Some(shade((*lag)? / scale_ms)))
        .collect();
    let mut from = 0;
    let mut runs = Vec::new();
    for same in shades.chunk_by(PartialEq::eq) {
        let to = from + same.len();
        if let Some(Some(shade)) = same.first() {
            let cells = lags.lags_ms.get(from..to).unwrap_or_default();
            let tooltip = format!("{}: {}", when(map, from, to), between(cells));
            runs.push(Run {
                from,
                to,
                shade: *shade,
                tooltip,
            });
        }
        from = to;
    }
    runs
}

fn shade(share: f64) -> usize {
    STEPS.iter().rposition(|step| share >= *step).unwrap_or(0)
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

/// Returns the start of a step.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "buckets are few, and lengths of windows in nanoseconds fit"
)]
fn begins(map: &LagMap, index: usize) -> String {
    let from: Option<jiff::Timestamp> = map.window.from.parse().ok();
    let from = from.and_then(|from| i64::try_from(from.as_nanosecond()).ok());
    let after = map.bucket_s * index as f64 * 1e9;
    Nanos::new(from.unwrap_or_default())
        .offset(after as i64)
        .to_string()
}

fn when(map: &LagMap, from: usize, to: usize) -> String {
    let plain = |index| {
        let time = begins(map, index);
        time.split(['T', '.'])
            .take(2)
            .collect::<Vec<&str>>()
            .join(" ")
    };
    format!("{} to {} UTC", plain(from), plain(to))
}

/// Renders the section.
pub(super) fn section(view: &View<'_>, map_view: &MapView) -> Markup {
    html! {
        section aria-labelledby="lag" {
            h2 id="lag" { "Lag of ranks over time" }
            @match map_view {
                MapView::Rows(map, rows, scale_ms) => { (table(map, rows, *scale_ms)) }
                MapView::Empty => {
                    p { "Nothing to compare: no two ranks of one role reported waits in this window." }
                    @if view.window.window != "all" {
                        p { a href="?window=all" { "Show all that is stored" } }
                    }
                }
                MapView::Unavailable(why) => { p.caveat { "Not shown: " (why) } }
            }
        }
    }
}

fn table(map: &LagMap, rows: &[Row], scale_ms: f64) -> Markup {
    let several_jobs = rows.windows(2).any(|pair| match pair {
        [a, b] => a.lags.job != b.lags.job,
        _ => false,
    });
    html! {
        p { "How much less a rank waited than the median of its peers, per iteration: the last rank waits least." }
        (legend(scale_ms))
        div.scroll role="region" aria-labelledby="lag-table" tabindex="0" {
            table.map {
                caption id="lag-table" {
                    "Lag of " (rows.len()) @if map.n_omitted > 0 { " of " (rows.len() + map.n_omitted) } " ranks"
                }
                thead {
                    tr {
                        th scope="col" { "Rank" } th scope="col" { "Node" }
                        th.wide scope="col" { span.visually-hidden { "Lag over time" } (axis(map)) }
                        th.number scope="col" { "Mean" } th.number scope="col" { "Max" }
                    }
                }
                tbody { @for one in rows { (row(map, several_jobs, one)) } }
            }
        }
        (notes(map))
    }
}

fn axis(map: &LagMap) -> Markup {
    let is_one_day = map.window.from.get(..10) == map.window.to.get(..10);
    let ends = [&map.window.from, &map.window.to];
    html! {
        span.axis {
            @for end in ends { @if is_one_day { (format::clock_time(end)) } @else { (format::instant(end)) } }
        }
    }
}

fn row(map: &LagMap, several_jobs: bool, one: &Row) -> Markup {
    let lags = &one.lags;
    let mean = format::maybe_millis(lags.mean_ms());
    let most = lags.peak_ms();
    let label = most.map_or_else(
        || format!("Rank {}: no data", lags.rank),
        |(index, ms)| {
            let time = begins(map, index);
            format!(
                "Rank {}: {mean} on average, at most {} from {time}",
                lags.rank,
                format::millis(ms)
            )
        },
    );
    html! {
        tr class=[one.mark.as_ref().map(class)] {
            th scope="row" {
                (lags.rank)
                @if let Some(job) = lags.job.as_deref().filter(|_| several_jobs) { " " span.quiet { (job) } }
                @if let Some(mark) = &one.mark { " " span.mark { (meaning(mark)) } }
            }
            td.name { (lags.node) }
            td.wide { (strip(&one.runs, lags.lags_ms.len(), &label)) }
            td.number { (mean) }
            td.number { (format::maybe_millis(most.map(|(_, ms)| ms))) }
        }
    }
}

const fn class(mark: &Mark) -> &'static str {
    match mark {
        Mark::Culprit => "culprit",
        Mark::FormerCulprit => "former",
        Mark::Victim(_) => "victim",
    }
}

fn meaning(mark: &Mark) -> String {
    match mark {
        Mark::Culprit => "holds back".to_owned(),
        Mark::FormerCulprit => "held back".to_owned(),
        Mark::Victim(of) => {
            let of: Vec<String> = of.iter().map(u32::to_string).collect();
            format!("waits for {}", of.join(", "))
        }
    }
}

fn legend(scale_ms: f64) -> Markup {
    let steps = STEPS
        .iter()
        .skip(1)
        .map(|step| format::millis(step * scale_ms));
    let words = std::iter::once("less".to_owned()).chain(steps.map(|from| format!("from {from}")));
    html! {
        ul.legend aria-label="Shades" {
            @for (shade, words) in SHADES.iter().zip(words) {
                li { svg.swatch aria-hidden="true" viewBox="0 0 1 1" { rect class=(shade) width="1" height="1" {} } (words) }
            }
            li { svg.swatch aria-hidden="true" viewBox="0 0 1 1" { rect.none width="1" height="1" {} } "no data" }
        }
    }
}

fn notes(map: &LagMap) -> Markup {
    let is_partial = map.sampled_s < map.bucket_s * 0.99;
    html! {
        p.quiet {
            "Each step is " (format::length(map.bucket_s)) "."
            @if is_partial { " Only the first " (format::length(map.sampled_s)) " of each are sampled; a shorter window covers all." }
            @if map.n_omitted > 0 {
                " Listed are the ranks named above and those with the most conspicuous lag; "
                (map.n_omitted) " others are omitted."
            }
        }
    }
}
