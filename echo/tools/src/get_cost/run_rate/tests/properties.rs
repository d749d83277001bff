//! Properties of the run rate over jobs that begin, end and lose time at any second.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use echo_core::ids::{IncidentId, RankInJob};
use echo_core::model::detector_output::{Incident, LostTime};
use echo_core::model::event::Origin;
use echo_core::units::Window;
use echo_store::{Activity, Coverage};
use proptest::collection::vec;
use proptest::prelude::{Strategy, prop_assert, proptest};

use super::super::RunRateHorizon;
use crate::ToolContext;
use crate::fixture::{at, culprit, empty, lost, origin};
use crate::quality::Presence;

/// A job that reports from one second to another, and whose incident loses this share of its GPUs from
/// one second on.
#[derive(Debug, Clone)]
struct Job {
    n_ranks: u32,
    reported: Range<i64>,
    late_from: i64,
    share: f64,
}

fn jobs() -> impl Strategy<Value = Vec<Job>> {
    let job = (1..6_u32, 0..590_i64, 5..600_i64, 0..600_i64, 0.0..2.0);
    let job = job.prop_map(|(n_ranks, begin, lasts, late_after, share)| Job {
        n_ranks,
        reported: begin..(begin + lasts).min(600),
        late_from: begin + late_after,
        share,
    });
    vec(job, 1..5)
}

impl Job {
    fn coverage(&self, number: u64) -> Vec<Coverage> {
        let rows = (0..self.n_ranks).map(|rank| Coverage {
            origin: Arc::new(Origin {
                job: Some(format!("job-{number}").parse().unwrap()),
                rank: Some(RankInJob::new(rank.into(), Some(self.n_ranks.into())).unwrap()),
                ..Origin::clone(&origin(0))
            }),
            first: at(self.reported.start),
            last: at(self.reported.end),
            has_host_evidence: false,
            activity: Activity::default(),
        });
        rows.collect()
    }

    fn incident(&self, number: u64) -> Incident {
        Incident {
            id: IncidentId::new(number),
            job: Some(format!("job-{number}").parse().unwrap()),
            first_seen: at(self.late_from),
            last_seen: at(self.reported.end),
            ..culprit()
        }
    }

    fn lost(&self, number: u64) -> Vec<LostTime> {
        let incident = self.incident(number);
        let rows = (self.late_from..self.reported.end).map(|second| LostTime {
            interval: Window::new(at(second), at(second + 1)).unwrap(),
            lost_gpu_ms: 1_000.0 * self.share * f64::from(self.n_ranks),
            ..lost(&incident, "node-0", None, second)
        });
        rows.collect()
    }
}

/// GPU-hours per hour of each of these jobs.
fn rates(context: &ToolContext, jobs: &[Job]) -> BTreeMap<IncidentId, f64> {
    let jobs = || (0..).zip(jobs);
    let rows = jobs().flat_map(|(number, job)| job.coverage(number));
    let presence = Presence::from_rows(rows.collect());
    let lost: Vec<LostTime> = jobs().flat_map(|(number, job)| job.lost(number)).collect();
    let incidents = jobs().map(|(number, job)| (IncidentId::new(number), job.incident(number)));
    let window = Window::new(at(0), at(601)).unwrap();
    let horizon =
        RunRateHorizon::from_presence(&presence, window, at(600), &context.limits).unwrap();
    let rate = horizon.run_rate(context, &lost, &incidents.collect());
    let sums = rate.map(|rate| rate.sum_by(|item| item.loss.incident));
    let sums = sums.unwrap_or_default().into_iter();
    sums.map(|((id, _), sum)| (id, sum.time.hours())).collect()
}

#[tokio::test]
async fn no_job_changes_the_rate_of_another_one_and_none_loses_more_than_its_gpus() {
    let context = empty();
    proptest!(|(jobs in jobs())| {
        let all = rates(&context, &jobs);
        let own = rates(&context, &jobs[..1]);
        let first = IncidentId::new(0);
        let of = |rates: &BTreeMap<IncidentId, f64>| rates.get(&first).copied().unwrap_or(0.0);
        prop_assert!((of(&all) - of(&own)).abs() < 1e-6, "{all:?} {own:?}");
        for (number, job) in (0..).zip(&jobs) {
            let rate = all.get(&IncidentId::new(number)).copied().unwrap_or(0.0);
            prop_assert!(rate <= f64::from(job.n_ranks) + 1e-6, "{rate} of {job:?}");
            let reports = job.reported.end >= 540;
            prop_assert!(reports || rate == 0.0, "{rate} of {job:?}");
        }
    });
}
