//! Iteration times of jobs, which tell how much a lag matters.

use std::collections::BTreeMap;

use echo_core::model::event::Reading;
use echo_core::stats::median;
use echo_core::units::Window;
use echo_store::JobQuery;
use echo_store::timeseries::TimeBuckets;
use fleet_proto::metric;

use super::lags::RankLags;
use crate::ToolError;
use crate::names::metrics;
use crate::scope::Scope;

/// Maximum number of jobs whose iteration time is loaded.
const MAX_JOBS: usize = 16;

/// Maximum number of reports from which the iteration time of a job is taken.
const MAX_REPORTS: usize = 256;

/// Loads the recent iteration time of each job, milliseconds: the median of the reports in the
/// latest bucket with lags.
pub(super) async fn iteration_times(
    scope: &Scope<'_>,
    ranks: &[RankLags],
    buckets: TimeBuckets,
) -> Result<BTreeMap<Option<String>, f64>, ToolError> {
    let mut latest: BTreeMap<&Option<String>, usize> = BTreeMap::new();
    for one in ranks {
        if let Some(bucket) = one.lags_ms.iter().rposition(Option::is_some) {
            let known = latest.entry(&one.job).or_default();
            *known = bucket.max(*known);
        }
    }
    let mut times = BTreeMap::new();
    for (job, bucket) in latest.into_iter().take(MAX_JOBS) {
        if let Some(window) = sampled(buckets, bucket) {
            let period_ms = iteration_time(scope, job.as_deref(), window).await?;
            times.extend(period_ms.map(|period_ms| (job.clone(), period_ms)));
        }
    }
    Ok(times)
}

/// Sampled part of a bucket.
fn sampled(buckets: TimeBuckets, index: usize) -> Option<Window> {
    let after = buckets
        .length_nanos()
        .checked_mul(i64::try_from(index).ok()?)?;
    let from = buckets.window().from().offset(after);
    Window::new(from, from.offset(buckets.sampled_nanos()))
}

async fn iteration_time(
    scope: &Scope<'_>,
    job: Option<&str>,
    window: Window,
) -> Result<Option<f64>, ToolError> {
    let job = job.map(str::parse).transpose();
    let query = JobQuery {
        cluster: scope.require_cluster()?.clone(),
        job: job.map_err(|error| ToolError::invalid("job", format!("{error}")))?,
        rank: None,
        role: None,
        comm: None,
        metrics: metrics(&[metric::PERIOD])?,
        source: None,
        window,
        blocks: None,
        limit: MAX_REPORTS,
    };
    let reports = scope.context.store.job_events(query).await?;
    let periods = reports
        .iter()
        .filter_map(|stored| match stored.event.reading {
            Reading::Double(period_ms) if period_ms > 0.0 => Some(period_ms),
            _ => None,
        });
    Ok(median(&periods.collect::<Vec<f64>>()))
}
