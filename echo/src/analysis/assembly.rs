//! Lines up what the ranks of a cohort report about the same operations.
//!
//! A cohort is the ranks of one job that do the same in every iteration (the same role). Blocks are identified by
//! sequence numbers, never by time, so neither skewed clocks nor the order or speed of arrival change what is
//! compared. A block is closed once every rank of the role has reported it or a later one; a rank that stays
//! silent is given up after a while.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use fleet_proto::metric;

use crate::ids::{ClusterId, CommId, JobId, Rank, RoleId};
use crate::model::event::{Anchor, Block, Event, Origin, Reading, SeqRange, StoredEvent, Summary};
use crate::stats::median;
use crate::units::{Nanos, Window};

/// Blocks that a cohort may hold open before the oldest is closed with whoever reported it.
const MAX_OPEN_BLOCKS: usize = 4_096;

/// The ranks that are compared: those of one job with one role.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CohortKey {
    /// Cluster.
    pub cluster: ClusterId,
    /// Job, when the agents know it.
    pub job: Option<JobId>,
    /// Role of the ranks.
    pub role: RoleId,
}

impl fmt::Display for CohortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.job {
            Some(job) => write!(f, "{job}/{}", self.role),
            None => write!(f, "-/{}", self.role),
        }
    }
}

/// One block of a cohort, as far as its ranks reported it.
#[derive(Debug, Clone, PartialEq)]
pub struct CohortBlock {
    /// Operations covered.
    pub seqs: SeqRange,
    /// Iterations covered.
    pub iterations: f64,
    /// Median of the ranks' own event times.
    pub time: Window,
    /// The ranks that reported it, in the order of their ranks.
    pub members: Vec<Member>,
    /// Ranks that the cohort should have.
    pub n_expected: usize,
    /// Duration of an iteration at the end of the block, when a completion fell into it.
    pub period: Option<PeriodReading>,
}

/// What one rank reported about one block.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Rank within the job.
    pub rank: Rank,
    /// Who it is.
    pub origin: Arc<Origin>,
    /// Host gaps, milliseconds.
    pub gap: Option<Summary>,
    /// Times blocked, milliseconds.
    pub blocked: Option<Summary>,
    /// Mean entry of the block's operations.
    pub arrival: Option<MeanArrival>,
}

/// When the operations of a block were entered, on a clock that starts at a common completion.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanArrival {
    /// Operation whose completion starts the clock.
    pub anchor_seq: u64,
    /// Mean entry, milliseconds after that completion.
    pub mean_ms: f64,
}

/// Duration of an iteration, measured between two completions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PeriodReading {
    /// Mean duration of one iteration, milliseconds.
    pub ms: f64,
    /// Iterations between the completions.
    pub iterations: f64,
    /// The completions.
    pub interval: Window,
}

/// Collects events until blocks are complete.
#[derive(Debug, Default)]
pub struct Assembly {
    jobs: BTreeMap<(ClusterId, Option<JobId>), Job>,
    late: u64,
}

#[derive(Debug, Default)]
struct Job {
    world_size: usize,
    first_received: Option<Nanos>,
    last_received: Nanos,
    roles: BTreeMap<Rank, RoleId>,
    heard: BTreeMap<Rank, Nanos>,
    cohorts: BTreeMap<RoleId, Cohort>,
}

#[derive(Debug, Default)]
struct Cohort {
    /// Communicator whose blocks each rank reports.
    comms: BTreeMap<Rank, CommId>,
    open: BTreeMap<SeqRange, BTreeMap<Rank, Report>>,
    periods: BTreeMap<Rank, BTreeMap<u64, PeriodReading>>,
    reached: BTreeMap<Rank, u64>,
    closed_through: Option<u64>,
}

#[derive(Debug, Clone)]
struct Report {
    origin: Arc<Origin>,
    start: Nanos,
    end: Nanos,
    iterations: Option<f64>,
    gap: Option<Summary>,
    blocked: Option<Summary>,
    arrival: Option<MeanArrival>,
}

impl Assembly {
    /// Takes an event; points that say nothing about blocks are passed over.
    pub fn add(&mut self, stored: &StoredEvent) {
        let event = &stored.event;
        let Some((block, rank, role)) = judged(event) else {
            return;
        };
        let job = self
            .jobs
            .entry((event.origin.cluster.clone(), event.origin.job.clone()))
            .or_default();
        job.hear(stored, rank, role);
        if !job.cohorts.entry(role).or_default().add(event, block, rank) {
            self.late += 1;
        }
    }

    /// Blocks that are complete by now, oldest first within each cohort. Ranks that were silent for longer than
    /// `silence_ms` of arrival time are no longer waited for.
    pub fn closed(&mut self, silence_ms: f64) -> Vec<(CohortKey, CohortBlock)> {
        let mut closed = Vec::new();
        for ((cluster, job_id), job) in &mut self.jobs {
            let Some(talking) = job.waited_for(silence_ms) else {
                continue;
            };
            let n_roles = job.roles.values().collect::<BTreeSet<_>>().len();
            for (role, cohort) in &mut job.cohorts {
                let of_role = |rank: &&Rank| job.roles.get(rank) == Some(role);
                let members: BTreeSet<Rank> = talking.iter().filter(of_role).copied().collect();
                let known = job.roles.values().filter(|known| *known == role).count();
                let n_expected = if n_roles == 1 {
                    job.world_size.max(known)
                } else {
                    known
                };
                let key = CohortKey {
                    cluster: cluster.clone(),
                    job: job_id.clone(),
                    role: *role,
                };
                while let Some(block) = cohort.close_next(&members, n_expected) {
                    closed.push((key.clone(), block));
                }
            }
        }
        closed
    }

    /// Forgets the jobs that were last heard more than `end_after_ms` before `now`, and names them.
    pub fn take_ended(
        &mut self,
        now: Nanos,
        end_after_ms: f64,
    ) -> BTreeSet<(ClusterId, Option<JobId>)> {
        let is_ended = |job: &Job| now.millis_since(job.last_received) > end_after_ms;
        let ended = self.jobs.iter().filter(|(_, job)| is_ended(job));
        let ended: BTreeSet<_> = ended.map(|(key, _)| key.clone()).collect();
        self.jobs.retain(|key, _| !ended.contains(key));
        ended
    }

    /// Points that came after their block had been closed.
    pub const fn late(&self) -> u64 {
        self.late
    }
}

/// The block, rank and role of an event that the detector judges.
fn judged(event: &Event) -> Option<(&Block, Rank, RoleId)> {
    let signals = [
        metric::HOST_GAP,
        metric::BLOCKED,
        metric::PERIOD,
        metric::ARRIVAL,
    ];
    let block = event
        .block
        .as_ref()
        .filter(|_| signals.contains(&event.metric.as_str()))?;
    Some((block, event.origin.rank?.rank(), block.role?))
}

impl Job {
    fn hear(&mut self, stored: &StoredEvent, rank: Rank, role: RoleId) {
        self.first_received.get_or_insert(stored.received);
        self.last_received = self.last_received.max(stored.received);
        self.roles.insert(rank, role);
        self.heard.insert(rank, stored.received);
        let size = stored
            .event
            .origin
            .rank
            .and_then(crate::ids::RankOf::world_size);
        self.world_size = self
            .world_size
            .max(size.and_then(|n| usize::try_from(n).ok()).unwrap_or(0));
    }

    /// Ranks that blocks wait for. Nothing until every rank of the world has spoken, or has had its time to: which
    /// ranks make up a cohort must not depend on who spoke first.
    fn waited_for(&self, silence_ms: f64) -> Option<BTreeSet<Rank>> {
        let is_silent = |instant: Nanos| self.last_received.millis_since(instant) > silence_ms;
        let everybody_spoke = self.heard.len() >= self.world_size;
        let had_time = self.first_received.is_some_and(is_silent);
        let talking = self.heard.iter().filter(|(_, at)| !is_silent(**at));
        (everybody_spoke || had_time).then(|| talking.map(|(rank, _)| *rank).collect())
    }
}

impl Cohort {
    /// Files the event; false when its block has been closed already.
    fn add(&mut self, event: &Event, block: &Block, rank: Rank) -> bool {
        let comm = self.comms.insert(rank, block.comm);
        if comm.is_some_and(|comm| comm != block.comm) {
            // The job has started anew under its old name, and its sequence numbers with it.
            let comms = std::mem::take(&mut self.comms);
            *self = Self {
                comms,
                ..Self::default()
            };
        }

        let Some(seqs) = block.seqs else {
            return true;
        };
        if event.metric.as_str() == metric::PERIOD {
            self.add_period(event, block, seqs, rank);
            return true;
        }
        if self.closed_through.is_some_and(|last| seqs.first() <= last) {
            return false;
        }
        let Reading::Histogram(summary) = event.reading else {
            return true;
        };
        let report = self
            .open
            .entry(seqs)
            .or_default()
            .entry(rank)
            .or_insert_with(|| Report {
                origin: Arc::clone(&event.origin),
                start: event.start.unwrap_or(event.timestamp),
                end: event.timestamp,
                iterations: None,
                gap: None,
                blocked: None,
                arrival: None,
            });
        report.iterations = block.iterations.or(report.iterations);
        match event.metric.as_str() {
            metric::HOST_GAP => report.gap = Some(summary),
            metric::BLOCKED => report.blocked = Some(summary),
            metric::ARRIVAL => {
                report.arrival = mean_arrival(summary, block.anchor);
                // Agents send the arrivals of a block last, so this rank has said all about it.
                let reached = self.reached.entry(rank).or_default();
                *reached = (*reached).max(seqs.last() + 1);
            }
            _ => {}
        }
        true
    }

    fn add_period(&mut self, event: &Event, block: &Block, seqs: SeqRange, rank: Rank) {
        let ms = match event.reading {
            Reading::Double(ms) => ms,
            #[expect(clippy::cast_precision_loss, reason = "milliseconds far below 2^53")]
            Reading::Int(ms) => ms as f64,
            Reading::Histogram(_) => return,
        };
        let interval = event
            .start
            .and_then(|start| Window::new(start, event.timestamp));
        if let (Some(interval), Some(iterations)) = (interval, block.iterations) {
            let reading = PeriodReading {
                ms,
                iterations,
                interval,
            };
            self.periods
                .entry(rank)
                .or_default()
                .insert(seqs.last(), reading);
        }
    }

    /// Takes out the oldest block if every one of `members` has reported it or a later one. Blocks that cover no
    /// iteration are passed over.
    fn close_next(&mut self, members: &BTreeSet<Rank>, n_expected: usize) -> Option<CohortBlock> {
        loop {
            let seqs = *self.open.keys().next()?;
            let has_passed = |rank: &Rank| {
                let reached = self.reached.get(rank);
                reached.is_some_and(|next| *next > seqs.last())
            };
            let is_due = !members.is_empty() && members.iter().all(has_passed);
            if !is_due && self.open.len() <= MAX_OPEN_BLOCKS {
                return None;
            }
            let reports = self.open.remove(&seqs)?;
            self.closed_through = self.closed_through.max(Some(seqs.last()));
            let period = self.take_period(seqs);
            if let Some(block) = cohort_block(seqs, reports, n_expected, period) {
                return Some(block);
            }
        }
    }

    /// Median of the ranks' readings whose completion fell into the block.
    fn take_period(&mut self, seqs: SeqRange) -> Option<PeriodReading> {
        let mut readings = Vec::new();
        for periods in self.periods.values_mut() {
            let later = periods.split_off(&(seqs.last() + 1));
            let taken = std::mem::replace(periods, later);
            readings.extend(taken.into_values().next_back());
        }
        let middle =
            |of: fn(&PeriodReading) -> f64| median(&readings.iter().map(of).collect::<Vec<f64>>());
        let from = middle_instant(readings.iter().map(|reading| reading.interval.from()))?;
        let to = middle_instant(readings.iter().map(|reading| reading.interval.to()))?;
        Some(PeriodReading {
            ms: middle(|reading| reading.ms)?,
            iterations: middle(|reading| reading.iterations)?,
            interval: Window::new(from, to)?,
        })
    }
}

fn mean_arrival(summary: Summary, anchor: Option<Anchor>) -> Option<MeanArrival> {
    let anchor = anchor?;
    Some(MeanArrival {
        anchor_seq: anchor.seq,
        mean_ms: anchor.offset_ms + summary.mean()?,
    })
}

fn cohort_block(
    seqs: SeqRange,
    reports: BTreeMap<Rank, Report>,
    n_expected: usize,
    period: Option<PeriodReading>,
) -> Option<CohortBlock> {
    // Blocks off the beaten track, such as an evaluation, cover no iteration and are not compared.
    let known = reports.values().filter_map(|report| report.iterations);
    let iterations = median(&known.collect::<Vec<f64>>()).filter(|known| *known > 0.0)?;
    let from = middle_instant(reports.values().map(|report| report.start))?;
    let to = middle_instant(reports.values().map(|report| report.end))?;
    let time = Window::new(from, to.max(from.offset(1)))?;
    let members = reports
        .into_iter()
        .map(|(rank, report)| Member {
            rank,
            origin: report.origin,
            gap: report.gap,
            blocked: report.blocked,
            arrival: report.arrival,
        })
        .collect();
    Some(CohortBlock {
        seqs,
        iterations,
        time,
        members,
        n_expected,
        period,
    })
}

/// Lower median of instants, exact in nanoseconds.
fn middle_instant(instants: impl Iterator<Item = Nanos>) -> Option<Nanos> {
    let mut sorted: Vec<Nanos> = instants.collect();
    sorted.sort_unstable();
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests;
