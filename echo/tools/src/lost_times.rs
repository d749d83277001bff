//! Ranks whose operations lack their times on the GPU. They are compared by the other operations, and
//! not at all where most are missing, so who reads a verdict has to know.

use std::collections::BTreeMap;
use std::time::Duration;

use echo_core::ids::{ClusterId, CommId, JobId, Rank};
use echo_core::text::decimal;
use echo_core::units::Window;
use echo_store::TimedOperations;

use crate::ToolError;
use crate::scope::Scope;

/// Time at the end of the window that is looked at.
const SPAN: Duration = Duration::from_mins(1);

/// Number of operations of a rank from which on a share of them tells something.
const LEAST_OPERATIONS: f64 = 100.0;

/// Share of lost times that is worth a note.
const LEAST_LOST: f64 = 0.01;

/// Maximum number of ranks in the note.
const MAX_NAMED: usize = 3;

type JobKey<'a> = (&'a ClusterId, Option<&'a JobId>);

/// Returns the last minute in which anything was reported.
pub(crate) async fn last_minute(scope: &Scope<'_>) -> Result<Option<Window>, ToolError> {
    let span = scope.presence().await?.span();
    let to = span.map(|(_, last)| last.offset(1));
    Ok(to.and_then(|to| Window::new(to.before(SPAN), to)))
}

/// Returns a note about the ranks that lost the times of more than 1 % of their operations in a window.
pub(crate) async fn note(scope: &Scope<'_>, window: Window) -> Result<Option<String>, ToolError> {
    let (store, cluster) = (&scope.context.store, scope.cluster.as_ref());
    let lost = lost(&store.timed_operations(cluster, window).await?);
    Ok((!lost.is_empty()).then(|| sentence(&lost)))
}

/// Shares of lost times by rank, largest first. Of some operations, such as broadcasts, no rank has
/// times; of each communicator, the rank with the most tells which ones have them.
fn lost(all: &[TimedOperations]) -> Vec<(Rank, f64)> {
    // A rank whose origin has changed has several rows.
    let mut comms: BTreeMap<(JobKey<'_>, CommId), BTreeMap<Rank, (f64, f64)>> = BTreeMap::new();
    for one in all {
        if let Some(rank) = one.origin.rank {
            let ranks = comms.entry((job(one), one.comm)).or_default();
            let (operations, timed) = ranks.entry(rank.rank()).or_default();
            *operations += one.operations;
            *timed += one.timed;
        }
    }
    // Times that there could be, and those that there are.
    let mut by_rank: BTreeMap<(JobKey<'_>, Rank), (f64, f64)> = BTreeMap::new();
    for ((job, _), ranks) in comms {
        let shares = ranks.values().map(|(operations, timed)| timed / operations);
        let most = shares.fold(0.0, f64::max);
        for (rank, (operations, own)) in ranks {
            let (possible, timed) = by_rank.entry((job, rank)).or_default();
            *possible += most * operations;
            *timed += own;
        }
    }
    let known = by_rank
        .into_iter()
        .filter(|(_, (possible, _))| *possible >= LEAST_OPERATIONS);
    let shares = known.map(|((_, rank), (possible, timed))| (rank, 1.0 - timed / possible));
    let mut lost: Vec<(Rank, f64)> = shares.filter(|(_, share)| *share > LEAST_LOST).collect();
    lost.sort_by(|a, b| b.1.total_cmp(&a.1));
    lost
}

fn job(of: &TimedOperations) -> JobKey<'_> {
    (&of.origin.cluster, of.origin.job.as_ref())
}

fn sentence(lost: &[(Rank, f64)]) -> String {
    let named = lost.iter().take(MAX_NAMED);
    let named =
        named.map(|(rank, share)| format!("{} % of rank {rank}", decimal(100.0 * share, 0)));
    let named: Vec<String> = named.collect();
    let more = match lost.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and of {more} more ranks"),
    };
    format!(
        "times of GPU operations are lost ({}{more}), and ranks are compared by the others: `fleet-echo host check` \
         has the reason",
        named.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use echo_core::ids::{CommId, Rank};
    use echo_store::TimedOperations;

    use super::{lost, sentence};
    use crate::fixture::origin;

    /// 640 operations of a rank, so many of which have times.
    fn operations(rank: u32, timed: f64) -> TimedOperations {
        TimedOperations {
            origin: origin(rank),
            comm: CommId::new(7),
            operations: 640.0,
            timed,
        }
    }

    #[test]
    fn the_rank_that_lost_times_is_named_with_its_share() {
        let found = lost(&[operations(0, 640.0), operations(1, 290.0)]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, Rank::new(1));
        let note = sentence(&found);
        assert!(
            note.starts_with("times of GPU operations are lost (55 % of rank 1)"),
            "{note}"
        );
    }

    #[test]
    fn operations_of_which_no_rank_has_times_are_not_lost() {
        let all: Vec<TimedOperations> = (0..4).map(|rank| operations(rank, 500.0)).collect();
        assert_eq!(lost(&all), []);
    }
}
