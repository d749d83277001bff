//! Data quality: how much of the cluster an answer covers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use echo_core::ids::{ClusterId, JobId, NodeId, Rank};
use echo_core::model::event::Origin;
use echo_core::units::{GpuTime, Nanos, Window};
use echo_store::Coverage;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{ToolContext, ToolError};

/// Share of the cluster that the data covers, and how recent it is.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct DataQuality {
    /// Ranks that reported in the window.
    pub ranks_reporting: u64,
    /// Ranks that the reporting jobs have according to their world sizes; a job without a reported
    /// world size counts as complete.
    pub ranks_expected: u64,
    /// Share of the expected ranks that reported, 0 to 1; null when none reported.
    pub coverage: Option<f64>,
    /// Seconds between the last event and the end of the window, or now if that is earlier; null
    /// without events.
    pub last_event_age_s: Option<f64>,
    /// True when enough ranks reported for a comparison.
    pub quorum_met: bool,
    /// Caveats about the answer and what to do about them; null when there are none.
    pub note: Option<String>,
}

impl DataQuality {
    /// Adds a caveat.
    pub(crate) fn add_note(&mut self, note: Option<String>) {
        let notes: Vec<String> = [self.note.take(), note].into_iter().flatten().collect();
        self.note = (!notes.is_empty()).then(|| notes.join("; "));
    }
}

/// Ranks that reported in a window.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Presence {
    rows: Vec<Coverage>,
    /// First and last event of each rank, on whatever nodes it ran.
    ranks: BTreeMap<(JobKey, Rank), (Nanos, Nanos)>,
    world_sizes: BTreeMap<JobKey, u32>,
    span: Option<(Nanos, Nanos)>,
    /// Latest origin of each rank, with the time of its last event.
    origins: BTreeMap<(JobKey, Rank), (Nanos, Arc<Origin>)>,
    has_host_evidence: bool,
}

/// A job of a cluster.
pub type JobKey = (ClusterId, Option<JobId>);

/// A rank on a node of a cluster.
type Place<'a> = (&'a ClusterId, &'a NodeId, Rank);

fn place(row: &Coverage) -> Option<Place<'_>> {
    let origin = &row.origin;
    Some((&origin.cluster, &origin.node, origin.rank?.rank()))
}

/// Job that each rank reports. Before its first communicator a rank knows its number and not its job.
fn jobs(rows: &[Coverage]) -> BTreeMap<Place<'_>, &JobId> {
    let known = rows
        .iter()
        .filter_map(|row| Some((place(row)?, row.origin.job.as_ref()?)));
    known.collect()
}

fn job_of(row: &Coverage, known: &BTreeMap<Place<'_>, &JobId>) -> JobKey {
    let job = row.origin.job.as_ref();
    let job = job.or_else(|| known.get(&place(row)?).copied());
    (row.origin.cluster.clone(), job.cloned())
}

/// Numbers of ranks over all jobs of a [`Presence`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RankCounts {
    /// Ranks that reported.
    reporting: u64,
    /// Ranks that the jobs have by their world sizes.
    expected: u64,
}

impl Presence {
    /// Loads the presence from the store.
    pub async fn load(
        context: &ToolContext,
        cluster: Option<&ClusterId>,
        window: Window,
    ) -> Result<Self, ToolError> {
        let rows = context.store.coverage(cluster, window).await?;
        Ok(Self::from_rows(rows))
    }

    /// Builds the presence from coverage rows.
    pub fn from_rows(rows: Vec<Coverage>) -> Self {
        let mut presence = Self::default();
        let wider =
            |span: (Nanos, Nanos), row: &Coverage| (span.0.min(row.first), span.1.max(row.last));
        let jobs = jobs(&rows);
        for row in &rows {
            presence.span = Some(wider(presence.span.unwrap_or((row.first, row.last)), row));
            let Some(rank) = row.origin.rank else {
                continue;
            };
            presence.has_host_evidence |= row.has_host_evidence;
            let job = job_of(row, &jobs);
            let latest = (row.last, Arc::clone(&row.origin));
            let known = presence.origins.entry((job.clone(), rank.rank()));
            let known = known.or_insert_with(|| latest.clone());
            *known = latest.max(known.clone());
            if let Some(size) = rank.world_size() {
                let known = presence.world_sizes.entry(job.clone()).or_default();
                *known = size.max(*known);
            }
            let key = (job, rank.rank());
            let span = presence.ranks.entry(key).or_insert((row.first, row.last));
            *span = wider(*span, row);
        }
        presence.rows = rows;
        presence
    }

    /// Restricts the presence to ranks that reported at `start` or later, and to the time from then
    /// on.
    #[must_use]
    pub fn since(&self, start: Nanos) -> Self {
        let rows = self.rows.iter().filter(|row| start <= row.last);
        let rows = rows.map(|row| Coverage {
            first: row.first.max(start),
            ..row.clone()
        });
        Self::from_rows(rows.collect())
    }

    /// First and last event time.
    pub const fn span(&self) -> Option<(Nanos, Nanos)> {
        self.span
    }

    /// Latest origin of a rank; `None` when it did not report.
    pub fn origin_of(
        &self,
        cluster: &ClusterId,
        job: Option<&JobId>,
        rank: Rank,
    ) -> Option<&Arc<Origin>> {
        let job = (cluster.clone(), job.cloned());
        self.origins.get(&(job, rank)).map(|(_, origin)| origin)
    }

    /// Latest origin of every rank that reported.
    pub fn ranks(&self) -> impl Iterator<Item = &Arc<Origin>> {
        self.origins.values().map(|(_, origin)| origin)
    }

    /// Origins of the ranks that reported: one per job, node and rank, so a rank that moved to
    /// another node has several.
    pub fn reporting_ranks(&self) -> impl Iterator<Item = &Arc<Origin>> {
        let origins = self.rows.iter().map(|row| &row.origin);
        origins.filter(|origin| origin.rank.is_some())
    }

    /// Origins of all reporters, with or without a rank.
    pub fn origins(&self) -> impl Iterator<Item = &Arc<Origin>> {
        self.rows.iter().map(|row| &row.origin)
    }

    /// Everything that reported, one row per job, node and rank, with its job.
    pub(crate) fn rows_by_job(&self) -> impl Iterator<Item = (JobKey, &Coverage)> {
        let known = jobs(&self.rows);
        let rows = self.rows.iter();
        rows.map(move |row| (job_of(row, &known), row))
    }

    /// Origins of all reporters with the time of the last event of each.
    pub fn last_events(&self) -> impl Iterator<Item = (&Arc<Origin>, Nanos)> {
        self.rows.iter().map(|row| (&row.origin, row.last))
    }

    /// True when the rank reported, in any job.
    pub fn has_rank(&self, rank: Rank) -> bool {
        self.origins.keys().any(|(_, known)| *known == rank)
    }

    /// Describes the ranks that reported, for an error.
    pub fn describe_ranks(&self) -> String {
        let first = self.origins.keys().map(|(_, rank)| rank).min();
        let last = self.origins.keys().map(|(_, rank)| rank).max();
        let jobs = self.ranks().map(|origin| origin.job.as_ref());
        let jobs: BTreeSet<&str> = jobs.map(job_name).collect();
        let jobs: Vec<&str> = jobs.into_iter().take(8).collect();
        match first.zip(last) {
            Some((first, last)) => {
                format!("ranks {first} to {last} did, of job {}", jobs.join(", "))
            }
            None => "no rank did; use window=all".to_owned(),
        }
    }

    /// True when host evidence was reported.
    pub const fn has_host_evidence(&self) -> bool {
        self.has_host_evidence
    }

    /// GPU time from each rank's first to its last event, one GPU per rank.
    pub fn allocated(&self) -> GpuTime {
        let seen = self.ranks.values();
        seen.map(|(first, last)| GpuTime::from_millis(last.millis_since(*first)))
            .sum()
    }

    /// Each job alone.
    pub fn by_job(&self) -> BTreeMap<JobKey, Self> {
        let mut jobs: BTreeMap<JobKey, Vec<Coverage>> = BTreeMap::new();
        let known = self::jobs(&self.rows);
        for row in self.rows.iter().filter(|row| row.origin.rank.is_some()) {
            jobs.entry(job_of(row, &known))
                .or_default()
                .push(row.clone());
        }
        let presence = |(job, rows)| (job, Self::from_rows(rows));
        jobs.into_iter().map(presence).collect()
    }

    /// One job alone, by the events that name it: those of processes before they know their job are left
    /// out.
    #[must_use]
    pub fn of_job(&self, (cluster, job): &JobKey) -> Self {
        let is_own = |row: &&Coverage| row.origin.cluster == *cluster && row.origin.job == *job;
        Self::from_rows(self.rows.iter().filter(is_own).cloned().collect())
    }

    /// First and last event of each rank, by the clocks of its hosts.
    pub fn spans(&self) -> impl Iterator<Item = (Nanos, Nanos)> {
        self.ranks.values().copied()
    }

    /// Share of the expected ranks that reported; `None` when none did.
    #[expect(
        clippy::cast_precision_loss,
        reason = "the number of ranks is far below 2^53"
    )]
    pub fn coverage(&self) -> Option<f64> {
        let n_ranks = self.rank_counts();
        (n_ranks.reporting > 0)
            .then(|| (n_ranks.reporting as f64 / n_ranks.expected as f64).min(1.0))
    }

    /// Data quality as reported in answers; `window` is the requested window.
    pub fn quality(&self, context: &ToolContext, window: Window) -> DataQuality {
        let n_ranks = self.rank_counts();
        let end = window.to().min(context.clock.now());
        let age_s = |last: Nanos| (end.millis_since(last) / 1e3).max(0.0);
        let coverage = self.coverage();
        DataQuality {
            ranks_reporting: n_ranks.reporting,
            ranks_expected: n_ranks.expected,
            coverage,
            last_event_age_s: self.span.map(|(_, last)| age_s(last)),
            quorum_met: n_ranks.reporting >= 2
                && coverage.is_some_and(|coverage| coverage >= context.limits.min_coverage),
            note: None,
        }
    }

    fn rank_counts(&self) -> RankCounts {
        let mut jobs: BTreeMap<&JobKey, BTreeSet<Rank>> = BTreeMap::new();
        for (job, rank) in self.ranks.keys() {
            jobs.entry(job).or_default().insert(*rank);
        }
        let count = |ranks: &BTreeSet<Rank>| u64::try_from(ranks.len()).unwrap_or(u64::MAX);
        let reporting = jobs.values().map(count).sum();
        let expected = jobs
            .iter()
            .map(|(job, ranks)| {
                self.world_sizes
                    .get(job)
                    .map_or(0, |size| u64::from(*size))
                    .max(count(ranks))
            })
            .sum();
        RankCounts {
            reporting,
            expected,
        }
    }
}

/// Name of a job; a placeholder for ranks without a job.
pub(super) fn job_name(job: Option<&JobId>) -> &str {
    job.map_or("(no job)", JobId::as_str)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use echo_core::model::event::Origin;
    use echo_store::{Activity, Coverage};

    use super::Presence;
    use crate::fixture::{at, origin};

    fn row(origin: Origin, (first, last): (i64, i64)) -> Coverage {
        Coverage {
            origin: Arc::new(origin),
            first: at(first),
            last: at(last),
            has_host_evidence: false,
            activity: Activity::default(),
        }
    }

    #[test]
    fn ranks_that_report_before_their_job_is_known_count_once() {
        let early = |rank| Origin {
            job: None,
            ..Origin::clone(&origin(rank))
        };
        let rows = (0..4).flat_map(|rank| {
            let later = Origin::clone(&origin(rank));
            [row(early(rank), (0, 5)), row(later, (6, 60))]
        });
        let counts = Presence::from_rows(rows.collect()).rank_counts();
        assert_eq!((counts.reporting, counts.expected), (4, 4));
    }
}
