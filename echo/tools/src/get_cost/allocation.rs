//! GPU time that was there, hour by hour: as closed hours have it, and counted where an hour is not closed or not asked about as
//! a whole. So answers rest on the numbers of the daily report, and windows that are cut between hours add up.

use std::collections::BTreeSet;

use echo_analysis::hours;
use echo_core::model::cost::Seen;
use echo_core::units::{GpuTime, Hour, Window};

use crate::ToolError;
use crate::scope::Scope;

/// GPU time in which ranks of a cluster (of all when none is named) reported in a window.
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
            let seen = rows.into_iter().map(|row| Seen {
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
