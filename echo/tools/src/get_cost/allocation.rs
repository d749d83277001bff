//! Allocated GPU time, hour by hour: stored for closed hours, counted from events for hours that
//! are open or only partly in the window. Answers therefore agree with the daily report, and
//! windows split between hours add up.

use std::collections::BTreeSet;

use echo_analysis::hours;
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
    let due = store.due_hours().into_iter();
    let never_closed = due.filter(|due| !due.was_closed).map(|due| due.hour);
    let cut = ends.into_iter().filter(is_cut);
    let counted: BTreeSet<Hour> = never_closed.chain(cut).collect();
    let mut sum = GpuTime::ZERO;
    for hour in counted {
        let piece = Window::new(hour.begin().max(window.from()), hour.end().min(window.to()));
        if let Some(piece) = piece {
            let rows = store.coverage(cluster, piece).await?;
            let seen = rows.into_iter().map(|row| ReportSpan {
                origin: row.origin,
                first: row.first,
                last: row.last,
            });
            sum = sum + hours::allocated(piece, &seen.collect::<Vec<_>>());
        }
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
