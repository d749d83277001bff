//! Daily cost report: cost of GPUs by hour and node, and the part lost to stragglers.
//!
//! The report is built from closed hours, which are stored, so a day yields the same report
//! whenever it is requested, until late data gives an hour a new revision. Prices are applied on
//! read: those of the current rates file for that hour, so a corrected file also corrects past
//! reports. Every row states the price it was computed with.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use echo_analysis::hours::node_hours;
use echo_core::ids::ClusterId;
use echo_core::model::cost::{NodeHour, NodeSum, ReportSpan};
use echo_core::units::{Hour, Nanos, Window};
use echo_store::hours::UnsettledHour;
use jiff::civil::Date;
use serde::Deserialize;

use crate::rates::Rates;
use crate::scope::visible_clusters;
use crate::time::TimeArg;
use crate::{ToolContext, ToolError, shard_hint};

mod cell;
pub mod focus;
mod json;
mod summary;

/// Maximum number of rows per report: a day of two thousand nodes.
const MAX_ROWS: usize = 50_000;

/// Maximum number of hours per report: a month.
const MAX_HOURS: usize = 31 * 24;

const NANOS_PER_DAY: i64 = 24 * Hour::NANOS;

/// Request for a report.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReportRequest {
    /// Cluster. Default: all clusters that the caller may see.
    pub cluster: Option<String>,
    /// UTC day, such as `2026-11-21`, or `yesterday`, or `today`.
    pub day: Option<String>,
    /// Start, in place of a day: a whole hour, RFC 3339.
    pub from: Option<String>,
    /// End, exclusive: a whole hour, RFC 3339.
    pub to: Option<String>,
    /// True to include hours that are not closed, as far as their data is known.
    pub open: bool,
    /// False to omit the rows where the format has sums. Default: true.
    pub rows: Option<bool>,
}

/// Cost report of a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Window, from a whole hour to a whole hour.
    pub window: Window,
    /// Hours that are not closed.
    pub open: Vec<Hour>,
    /// Closed hours that received data since; their next revision may differ.
    pub revised_soon: Vec<Hour>,
    /// Rows, ordered by hour, cluster, node and GPU model. A request without rows has only those of
    /// hours that are not closed.
    pub rows: Vec<ReportRow>,
    /// Sums of the closed hours by node, of a request without rows; one for each time between two
    /// changes of prices.
    pub sums: Vec<NodeSum>,
    /// Note about data on other shards; `None` when the report is complete.
    pub note: Option<String>,
}

/// Usage of the GPUs of one model on one node in one hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportRow {
    /// Usage as GPU time.
    pub node_hour: NodeHour,
    /// Revision; `None` when the hour is not closed.
    pub revision: Option<u64>,
}

impl ReportRequest {
    /// Builds the report.
    pub async fn report(&self, context: &ToolContext) -> Result<Report, ToolError> {
        let now = context.clock.now();
        let window = self.window(now)?;
        let clusters = self.clusters(context, window).await?;
        let named = clusters.first().filter(|_| self.cluster.is_some());
        let mut unsettled = context.store.unsettled_hours(named).await?;
        unsettled.retain(|hour| clusters.iter().any(|cluster| hour.concerns(cluster)));
        let not_final = NotFinal::of(context, window, &unsettled);
        if !self.open {
            refuse_open(context, window, now, &not_final.open)?;
        }
        let is_everything = self.cluster.is_none() && context.caller.sees_everything();
        let queried: Vec<Option<&ClusterId>> = if is_everything {
            // One query: a lake takes some time for each.
            vec![None]
        } else {
            clusters.iter().map(Some).collect()
        };
        let (mut rows, mut sums) = (Vec::new(), Vec::new());
        for cluster in queried {
            if self.rows == Some(false) {
                for part in with_constant_prices(window, &context.rates) {
                    sums.extend(context.store.cost_sums(cluster, part).await?);
                }
            } else {
                let limit = MAX_ROWS.saturating_sub(rows.len()) + 1;
                let stored = context.store.cost_hours(cluster, window, limit).await?;
                rows.extend(stored.into_iter().map(|stored| ReportRow {
                    node_hour: stored.row,
                    revision: Some(stored.revision),
                }));
                check_row_limit(&rows)?;
            }
        }
        for hour in not_final.open.iter().copied() {
            let is_open = |cluster: &&ClusterId| {
                let mut open = unsettled
                    .iter()
                    .filter(|of| of.hour == hour && !of.was_closed);
                open.any(|of| of.concerns(cluster))
            };
            let clusters = clusters.iter().filter(is_open);
            rows.extend(open_hour_rows(context, hour, clusters).await?);
            check_row_limit(&rows)?;
        }
        rows.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
        Ok(Report {
            window,
            open: not_final.open,
            revised_soon: not_final.revised_soon,
            rows,
            sums,
            note: shard_hint::note(context, named),
        })
    }

    fn window(&self, now: Nanos) -> Result<Window, ToolError> {
        match (&self.day, &self.from, &self.to) {
            (Some(day), None, None) => day_window(day, now),
            (None, Some(from), Some(to)) => {
                let (from, to) = (whole_hour("from", from, now)?, whole_hour("to", to, now)?);
                let before = || ToolError::invalid("from", "must be before the end of the window");
                let window = Window::new(from, to).ok_or_else(before)?;
                if window.hours().take(MAX_HOURS + 1).count() > MAX_HOURS {
                    return Err(ToolError::invalid(
                        "to",
                        "must be at most 31 days after from",
                    ));
                }
                Ok(window)
            }
            _ => Err(ToolError::invalid(
                "day",
                "is required, such as 2026-11-21 or yesterday; or set from and to",
            )),
        }
    }

    /// Returns the clusters of the report. A cluster with closed hours is known even when all its
    /// events were deleted.
    async fn clusters(
        &self,
        context: &ToolContext,
        window: Window,
    ) -> Result<Vec<ClusterId>, ToolError> {
        let mut known = context.store.cost_clusters(window).await?;
        known.retain(|cluster| context.caller.may_see(cluster));
        known.extend(visible_clusters(context).await?);
        let Some(name) = &self.cluster else {
            return Ok(known.into_iter().collect());
        };
        let cluster: ClusterId = name
            .parse()
            .map_err(|error| ToolError::invalid("cluster", format!("{error}")))?;
        if known.contains(&cluster) {
            return Ok(vec![cluster]);
        }
        Err(shard_hint::unknown_cluster(context, &cluster, &known))
    }
}

impl Report {
    /// Renders the report off the async runtime: a day of a thousand nodes is twenty megabytes.
    pub async fn write_off_thread<T: Send + 'static>(
        self,
        rates: Arc<Rates>,
        write: impl FnOnce(&Self, &Rates) -> T + Send + 'static,
    ) -> Result<T, ToolError> {
        let written = tokio::task::spawn_blocking(move || write(&self, &rates)).await;
        written.map_err(|ended| ToolError::Csv(io::Error::other(ended).into()))
    }
}

impl ReportRow {
    fn sort_key(&self) -> (Hour, &ClusterId, &str, Option<&str>) {
        let row = &self.node_hour;
        let (node, model) = (row.node.as_str(), row.gpu_model.as_deref());
        (row.hour, &row.cluster, node, model)
    }
}

/// Divides the window where a price changes.
fn with_constant_prices(window: Window, rates: &Rates) -> Vec<Window> {
    let mut borders = rates.change_points(window);
    borders.extend([window.from(), window.to()]);
    borders.sort_unstable();
    let pairs = borders.iter().zip(borders.iter().skip(1));
    pairs
        .filter_map(|(from, to)| Window::new(*from, *to))
        .collect()
}

fn day_window(day: &str, now: Nanos) -> Result<Window, ToolError> {
    let today = now.offset(-now.value().rem_euclid(NANOS_PER_DAY));
    let begin = match day.trim() {
        "today" => Some(today),
        "yesterday" => Some(today.offset(-NANOS_PER_DAY)),
        date => {
            let since_1970 = date
                .parse::<Date>()
                .ok()
                .map(|date| date.duration_since(Date::constant(1970, 1, 1)));
            let nanos = since_1970.and_then(|since| u64::try_from(since.as_nanos()).ok());
            nanos.and_then(Nanos::plausible)
        }
    };
    begin
        .and_then(|begin| Window::new(begin, begin.offset(NANOS_PER_DAY)))
        .ok_or_else(|| {
            let message = format!("{day:?} is not a day from 2020 to 2099 such as 2026-11-21");
            ToolError::invalid("day", message)
        })
}

fn whole_hour(field: &str, text: &str, now: Nanos) -> Result<Nanos, ToolError> {
    let time: TimeArg = text
        .parse()
        .map_err(|error: String| ToolError::invalid(field, error))?;
    let instant = time.resolve(now);
    if !Hour::begins_at(instant) {
        let message = format!("{instant} is not a whole hour");
        return Err(ToolError::invalid(field, message));
    }
    Ok(instant)
}

/// Hours of a window that are not final.
struct NotFinal {
    /// Hours that are not closed.
    open: Vec<Hour>,
    /// Closed hours that are due for another revision.
    revised_soon: Vec<Hour>,
}

impl NotFinal {
    /// Hours that are not over, or that are unsettled.
    fn of(context: &ToolContext, window: Window, unsettled: &[UnsettledHour]) -> Self {
        let mut due: BTreeMap<Hour, bool> = BTreeMap::new();
        for hour in unsettled {
            *due.entry(hour.hour).or_insert(true) &= hour.was_closed;
        }
        let now = context.clock.now();
        let is_over = |hour: &Hour| hour.end() <= now.before(context.limits.cost_grace);
        let is_open = |hour: &Hour| match due.get(hour) {
            Some(was_closed) => !was_closed,
            None => !is_over(hour),
        };
        Self {
            open: window.hours().filter(is_open).collect(),
            revised_soon: window
                .hours()
                .filter(|hour| due.get(hour) == Some(&true))
                .collect(),
        }
    }
}

fn refuse_open(
    context: &ToolContext,
    window: Window,
    now: Nanos,
    open: &[Hour],
) -> Result<(), ToolError> {
    let (Some(first), Some(last)) = (open.first(), open.last()) else {
        return Ok(());
    };
    let grace = i64::try_from(context.limits.cost_grace.as_nanos()).unwrap_or(i64::MAX);
    let closed_at = last.end().offset(grace);
    let when = if now < closed_at {
        format!("retry after {closed_at}")
    } else {
        "they are being computed; retry in a few minutes".to_owned()
    };
    Err(ToolError::Refused {
        reason: format!(
            "{} of {} hours are not closed yet, the first from {}",
            open.len(),
            window.hours().count(),
            first.begin()
        ),
        hint: format!(
            "{when}, or request preliminary data with open=true (HTTP) or --allow-open (command line)"
        ),
    })
}

fn check_row_limit(rows: &[ReportRow]) -> Result<(), ToolError> {
    if rows.len() <= MAX_ROWS {
        return Ok(());
    }
    Err(ToolError::Refused {
        reason: format!("the report has more than {MAX_ROWS} rows"),
        hint: "request a single cluster, fewer hours with from and to, or the sums alone: JSON with rows=false"
            .to_owned(),
    })
}

/// Rows of an hour that is not closed, from the data stored so far.
async fn open_hour_rows(
    context: &ToolContext,
    hour: Hour,
    clusters: impl Iterator<Item = &ClusterId>,
) -> Result<Vec<ReportRow>, ToolError> {
    let window = hour.window();
    let mut rows = Vec::new();
    for cluster in clusters {
        let seen = context.store.coverage(Some(cluster), window).await?;
        let seen = seen.iter().map(ReportSpan::from);
        let lost = context.store.lost_time(Some(cluster), window).await?;
        let node_hours = node_hours(hour, &seen.collect::<Vec<_>>(), &lost);
        rows.extend(node_hours.into_iter().map(|node_hour| ReportRow {
            node_hour,
            revision: None,
        }));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests;
