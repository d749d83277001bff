//! Ranks that call their GPUs while none of their operations are seen. They are not compared, so an
//! answer without outliers has to mention them.

use std::collections::BTreeMap;
use std::time::Duration;

use echo_core::ids::Rank;
use echo_core::model::detector_output::{Incident, IncidentState};
use echo_core::units::Nanos;
use echo_store::Activity;

use crate::outlier::hang;
use crate::quality::{JobKey, Presence};

/// Time without an operation from which on a rank is mentioned. A recorded job compiled for 24 s
/// between two operations.
const LEAST_UNSEEN: Duration = Duration::from_secs(30);

/// Maximum number of ranks in the note.
const MAX_NAMED: usize = 4;

/// Time of the last event of a job, and of each rank the time of its first event and its activity.
type Reported = (Nanos, BTreeMap<Rank, (Nanos, Activity)>);

/// Returns a note about the ranks that call their GPUs and whose operations are not seen. About jobs
/// that stand still, the incident says more.
pub(crate) fn note(presence: &Presence, incidents: &[Incident]) -> Option<String> {
    let mut jobs: BTreeMap<JobKey, Reported> = BTreeMap::new();
    for (job, row) in presence.rows_by_job() {
        let rank = row.origin.rank.filter(|rank| rank.world_size() != Some(1));
        if let Some(rank) = rank.filter(|_| !stands_still(&job, incidents)) {
            let (last, ranks) = jobs.entry(job).or_insert((row.last, BTreeMap::new()));
            *last = row.last.max(*last);
            let known = ranks
                .entry(rank.rank())
                .or_insert((row.first, row.activity));
            *known = (row.first.min(known.0), row.activity.with(known.1));
        }
    }
    let unseen = jobs.into_iter().filter_map(|(job, (now, ranks))| {
        let unseen = ranks.into_iter().filter_map(|(rank, (first, activity))| {
            Some((rank, unseen_for(first, activity, now)?))
        });
        let unseen: Vec<(Rank, Duration)> = unseen.collect();
        (!unseen.is_empty()).then_some((job, unseen))
    });
    let unseen: Vec<_> = unseen.collect();
    let ((cluster, job), ranks) = unseen.iter().max_by_key(|(_, ranks)| ranks.len())?;
    let longest = ranks.iter().map(|(_, time)| time).max()?;
    let named = ranks.iter().take(MAX_NAMED);
    let named: Vec<String> = named.map(|(rank, _)| rank.to_string()).collect();
    let more = match ranks.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let job = job.as_ref().map_or_else(
        || "a job without a name".to_owned(),
        |job| format!("job {job}"),
    );
    let others = match unseen.len() - 1 {
        0 => String::new(),
        others => format!(" (and {others} more jobs)"),
    };
    Some(format!(
        "ranks {}{more} of {job} in {cluster}{others} call their GPUs, and no operation of theirs was seen for up to {} s: they \
         compute alone, or replay operations in CUDA graphs, which only the NCCL profiler plugin shows",
        named.join(", "),
        longest.as_secs()
    ))
}

fn stands_still((cluster, job): &JobKey, incidents: &[Incident]) -> bool {
    let hangs = incidents.iter().filter(|one| hang(one).is_some());
    let mut open = hangs.filter(|one| one.state == IncidentState::Open);
    open.any(|one| one.cluster == *cluster && one.job == *job)
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
        note(&Presence::from_rows(rows), &[])
    }

    #[test]
    fn ranks_that_only_replay_graphs_are_mentioned_with_what_would_show_them() {
        let note = of(vec![row(0, Some(5), Some(200)), row(1, None, Some(190))]).unwrap();
        assert!(
            note.starts_with(
                "ranks 0, 1 of job llama in prod call their GPUs, and no operation of theirs was seen for up to 195 s"
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
