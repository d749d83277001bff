//! Tracker of one cohort's incidents: raises them from diagnoses, updates them, and clears them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use echo_core::ids::Rank;
use echo_core::model::detector_output::{
    Baseline, DetectorOutput, Finding, Incident, IncidentState, Signal,
};

use crate::assembly::{CohortBlock, CohortKey};
use crate::finding::{Diagnosis, Subject};
use crate::incident::{OpenIncident, is_recurrence};
use crate::loss_accounting::LossCause;
use crate::pace::shift::ShiftEvidence;
use crate::settings::Settings;
use crate::verdict::WindowKind;
use crate::window::{Affected, BlockWindow};

/// Consecutive unaffected blocks that end the search for the start: intermittent faults pause.
const ONSET_PAUSE: usize = 3;

/// Maximum number of cleared incidents kept, because they may come back.
const MAX_CLEARED: usize = 1_024;

/// Incidents of one cohort.
#[derive(Debug, Clone, Default)]
pub struct IncidentTracker {
    streaks: BTreeMap<Subject, u32>,
    open: BTreeMap<Subject, OpenIncident>,
    cleared: BTreeMap<Subject, Incident>,
}

/// Context in which diagnoses are evaluated.
#[derive(Debug, Clone, Copy)]
pub struct TrackerContext<'a> {
    /// The cohort.
    pub key: &'a CohortKey,
    /// Its blocks, oldest first.
    pub blocks: &'a VecDeque<CohortBlock>,
    /// Signal from which lags are measured.
    pub signal: Signal,
    /// Healthy duration of an iteration, milliseconds, when known.
    pub healthy_ms: Option<f64>,
    /// Ranks that are late because they wait for a rank of this cohort.
    pub victims: &'a BTreeSet<Rank>,
    /// True if another cohort of the job shows why it is slow.
    pub is_explained: bool,
    /// Shift evidence of the ranks while the job is slower than when it was healthy.
    pub shift_evidence: Option<&'a ShiftEvidence>,
    /// Gates.
    pub settings: &'a Settings,
}

impl IncidentTracker {
    /// Returns true if there is no open incident and no running streak.
    pub fn is_clean(&self) -> bool {
        self.open.is_empty() && self.streaks.is_empty()
    }

    /// Returns true if no incident is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns true if an open incident explains why a job is slow.
    pub fn explains(&self) -> bool {
        let is_cause = |subject: &Subject| matches!(subject, Subject::Rank(_) | Subject::Network);
        self.open.keys().any(is_cause)
    }

    /// Returns true if an incident about the subject is open.
    pub fn is_open(&self, subject: Subject) -> bool {
        self.open.contains_key(&subject)
    }

    /// Open incidents that the loss of the job can be attributed to: the late ranks, or the
    /// condition where there are none. Nothing is attributed to structural properties of the job.
    pub fn loss_causes(&self, key: &CohortKey) -> Vec<LossCause> {
        let causes = |(subject, open): (&Subject, &OpenIncident)| LossCause {
            incident: open.incident.id,
            role: key.role,
            rank: match subject {
                Subject::Rank(rank) => Some(*rank),
                _ => None,
            },
            // A rank that is on time again is no cause any more, although its incident stays open
            // for some evaluations.
            lag_ms: open
                .incident
                .culprit_lag_ms()
                .filter(|_| open.calm == 0)
                .unwrap_or(0.0),
            period_ms: open.incident.period_ms,
            baseline: open.incident.baseline,
            first_iteration: open.incident.first_iteration,
        };
        let faults = || {
            self.open
                .iter()
                .filter(|(subject, _)| !subject.is_structural())
                .map(causes)
        };
        let ranks: Vec<LossCause> = faults().filter(|cause| cause.rank.is_some()).collect();
        if ranks.is_empty() {
            faults().next_back().into_iter().collect()
        } else {
            ranks
        }
    }

    /// Resets the streaks.
    pub fn reset_streaks(&mut self) {
        self.streaks.clear();
    }

    /// Ranks of open incidents.
    pub fn named_ranks(&self) -> Vec<Rank> {
        let ranks = self.open.keys().filter_map(|subject| match subject {
            Subject::Rank(rank) => Some(*rank),
            _ => None,
        });
        ranks.collect()
    }

    /// Restores incidents of an earlier detector, replacing those found while their blocks were
    /// replayed.
    pub fn restore(&mut self, known: Vec<(Subject, Incident)>, now: &CohortBlock) {
        let found = std::mem::take(&mut self.open);
        self.cleared.clear();
        for (subject, incident) in known {
            if incident.state == IncidentState::Open {
                let mut open = OpenIncident::resume(incident, now);
                if let Some(found) = found.get(&subject) {
                    (open.calm, open.window_kind) = (found.calm, found.window_kind);
                }
                self.open.insert(subject, open);
            } else {
                self.cleared.insert(subject, incident);
            }
        }
    }

    /// Updates open incidents with the latest block, and clears the ones that ended. Returns true
    /// if one was cleared.
    pub fn follow(
        &mut self,
        context: &TrackerContext<'_>,
        diagnoses: &[Diagnosis],
    ) -> (DetectorOutput, bool) {
        let mut output = DetectorOutput::default();
        let Some(block) = context.blocks.back() else {
            return (output, false);
        };
        let mut ended = Vec::new();
        for (subject, open) in &mut self.open {
            let diagnosis = diagnoses
                .iter()
                .find(|diagnosis| diagnosis.subject == *subject);
            update_open(open, *subject, diagnosis, context);
            let is_explained = context.is_explained && subject.is_unexplained();
            if open.calm >= context.settings.clear_after || is_explained {
                ended.push(*subject);
            } else {
                output.incidents.push(open.incident.clone());
            }
        }
        for subject in &ended {
            output.incidents.extend(self.clear(*subject, block));
        }
        (output, !ended.is_empty())
    }

    fn clear(&mut self, subject: Subject, now: &CohortBlock) -> Option<Incident> {
        let cleared = self.open.remove(&subject)?.clear(now);
        self.cleared.insert(subject, cleared.clone());
        if self.cleared.len() > MAX_CLEARED {
            self.cleared.pop_first();
        }
        Some(cleared)
    }

    /// Clears open incidents, because the job does not report any more.
    pub fn end(&mut self, now: Option<&CohortBlock>) -> DetectorOutput {
        let mut output = DetectorOutput::default();
        while let Some((subject, now)) = self.open.keys().next().copied().zip(now) {
            output.incidents.extend(self.clear(subject, now));
        }
        output
    }

    /// Counts diagnoses, and raises those that persist or are too severe to wait.
    pub fn raise(
        &mut self,
        context: &TrackerContext<'_>,
        diagnoses: &[Diagnosis],
    ) -> DetectorOutput {
        self.streaks.retain(|subject, _| {
            diagnoses
                .iter()
                .any(|diagnosis| diagnosis.subject == *subject)
        });
        let mut output = DetectorOutput::default();
        let Some(now) = context.blocks.back() else {
            return output;
        };
        for diagnosis in diagnoses {
            let streak = self.streaks.entry(diagnosis.subject).or_default();
            *streak += 1;
            // A late rank shows one evaluation later than the damage, and a named rank is better
            // than an unexplained slowdown.
            let extra_evaluations = u32::from(diagnosis.subject.is_unexplained());
            // A diagnosis that has persisted is raised without further waiting.
            let is_due = *streak >= context.settings.raise_after + extra_evaluations
                || diagnosis.is_provisional
                || diagnosis.window_kind == WindowKind::SinceSlow;
            if !is_due || self.open.contains_key(&diagnosis.subject) {
                continue;
            }
            if !self.is_news(diagnosis.subject) {
                continue;
            }
            // The cause of an unexplained slowdown is known now.
            let is_explained = |subject: &Subject| match diagnosis.subject {
                Subject::Rank(_) => !matches!(subject, Subject::Rank(_)),
                _ => subject.is_unexplained() && !diagnosis.subject.is_structural(),
            };
            while let Some(explained) = self.open.keys().copied().find(is_explained) {
                output.incidents.extend(self.clear(explained, now));
            }
            output.append(self.open_incident(context, diagnosis));
        }
        output
    }

    /// Returns true if a diagnosis adds to the open incidents: a rank always does, an unexplained
    /// slowdown only if nothing is open, anything else unless a rank explains the damage already.
    /// Structural properties of the job are independent of the rest.
    fn is_news(&self, subject: Subject) -> bool {
        let names_a_rank = |subject: &Subject| matches!(subject, Subject::Rank(_));
        if names_a_rank(&subject) || subject.is_structural() {
            return true;
        }
        if subject.is_unexplained() {
            return self.open.is_empty();
        }
        !self.open.keys().any(names_a_rank)
    }

    fn open_incident(
        &mut self,
        context: &TrackerContext<'_>,
        diagnosis: &Diagnosis,
    ) -> DetectorOutput {
        let mut output = DetectorOutput::default();
        let history = || {
            context
                .healthy_ms
                .map(|period_ms| Baseline::History { period_ms })
        };
        let Some((baseline, now)) = diagnosis
            .baseline
            .or_else(history)
            .zip(context.blocks.back())
        else {
            return output;
        };
        let test = affected(context, diagnosis.subject, &diagnosis.finding, baseline);
        let began_at = |since: f64| {
            let begins = |block: &CohortBlock| block.first_iteration() >= since;
            let last = context.blocks.len().saturating_sub(1);
            context.blocks.iter().position(begins).unwrap_or(last)
        };
        let onset = diagnosis
            .since
            .map_or_else(|| onset(context.blocks, &test), began_at);
        let Some(first) = context.blocks.get(onset) else {
            return output;
        };
        let reopen_within_ms = context.settings.reopen_within_ms;
        let mut open = match self.cleared.remove(&diagnosis.subject) {
            Some(cleared) if is_recurrence(&cleared, first.time.from(), reopen_within_ms) => {
                OpenIncident::reopen(cleared, diagnosis, now)
            }
            _ => OpenIncident::raise(context.key, diagnosis, baseline, first, now),
        };
        open.add_victims(context.victims);
        for block in context.blocks.iter().skip(onset) {
            if diagnosis.since.is_some() || test.holds(&[block]) == Some(true) {
                open.mark_affected(block, test.lag_ms(&[block]));
            } else {
                open.mark_unaffected();
            }
        }
        output.incidents.push(open.incident.clone());
        self.open.insert(diagnosis.subject, open);
        output
    }
}

fn affected<'a>(
    context: &TrackerContext<'a>,
    subject: Subject,
    finding: &Finding,
    baseline: Baseline,
) -> Affected<'a> {
    // An incident is cleared by the signal that raised it: another signal may not show the fault.
    let signal = match finding {
        Finding::Culprit(culprit) => culprit.signal,
        Finding::Condition(_) => context.signal,
    };
    Affected {
        signal,
        subject,
        healthy_ms: baseline.period_ms(),
        settings: context.settings,
    }
}

/// Updates one open incident with the latest block.
fn update_open(
    open: &mut OpenIncident,
    subject: Subject,
    diagnosis: Option<&Diagnosis>,
    context: &TrackerContext<'_>,
) {
    let Some(block) = context.blocks.back() else {
        return;
    };
    let iterations = match open.window_kind {
        WindowKind::Short => context.settings.window_iterations / 2.0,
        WindowKind::Long | WindowKind::SinceSlow => context.settings.long_window_iterations,
    };
    let recent = BlockWindow::latest(context.blocks, iterations, 1);
    if let Some(diagnosis) = diagnosis {
        open.strengthen(diagnosis);
        open.refine(diagnosis.baseline);
    }
    open.add_victims(context.victims);
    let incident = &open.incident;
    let test = affected(context, subject, &incident.finding, incident.baseline);
    let is_there = if subject.is_structural() {
        Some(diagnosis.is_some())
    } else if open.window_kind == WindowKind::SinceSlow {
        Some(is_still_slow(subject, context))
    } else {
        test.holds(&recent.blocks)
    };
    let shows = if subject.is_structural() || open.window_kind == WindowKind::SinceSlow {
        is_there
    } else {
        test.holds(&[block])
    };
    if shows == Some(true) {
        open.mark_affected(block, test.lag_ms(&[block]));
    } else {
        open.mark_unaffected();
    }
    open.calm = match is_there {
        Some(true) => 0,
        Some(false) => open.calm + 1,
        // A rank that has fallen silent has not recovered.
        None => open.calm,
    };
}

/// Returns true if the job is still slow and, if the subject is a rank, still because of that rank.
fn is_still_slow(subject: Subject, context: &TrackerContext<'_>) -> bool {
    context
        .shift_evidence
        .is_some_and(|shift_evidence| match subject {
            Subject::Rank(rank) => shift_evidence.supports(rank),
            _ => true,
        })
}

/// Index of the first block of the latest run of affected blocks, pauses included.
fn onset(blocks: &VecDeque<CohortBlock>, test: &Affected<'_>) -> usize {
    let mut onset = blocks.len().saturating_sub(1);
    let mut pause = 0;
    for (index, block) in blocks.iter().enumerate().rev() {
        if test.holds(&[block]) == Some(true) {
            (onset, pause) = (index, 0);
        } else {
            pause += 1;
        }
        if pause >= ONSET_PAUSE {
            break;
        }
    }
    onset
}
