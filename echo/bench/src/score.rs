//! Scores of a method, event by event.
//!
//! An event is found when an alert about the right rank (or with the right condition) is raised
//! between its start and [`SLACK`] steps after its end. Every other alert is false, with two
//! exceptions: a repeated alert about a found event, and a condition while another fault is active.
//! The latter names no rank; unless it is `inconclusive`, it counts as a wrong kind.

use std::collections::BTreeMap;

use echo_core::model::detector_output::{CauseClass, ConditionKind};

use super::alert::{Alert, Subject};
use super::case::Case;
use super::fault::{Expected, Fault};

/// Steps after the end of an event in which an alert may still be about it.
const SLACK: u32 = 32;

/// Counts of right and wrong alerts, summed over jobs.
#[derive(Debug, Clone, Default)]
pub struct Score {
    /// Events.
    pub events: u32,
    /// Events that were found.
    pub found: u32,
    /// False alerts.
    pub false_alerts: u32,
    /// False alerts that named a rank.
    pub false_names: u32,
    /// Conditions reported during another fault.
    pub misnamed: u32,
    /// Rank events in which any rank was named.
    pub named: u32,
    /// Rank events whose first (or latest) named rank was right.
    pub located: u32,
    /// Named culprits by the verdict on their class.
    pub classes: BTreeMap<ClassVerdict, u32>,
    /// Steps from the start of a fault to its alert.
    pub to_detect: Vec<f64>,
    /// Steps from the end of a fault until its alert clears.
    pub to_clear: Vec<f64>,
    /// Descriptions of misses and false alerts.
    pub wrong: Vec<String>,
    /// GPUs times days.
    pub gpu_days: f64,
    /// Rank-blocks observed.
    pub rank_blocks: f64,
    /// CPU time for them, seconds.
    pub cpu_s: f64,
}

/// Verdict on the class of a cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClassVerdict {
    /// The class of the fault.
    Right,
    /// Another class.
    Wrong,
    /// `inconclusive`.
    Inconclusive,
}

impl ClassVerdict {
    /// Every verdict.
    pub const ALL: [Self; 3] = [Self::Right, Self::Wrong, Self::Inconclusive];
}

/// Classification of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AlertOutcome {
    False,
    Misnamed,
    Right,
}

impl AlertOutcome {
    fn classify(expected: &Expected, subject: Subject) -> Self {
        match subject {
            subject if is_right(expected, subject) => Self::Right,
            Subject::Condition(ConditionKind::Inconclusive) => Self::Right,
            Subject::Condition(_) => Self::Misnamed,
            Subject::Rank(_) => Self::False,
        }
    }
}

/// Largest spread of healthy ranks, as a share of the step, before their job counts as uneven: the
/// detector's own limit.
const UNEVEN: f64 = 0.027;

impl Score {
    /// Scores the alerts of one job.
    pub fn from_alerts(case: &Case, alerts: &[Alert]) -> Self {
        let mut score = Self {
            gpu_days: case.gpu_days(),
            rank_blocks: f64::from(case.mesh.n_ranks())
                * f64::from(case.n_steps / case.block_steps),
            ..Self::default()
        };
        // A healthy job whose ranks vary this much is uneven by itself: reporting so is neither
        // right nor wrong.
        let is_uneven = case.noise.usual_skew(case.mesh.dp.max(case.mesh.tp)) >= UNEVEN;
        let counts = |alert: &&Alert| {
            !is_uneven || alert.subject != Subject::Condition(ConditionKind::DataImbalance)
        };
        let alerts: Vec<Alert> = alerts.iter().filter(counts).cloned().collect();
        let alerts = alerts.as_slice();
        let mut fates = vec![AlertOutcome::False; alerts.len()];
        for fault in &case.faults {
            score.judge(case, fault, alerts);
            let expected = fault.expected(case.mesh);
            for (alert, fate) in alerts.iter().zip(&mut fates) {
                if is_during(alert, fault) {
                    *fate = (*fate).max(AlertOutcome::classify(&expected, alert.subject));
                }
            }
        }
        let count = |fate| {
            fates
                .iter()
                .filter(|known| **known == fate)
                .map(|_| 1_u32)
                .sum()
        };
        score.false_alerts = count(AlertOutcome::False);
        let names = alerts.iter().zip(&fates).filter(|(alert, fate)| {
            **fate == AlertOutcome::False && matches!(alert.subject, Subject::Rank(_))
        });
        score.false_names = names.map(|_| 1_u32).sum();
        score.misnamed = count(AlertOutcome::Misnamed);
        let wrong = alerts
            .iter()
            .zip(&fates)
            .filter(|(_, fate)| **fate != AlertOutcome::Right);
        score.wrong.extend(wrong.map(|(alert, fate)| {
            let fate = if *fate == AlertOutcome::False {
                "false"
            } else {
                "misnamed"
            };
            format!("{}: {alert} was {fate}", case.name)
        }));
        score
    }

    /// Scores one event.
    fn judge(&mut self, case: &Case, fault: &Fault, alerts: &[Alert]) {
        let expected = fault.expected(case.mesh);
        let during: Vec<&Alert> = alerts
            .iter()
            .filter(|alert| is_during(alert, fault))
            .collect();
        let matched = || {
            during
                .iter()
                .filter(|alert| is_right(&expected, alert.subject))
        };
        let first = matched().min_by_key(|alert| alert.raised).copied();
        self.events += 1;
        match first {
            Some(first) => {
                self.found += 1;
                self.to_detect
                    .push(f64::from(first.raised - fault.steps.start));
            }
            None => self
                .wrong
                .push(format!("{}: {fault} was missed", case.name)),
        }
        let end = fault.steps.end;
        let last = matched().filter_map(|alert| alert.cleared).max();
        if end < case.n_steps {
            self.to_clear
                .extend(last.map(|at| f64::from(at.saturating_sub(end))));
        }
        if let Expected::Rank(_, class) = &expected {
            self.classify(first, *class);
            self.locate(&during, case);
        }
    }

    fn classify(&mut self, alert: Option<&Alert>, truth: CauseClass) {
        let Some(class) = alert.and_then(|alert| alert.class) else {
            return;
        };
        let verdict = match class {
            CauseClass::Inconclusive => ClassVerdict::Inconclusive,
            class if class == truth => ClassVerdict::Right,
            _ => ClassVerdict::Wrong,
        };
        *self.classes.entry(verdict).or_default() += 1;
    }

    /// Counts whether the rank named first, and with the largest lag, is right.
    fn locate(&mut self, during: &[&Alert], case: &Case) {
        let ranks = during
            .iter()
            .filter(|alert| matches!(alert.subject, Subject::Rank(_)));
        let first = ranks.min_by(|a, b| {
            let order = a.raised.cmp(&b.raised);
            order.then_with(|| b.weight.total_cmp(&a.weight))
        });
        if let Some(first) = first {
            self.named += 1;
            let possible = case.faults.iter().filter(|fault| is_during(first, fault));
            let mut expected = possible.map(|fault| fault.expected(case.mesh));
            self.located += u32::from(expected.any(|expected| is_right(&expected, first.subject)));
        }
    }

    /// Adds the score of other jobs.
    pub fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.found += other.found;
        self.false_alerts += other.false_alerts;
        self.false_names += other.false_names;
        self.misnamed += other.misnamed;
        self.named += other.named;
        self.located += other.located;
        for (verdict, count) in &other.classes {
            *self.classes.entry(*verdict).or_default() += count;
        }
        self.to_detect.extend(&other.to_detect);
        self.to_clear.extend(&other.to_clear);
        self.wrong.extend_from_slice(&other.wrong);
        self.gpu_days += other.gpu_days;
        self.rank_blocks += other.rank_blocks;
        self.cpu_s += other.cpu_s;
    }

    /// Share of found events among found events and false alerts.
    pub fn precision(&self) -> Option<f64> {
        ratio(self.found, self.found + self.false_alerts)
    }

    /// Share of found events among all events.
    pub fn recall(&self) -> Option<f64> {
        ratio(self.found, self.events)
    }

    /// Harmonic mean of precision and recall.
    pub fn f1(&self) -> Option<f64> {
        let (precision, recall) = (self.precision().unwrap_or(0.0), self.recall()?);
        let sum = precision + recall;
        Some(if sum > 0.0 {
            2.0 * precision * recall / sum
        } else {
            0.0
        })
    }

    /// Number of culprits with this verdict on their class.
    pub fn classed(&self, verdict: ClassVerdict) -> u32 {
        self.classes.get(&verdict).copied().unwrap_or(0)
    }
}

/// True when an alert may be about a fault by its time.
fn is_during(alert: &Alert, fault: &Fault) -> bool {
    (fault.steps.start..fault.steps.end + SLACK).contains(&alert.raised)
}

fn is_right(expected: &Expected, subject: Subject) -> bool {
    match (expected, subject) {
        (Expected::Rank(ranks, _), Subject::Rank(rank)) => ranks.contains(&rank),
        (Expected::Condition(kind), Subject::Condition(named)) => *kind == named,
        _ => false,
    }
}

/// Ratio; `None` when `whole` is zero.
pub fn ratio(part: u32, whole: u32) -> Option<f64> {
    (whole > 0).then(|| f64::from(part) / f64::from(whole))
}
