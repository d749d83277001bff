//! Incidents about operations that never end.

mod loss;
mod sentence;
mod times;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use echo_core::ids::{CommId, IncidentId, Rank, RoleId};
use echo_core::model::detector_output::{
    Baseline, Condition, ConditionKind, DetectorOutput, Finding, Incident, IncidentState, LostTime,
    Severity,
};
use echo_core::units::{Nanos, Window};

use super::JobKey;
use crate::assembly::CohortKey;
use crate::assembly::progress::Progress;
use crate::hang::{Hang, HangTimeouts, Standstill, hang_of_crash, hangs};
use crate::incident::{abandoned, incident_id};

use loss::lost_time;
use sentence::describe;
use times::HungTimes;

/// Subject in the identifiers of these incidents.
const SUBJECT: &str = "Hang";

/// Confidence of a hang with missing ranks.
const CONFIDENCE: f64 = 0.95;

/// Maximum number of attributed intervals kept for a job.
const MAX_ATTRIBUTED: usize = 16;

/// Retention of attributed spans, milliseconds of arrival time: the block that contains the hang is
/// the next to be closed.
const KEPT_MS: f64 = 60_000.0;

/// Number of ranks that are examined in a job that hangs while no rank is named: two can be compared.
const EXAMINED: usize = 2;

/// Open hangs, one per job.
#[derive(Debug, Default)]
pub(super) struct HangTracker {
    open: BTreeMap<JobKey, OpenHang>,
    /// End of the time attributed for each hanging job, on the clock of the rank that waits
    /// longest.
    attributed_until: BTreeMap<JobKey, Nanos>,
    /// Latest attributed spans of each job.
    attributed: BTreeMap<JobKey, VecDeque<AttributedSpan>>,
    hung: HungTimes,
    /// Time at which the first process of a job that hung has ended.
    given_up: BTreeMap<JobKey, Nanos>,
}

/// Open hang.
#[derive(Debug)]
struct OpenHang {
    /// Communicator that it was first seen in.
    comm: CommId,
    incident: Incident,
    /// Ranks to be examined, since no rank is named.
    examined: Vec<Rank>,
}

impl OpenHang {
    const fn new(comm: CommId, incident: Incident) -> Self {
        Self {
            comm,
            incident,
            examined: Vec::new(),
        }
    }
}

/// Span of time attributed to a hang.
#[derive(Debug)]
struct AttributedSpan {
    ms: f64,
    /// Its end, on the clock of a rank that waited.
    until: Nanos,
    /// Arrival time at which it was attributed.
    at: Nanos,
    /// Latest attributed rows, one for each group of ranks.
    rows: Vec<LostTime>,
    /// Cohorts whose block with the hang has ended.
    ended_in: BTreeSet<RoleId>,
}

/// Duration of a block's operations, milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockTime {
    /// Duration on the slowest rank.
    pub(super) elapsed_ms: f64,
    /// Excess over the healthy duration, when known.
    pub(super) excess_ms: Option<f64>,
}

impl AttributedSpan {
    /// Loss of the same ranks in the rest of the block, which took so many milliseconds.
    fn rest(&self, rest_ms: f64) -> Vec<LostTime> {
        let duration = Duration::try_from_secs_f64(rest_ms / 1e3).unwrap_or_default();
        let Some(interval) = Window::new(self.until, self.until.after(duration)) else {
            return Vec::new();
        };
        let of_group = |row: &LostTime| {
            let times = interval.millis() / row.interval.millis();
            LostTime {
                interval,
                lost_gpu_ms: row.lost_gpu_ms * times,
                peer_wait_gpu_ms: row.peer_wait_gpu_ms.map(|waited| waited * times),
                ..row.clone()
            }
        };
        self.rows.iter().map(of_group).collect()
    }
}

impl HangTracker {
    /// Restores hangs from an earlier detector, replacing those found while their events were
    /// replayed.
    pub(super) fn restore(&mut self, known: BTreeMap<JobKey, (CommId, Incident)>) {
        for (job, (_, incident)) in &known {
            let until = self.attributed_until.entry(job.clone());
            let until = until.or_insert(incident.last_seen);
            *until = (*until).max(incident.last_seen);
            if let Some(time) = Window::new(incident.first_seen, incident.last_seen) {
                self.hung.add(job, time);
            }
        }
        let open = known.into_iter();
        self.open = open
            .map(|(job, (comm, own))| (job, OpenHang::new(comm, own)))
            .collect();
    }

    /// Latest times in which a job hung, on the clock of a rank that waited. Their cost is that of the hang.
    pub(super) fn times(&self, job: &JobKey) -> Vec<Window> {
        self.hung.of(job)
    }

    /// Ranks that a job waits for.
    pub(super) fn missing(&self, job: &JobKey) -> &[Rank] {
        let finding = self.open.get(job).map(|open| &open.incident.finding);
        match finding {
            Some(Finding::Condition(condition)) => &condition.ranks,
            Some(Finding::Culprit(_)) | None => &[],
        }
    }

    /// Ranks of a job to be examined, since it hangs and no rank is named.
    pub(super) fn examined(&self, job: &JobKey) -> &[Rank] {
        self.open.get(job).map_or(&[], |open| &open.examined)
    }

    /// Jobs that wait for ranks or have some examined, each with the time at which their hang was last seen.
    pub(super) fn hanging(&self) -> impl Iterator<Item = (JobKey, Nanos)> {
        let open = self.open.iter();
        let open =
            open.filter(|(job, open)| !self.missing(job).is_empty() || !open.examined.is_empty());
        open.map(|(job, open)| (job.clone(), open.incident.last_seen))
    }

    /// Removes and returns hangs of unknown jobs.
    pub(super) fn take_orphaned(&mut self, has_job: impl Fn(&JobKey) -> bool) -> Vec<Incident> {
        let gone = self.open.extract_if(.., |job, _| !has_job(job));
        gone.map(|(_, open)| open.incident).collect()
    }

    /// Updates hangs from a job's progress at an instant of arrival time.
    pub(super) fn update(
        &mut self,
        job: &JobKey,
        progress: &Progress,
        now: Nanos,
        timeouts: HangTimeouts,
    ) -> DetectorOutput {
        let mut output = DetectorOutput::default();
        let found = match self.crash(job, progress, now) {
            Some(crash) => vec![crash],
            None if progress.is_over() => Vec::new(),
            None => hangs(progress, now, timeouts),
        };
        let known = self.open.remove(job);
        let Some(first) = first(&found, known.as_ref().map(|open| open.comm)) else {
            output
                .incidents
                .extend(known.map(|open| abandoned(open.incident)));
            return output;
        };
        let known = known.map(|open| open.incident);
        let incident = incident(job, first, &found, known.as_ref());
        if known.as_ref() != Some(&incident) {
            output.incidents.push(incident.clone());
        }
        output.lost = self.account_losses(job, progress, (first, &found), (incident.id, now));
        let comm = first.comm;
        let is_nameless = found
            .iter()
            .all(|hang| hang.missing.is_empty() && hang.crash.is_none());
        let examined = first
            .entered
            .iter()
            .take(if is_nameless { EXAMINED } else { 0 });
        let mut hang = OpenHang::new(comm, incident);
        hang.examined.extend(examined);
        self.open.insert(job.clone(), hang);
        output
    }

    /// Returns the hang of a job that has crashed. After a hang, ranks give up or are killed: that is no
    /// crash of its own.
    fn crash(&mut self, job: &JobKey, progress: &Progress, now: Nanos) -> Option<Hang> {
        let first = progress.ended().map(|(_, end)| end.at).min()?;
        if let Some(open) = self.open.get(job)
            && is_hang(&open.incident)
        {
            self.given_up.insert(job.clone(), first);
        }
        if self.given_up.get(job) == Some(&first) {
            return None;
        }
        hang_of_crash(progress, now)
    }

    /// Returns the GPU time lost since the last update. Ranks that wait in one communicator delay
    /// ranks in others, so the loss of all ranks is attributed to the first hang, and counted once.
    fn account_losses(
        &mut self,
        job: &JobKey,
        progress: &Progress,
        (first, found): (&Hang, &[Hang]),
        (incident, now): (IncidentId, Nanos),
    ) -> Vec<LostTime> {
        let until = self.attributed_until.entry(job.clone());
        let until = until.or_insert(first.since);
        let Some(interval) = Window::new((*until).max(first.since), first.last_report) else {
            return Vec::new();
        };
        *until = first.last_report;
        let lost = lost_time(incident, &job.0, interval, progress, found);
        self.hung.add(job, interval);
        self.record(job, interval, &lost, now);
        lost
    }

    /// Records an attributed interval. An interval that begins where the last one ended extends it.
    fn record(&mut self, job: &JobKey, interval: Window, lost: &[LostTime], now: Nanos) {
        let attributed = self.attributed.entry(job.clone()).or_default();
        match attributed
            .back_mut()
            .filter(|last| last.until == interval.from())
        {
            Some(last) => {
                last.ms += interval.millis();
                (last.until, last.at) = (interval.to(), now);
                last.rows = lost.to_vec();
            }
            None => attributed.push_back(AttributedSpan {
                ms: interval.millis(),
                until: interval.to(),
                at: now,
                rows: lost.to_vec(),
                ended_in: BTreeSet::new(),
            }),
        }
        if attributed.len() > MAX_ATTRIBUTED {
            attributed.pop_front();
        }
    }

    /// Loss of the job in the rest of the block that a hang ended in. A hang lies between two
    /// completions, so it is part of one block of each affected cohort: the first one that took as
    /// long. Clocks of ranks are not compared.
    ///
    /// Reports come every few seconds, so losses are attributed to a hang up to its last report.
    /// The rest of the excess duration of its block is attributed here, once.
    pub(super) fn rest_of_hang(
        &mut self,
        job: &JobKey,
        role: RoleId,
        took: BlockTime,
        now: Nanos,
    ) -> Vec<LostTime> {
        let Some(attributed) = self.attributed.get_mut(job) else {
            return Vec::new();
        };
        attributed.retain(|one| now.millis_since(one.at) <= KEPT_MS);
        let mut open = attributed.iter_mut();
        let is_new =
            |one: &&mut AttributedSpan| one.ms <= took.elapsed_ms && !one.ended_in.contains(&role);
        let Some(one) = open.find(is_new) else {
            return Vec::new();
        };
        let is_first = one.ended_in.is_empty();
        one.ended_in.insert(role);
        if !is_first {
            return Vec::new();
        }
        let rest_ms = took.excess_ms.map_or(0.0, |excess_ms| excess_ms - one.ms);
        let lost = one.rest(rest_ms.max(0.0));
        let until = lost.first().map(|row| row.interval.to());
        if let Some((until, known)) = until.zip(self.attributed_until.get_mut(job)) {
            *known = (*known).max(until);
        }
        if let Some(row) = lost.first() {
            self.hung.add(job, row.interval);
        }
        lost
    }

    /// Ends the hangs of a job that does not report any more.
    pub(super) fn end(&mut self, job: &JobKey) -> DetectorOutput {
        self.attributed_until.remove(job);
        self.attributed.remove(job);
        self.hung.remove(job);
        self.given_up.remove(job);
        let mut output = DetectorOutput::default();
        let over = self.open.remove(job);
        output
            .incidents
            .extend(over.map(|open| abandoned(open.incident)));
        output
    }
}

fn is_hang(known: &Incident) -> bool {
    let Finding::Condition(condition) = &known.finding else {
        return false;
    };
    condition.kind == ConditionKind::Hang
}

/// The hang that stands for all of a job: the one of the known communicator, else the one that began
/// first. Ranks that wait in one communicator delay those of others.
fn first(found: &[Hang], known: Option<CommId>) -> Option<&Hang> {
    let is_known = |hang: &&Hang| Some(hang.comm) == known;
    let earliest = || found.iter().min_by_key(|hang| (hang.since, hang.comm));
    found.iter().find(is_known).or_else(earliest)
}

fn incident(job: &JobKey, hang: &Hang, found: &[Hang], known: Option<&Incident>) -> Incident {
    // A hang belongs to a communicator, not to a role: the communicator takes the place of the
    // cohort in the key.
    let cohort = CohortKey {
        cluster: job.0.clone(),
        job: job.1.clone(),
        role: RoleId::new(hang.comm.value()),
    };
    let missing: BTreeSet<Rank> = found.iter().flat_map(|one| &one.missing).copied().collect();
    let elsewhere = missing.iter().filter(|rank| !hang.missing.contains(rank));
    let detail = describe(hang, &elsewhere.copied().collect::<Vec<_>>());
    let is_stall = found.iter().all(|one| one.is_stall);
    let kind = match &hang.crash {
        Some(_) => ConditionKind::Crash,
        None if is_stall => ConditionKind::Stall,
        None => ConditionKind::Hang,
    };
    Incident {
        id: known.map_or_else(|| incident_id(&cohort, SUBJECT, hang.seq), |known| known.id),
        cluster: job.0.clone(),
        job: job.1.clone(),
        cohort: Arc::from(cohort.to_string()),
        finding: Finding::Condition(Condition {
            ranks: missing.into_iter().collect(),
            is_standstill: hang.standstill.is_some(),
            is_explained: hang.standstill != Some(Standstill::Unexplained),
            detail: detail.clone(),
            ..Condition::new(kind)
        }),
        state: IncidentState::Open,
        first_seen: known.map_or(hang.since, |known| known.first_seen.min(hang.since)),
        last_seen: hang.last_report.max(hang.since),
        raised_at: known.map_or_else(|| hang.last_report.max(hang.since), |known| known.raised_at),
        first_iteration: 0.0,
        raised_iteration: 0.0,
        cleared_iteration: None,
        cleared_at: None,
        is_provisional: is_stall,
        severity: Severity::Critical,
        stability: 1.0,
        occurrences: 1,
        effect_ratio: 0.0,
        period_ms: 0.0,
        // No iteration ends, so none can be compared: all elapsed time is lost.
        baseline: Baseline::None { period_ms: 0.0 },
        confidence: CONFIDENCE,
        reason: detail,
        inputs: None,
    }
}
