//! Allocated GPU time, hour by hour: stored for closed hours, counted from events for hours that
//! are open or only partly in the window. Answers therefore agree with the daily report, and
//! windows split between hours add up.

use std::collections::BTreeSet;

use echo_analysis::hours;
use echo_core::ids::ClusterId;
use echo_core::model::cost::ReportSpan;
use echo_core::units::{GpuTime, Hour, Window};

use crate::ToolError;
use crate::scope::Scope;

/// Returns the GPU time in which ranks of the cluster (of all clusters when none is named) reported
/// in the window.
pub(super) async fn allocated(scope: &Scope<'_>) -> Result<GpuTime, ToolError> {
    let (store, cluster, window) = (&scope.context.store, scope.cluster.as_ref(), scope.window);
    let ends = [
        Hour::containing(window.from()),
        Hour::containing(window.to().offset(-1)),
    ];
    let is_cut = |hour: &Hour| hour.begin() < window.from() || window.to() < hour.end();
    let mut open = store.unsettled_hours(cluster).await?;
    open.retain(|unsettled| !unsettled.was_closed);
    let cut: Vec<Hour> = ends.into_iter().filter(is_cut).collect();
    let hours_to_count = open.iter().map(|open| open.hour).chain(cut.iter().copied());
    let hours_to_count: BTreeSet<Hour> = hours_to_count.collect();
    let mut sum = GpuTime::ZERO;
    for hour in hours_to_count {
        let piece = Window::new(hour.begin().max(window.from()), hour.end().min(window.to()));
        let Some(piece) = piece else { continue };
        // Stored hours have the clusters of which another server has closed the hour.
        let is_counted = |cluster: &ClusterId| {
            let mut open = open.iter().filter(|open| open.hour == hour);
            cut.contains(&hour) || open.any(|open| open.concerns(cluster))
        };
        let rows = store.coverage(cluster, piece).await?;
        let seen = rows.iter().filter(|row| is_counted(&row.origin.cluster));
        let seen: Vec<ReportSpan> = seen.map(ReportSpan::from).collect();
        sum = sum + hours::allocated(piece, &seen);
    }
    let last = Hour::containing(window.to());
    let whole = window
        .hours()
        .next()
        .and_then(|first| Window::new(first.begin(), last.begin()));
    match whole {
        Some(whole) => Ok(sum + store.closed_allocation(cluster, whole).await?),
        None => Ok(sum),
    }
}
