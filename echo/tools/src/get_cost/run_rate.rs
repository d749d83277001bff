//! Run rate: what the open incidents lose per hour.
//!
//! Each job has a horizon of its own, so that no job changes the figures of another one by its start, its
//! end or its delay. Clocks of hosts differ, so the horizon of a job ends at the median of the last events
//! of its ranks, and is as long as the median of the times between the first and the last event of each.
//! An incident that began within the horizon is divided by the time since then: a mean over all of the
//! horizon would be too low for as long as the horizon is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use echo_analysis::cost::{INTERVAL_NS, within};
use echo_core::ids::IncidentId;
use echo_core::model::detector_output::{Incident, IncidentState, LostTime};
use echo_core::stats::median;
use echo_core::units::{MILLIS_PER_HOUR, Nanos, Window};

use super::bill::{Bill, LineItem, Sum, money};
use crate::quality::{JobKey, Presence};
use crate::rates::Currency;
use crate::{Limits, ToolContext};

/// Most recent part of a window that has events.
pub(super) struct RunRateHorizon {
    /// Time of the last event.
    pub(super) as_of: Nanos,
    /// Span up to the last event, in which the horizons of the jobs lie but for the errors of clocks.
    pub(super) window: Window,
    /// End of the window that was asked for.
    end: Nanos,
    /// Jobs that still report; without a horizon those of which too few ranks do. `None` without a rank
    /// in the window.
    jobs: Option<BTreeMap<JobKey, Option<JobHorizon>>>,
    /// GPUs of these jobs; two jobs may have used the same one.
    n_gpus: f64,
}

/// Horizon of one job.
struct JobHorizon {
    /// Span from which the run rate is computed.
    window: Window,
    /// Ranks that reported in it, with a GPU each.
    n_ranks: f64,
}

impl RunRateHorizon {
    /// Finds the horizons of a window; `None` without events. Jobs whose last event is long before `at`,
    /// the instant of which the rate is asked, are left out: they have ended.
    pub(super) fn from_presence(
        presence: &Presence,
        window: Window,
        at: Nanos,
        limits: &Limits,
    ) -> Option<Self> {
        let (first, last) = presence.span()?;
        // The instant after the last event is the first without data.
        let end = window.to().min(last.offset(1));
        let start = end.before(limits.horizon).max(first).max(window.from());
        let mut jobs = presence.since(start).by_job();
        let since = at.before(limits.stale_after);
        jobs.retain(|_, job| job.spans().any(|(_, last)| last >= since));
        let gpus: BTreeSet<_> = jobs.iter().flat_map(gpus).collect();
        let horizon = |job: &Presence| {
            let is_covered = job.coverage() >= Some(limits.min_coverage);
            is_covered.then(|| JobHorizon::from_presence(job)).flatten()
        };
        let jobs = jobs.iter().map(|(key, job)| (key.clone(), horizon(job)));
        let has_ranks = presence.ranks().next().is_some();
        Some(Self {
            as_of: last,
            window: Window::new(start, end)?,
            end: window.to(),
            n_gpus: gpus.iter().map(|_| 1.0).sum(),
            jobs: has_ranks.then(|| jobs.collect()),
        })
    }

    /// True when the last event is too long before the end of the window, or before now if that is
    /// earlier.
    pub(super) fn is_stale(&self, context: &ToolContext, window: Window) -> bool {
        let end = window.to().min(context.clock.now());
        end.millis_since(self.as_of) > context.limits.stale_after.as_secs_f64() * 1e3
    }

    /// Computes the loss per hour of the incidents that are open; `None` when too few ranks of all jobs
    /// report, or of one that has such an incident. At most all GPUs are lost: clocks differ, and a hang
    /// is judged up to a later instant than the last event.
    pub(super) fn run_rate<'a>(
        &self,
        context: &'a ToolContext,
        rows: &[LostTime],
        incidents: &BTreeMap<IncidentId, Incident>,
    ) -> Option<RunRate<'a>> {
        let jobs = self.jobs.as_ref()?;
        if !jobs.is_empty() && jobs.values().all(Option::is_none) {
            return None;
        }
        let mut by_job: BTreeMap<JobKey, Vec<LostTime>> = BTreeMap::new();
        for row in rows {
            let incident = incidents.get(&row.incident);
            if let Some(open) = incident.filter(|incident| self.is_open(incident)) {
                by_job
                    .entry(super::job(open))
                    .or_default()
                    .push(row.clone());
            }
        }
        let bill = |rows: &[LostTime]| Bill::new(rows, self.window, &context.rates);
        let hours = |rows: &[LostTime]| bill(rows).time().hours();
        let mut lost = Vec::new();
        for (job, horizon) in jobs {
            let rows = by_job.get(job).map_or(&[][..], Vec::as_slice);
            let Some(horizon) = horizon else {
                if within(rows, self.window, &BTreeMap::new()).is_empty() {
                    continue;
                }
                return None;
            };
            let mut own = horizon.per_hour(rows, incidents);
            let n_lost = hours(&own);
            scale(&mut own, (horizon.n_ranks / n_lost).min(1.0));
            lost.append(&mut own);
        }
        let n_lost = hours(&lost);
        scale(&mut lost, (self.n_gpus / n_lost).min(1.0));
        Some(RunRate {
            per_hour: bill(&lost),
            jobs: jobs.keys().cloned().collect(),
        })
    }

    /// Returns true if the incident had not ended at the end of the window.
    fn is_open(&self, incident: &Incident) -> bool {
        let ended_later = || incident.cleared_at.is_some_and(|at| at >= self.end);
        incident.state == IncidentState::Open || ended_later()
    }
}

/// GPUs of the ranks of a job: by their identity, or one for each rank.
fn gpus<'a>(
    (job, presence): (&'a JobKey, &'a Presence),
) -> impl Iterator<Item = (Option<&'a JobKey>, String)> {
    presence.ranks().map(move |origin| {
        let rank = || {
            origin
                .rank
                .map_or_else(String::new, |rank| rank.rank().to_string())
        };
        match &origin.gpu_uuid {
            Some(uuid) => (None, uuid.to_string()),
            None => (Some(job), rank()),
        }
    })
}

fn scale(rows: &mut [LostTime], factor: f64) {
    for row in rows {
        row.lost_gpu_ms *= factor;
    }
}

impl JobHorizon {
    /// Finds the horizon of a job in the recent part of its reports; `None` if that has no length.
    fn from_presence(job: &Presence) -> Option<Self> {
        let (origin, _) = job.span()?;
        let millis = |values: Vec<f64>| Duration::try_from_secs_f64(median(&values)? / 1e3).ok();
        let spans: Vec<(Nanos, Nanos)> = job.spans().collect();
        let last = spans
            .iter()
            .map(|(_, last)| last.millis_since(origin))
            .collect();
        let length = spans
            .iter()
            .map(|(first, last)| last.millis_since(*first))
            .collect();
        let end = origin.after(millis(last)?).offset(1);
        let window = Window::new(end.before(millis(length)?), end)?;
        (window.millis() >= 1.0).then(|| Self {
            window,
            n_ranks: spans.iter().map(|_| 1.0).sum(),
        })
    }

    /// Loss within the horizon by incident, node and interval, per hour. It is scaled before it is priced,
    /// so that rounding to a millionth is not scaled with it.
    fn per_hour(
        &self,
        rows: &[LostTime],
        incidents: &BTreeMap<IncidentId, Incident>,
    ) -> Vec<LostTime> {
        let mut lost = within(rows, self.window, &BTreeMap::new());
        for row in &mut lost {
            let incident = incidents.get(&row.incident);
            let lasted_ms =
                incident.map_or_else(|| self.window.millis(), |one| self.lasted_ms(one));
            row.lost_gpu_ms *= MILLIS_PER_HOUR / lasted_ms;
        }
        lost
    }

    /// Time within the horizon since an incident began, up to its latest evaluation, milliseconds; at least
    /// the length of the intervals in which losses are stored. The evaluation is some seconds behind the
    /// events; a fault that comes and goes may have been seen long before it.
    fn lasted_ms(&self, incident: &Incident) -> f64 {
        let (from, to) = (self.window.from(), self.window.to());
        let evaluated = incident.last_seen.max(to.offset(-INTERVAL_NS)).min(to);
        let lasted_ms = evaluated.millis_since(from.max(incident.first_seen));
        let least = to.offset(-INTERVAL_NS).max(from);
        lasted_ms.max(to.millis_since(least))
    }
}

/// Loss per hour at the end of a window.
pub(super) struct RunRate<'a> {
    per_hour: Bill<'a>,
    /// Jobs that still report.
    jobs: BTreeSet<JobKey>,
}

impl<'a> RunRate<'a> {
    /// Returns true if the job of an incident still reports.
    pub(super) fn has_job_of(&self, incident: &Incident) -> bool {
        self.jobs.contains(&super::job(incident))
    }

    /// Loss per hour by any key and currency.
    pub(super) fn sum_by<K: Ord>(
        &self,
        key: impl Fn(&LineItem<'a>) -> K,
    ) -> BTreeMap<(K, Option<Currency>), Sum> {
        self.per_hour.sum_by(key)
    }

    /// GPU-hours lost per hour.
    pub(super) fn gpu_hours_per_hour(&self) -> f64 {
        self.per_hour.time().hours()
    }

    /// Money lost per hour; `None` when none of the losses has a price.
    pub(super) fn per_hour(&self, currency: Currency) -> Option<f64> {
        let sums = self.per_hour.by_currency();
        match sums.get(&Some(currency)) {
            Some(sum) => Some(money(sum.cost)),
            None => (!sums.contains_key(&None)).then_some(0.0),
        }
    }
}

#[cfg(test)]
mod tests;
