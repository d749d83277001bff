//! Ranks that call their GPUs while none of their operations are seen. Nothing is said about them, so
//! who reads that nothing is wrong has to know.

use std::collections::BTreeMap;
use std::time::Duration;

use echo_core::ids::{ClusterId, NodeId, Rank};
use echo_core::units::Nanos;
use echo_store::Activity;

use crate::quality::Presence;

/// Time without an operation from which on a rank is mentioned. Most evaluations and checkpoints
/// are shorter.
const LEAST_UNSEEN: Duration = Duration::from_secs(30);

/// Maximum number of ranks in the note.
const MAX_NAMED: usize = 4;

/// Returns a note about the ranks that call their GPUs and whose operations are not seen.
pub(crate) fn note(presence: &Presence) -> Option<String> {
    let (_, now) = presence.span()?;
    // Before its first communicator a rank has no job, so it may have several rows.
    let mut ranks: BTreeMap<(&ClusterId, &NodeId, Rank), (Nanos, Activity)> = BTreeMap::new();
    for row in presence.rows() {
        let origin = &row.origin;
        if let Some(rank) = origin.rank.filter(|rank| rank.world_size() != Some(1)) {
            let place = (&origin.cluster, &origin.node, rank.rank());
            let (first, activity) = ranks.entry(place).or_insert((row.first, row.activity));
            *first = row.first.min(*first);
            *activity = row.activity.with(*activity);
        }
    }
    let unseen = ranks
        .into_iter()
        .filter_map(|((_, _, rank), (first, activity))| {
            Some((rank, unseen_for(first, activity, now)?))
        });
    let unseen: Vec<(Rank, Duration)> = unseen.collect();
    let longest = unseen.iter().map(|(_, time)| time).max()?;
    let named = unseen.iter().take(MAX_NAMED);
    let named: Vec<String> = named.map(|(rank, _)| rank.to_string()).collect();
    let more = match unseen.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "ranks {}{more} call their GPUs, and no operation of theirs was seen for up to {} s: they compute alone, or \
         replay operations in CUDA graphs, which only the NCCL profiler plugin shows",
        named.join(", "),
        longest.as_secs()
    ))
}

/// Time for which a rank, first seen at an instant, has called its GPU without an operation. `None`
/// if it is short, or if the calls ended as well.
fn unseen_for(first: Nanos, activity: Activity, now: Nanos) -> Option<Duration> {
    let last_call = activity.last_call?;
    let since = activity.last_operation.unwrap_or(first);
    let between = |from: Nanos, to: Nanos| Duration::try_from_secs_f64(to.millis_since(from) / 1e3);
    let unseen = between(since, last_call).ok()?;
    let is_current = between(last_call, now).is_ok_and(|ago| ago <= LEAST_UNSEEN);
    (is_current && unseen >= LEAST_UNSEEN).then_some(unseen)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use echo_core::ids::RankInJob;
    use echo_core::model::event::Origin;
    use echo_store::Coverage;

    use super::*;
    use crate::fixture::{at, origin};

    fn row(rank: u32, last_operation: Option<i64>, last_call: Option<i64>) -> Coverage {
        Coverage {
            origin: origin(rank),
            first: at(0),
            last: at(200),
            has_host_evidence: false,
            activity: Activity {
                last_operation: last_operation.map(at),
                last_call: last_call.map(at),
            },
        }
    }

    fn of(rows: Vec<Coverage>) -> Option<String> {
        note(&Presence::from_rows(rows))
    }

    #[test]
    fn ranks_that_only_replay_graphs_are_mentioned_with_what_would_show_them() {
        let note = of(vec![row(0, Some(5), Some(200)), row(1, None, Some(190))]).unwrap();
        assert!(
            note.starts_with(
                "ranks 0, 1 call their GPUs, and no operation of theirs was seen for up to 195 s"
            ),
            "{note}"
        );
        assert!(note.contains("NCCL profiler plugin"), "{note}");
    }

    #[test]
    fn ranks_that_communicate_or_stopped_or_only_began_are_not_mentioned() {
        assert_eq!(
            of(vec![row(0, Some(180), Some(200))]),
            None,
            "its operations are seen"
        );
        assert_eq!(
            of(vec![row(0, Some(5), Some(100)), row(1, Some(199), None)]),
            None,
            "it ended"
        );
        assert_eq!(of(vec![row(0, None, None)]), None, "it calls nothing");
        let young = Coverage {
            first: at(180),
            ..row(0, None, Some(200))
        };
        assert_eq!(of(vec![young]), None, "it only began");
    }

    #[test]
    fn a_job_of_one_rank_has_nobody_to_wait_for() {
        let mut alone = row(0, None, Some(200));
        alone.origin = Arc::new(Origin {
            rank: Some(RankInJob::new(0, Some(1)).unwrap()),
            ..Origin::clone(&alone.origin)
        });
        assert_eq!(of(vec![alone]), None);
    }

    #[test]
    fn calls_before_the_job_is_known_belong_to_the_same_rank() {
        let mut early = row(0, None, Some(190));
        early.origin = Arc::new(Origin {
            job: None,
            ..Origin::clone(&early.origin)
        });
        assert_eq!(of(vec![early, row(0, Some(195), None)]), None);
    }
}
