//! Alerts of all methods in one form.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use echo_core::ids::IncidentId;
use echo_core::model::detector_output::{
    CauseClass, ConditionKind, DetectorOutput, Finding, Incident, IncidentState,
};

use super::rule::Rule;
use super::window::RankWindow;

/// Name of the detector among the methods.
pub const ECHO: &str = "echo";

/// Consecutive windows with a flagged rank before a rule raises an alert.
const RAISE_AFTER: u32 = 2;

/// Consecutive windows without the flagged rank before a rule clears an alert.
const CLEAR_AFTER: u32 = 3;

/// Subject of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A rank.
    Rank(u32),
    /// A condition of the cohort.
    Condition(ConditionKind),
}

/// Alert of a method.
#[derive(Debug, Clone, PartialEq)]
pub struct Alert {
    /// Subject.
    pub subject: Subject,
    /// Number of steps completed when it was raised, by the events seen so far, not by the claim of
    /// the method.
    pub raised: u32,
    /// Number of steps completed when it was cleared.
    pub cleared: Option<u32>,
    /// Class of the cause, where the method has classes.
    pub class: Option<CauseClass>,
    /// Reported lag of the rank, milliseconds.
    pub weight: f64,
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.subject {
            Subject::Rank(rank) => write!(f, "rank {rank} ({:.1} ms)", self.weight)?,
            Subject::Condition(kind) => f.write_str(kind.name())?,
        }
        match self.cleared {
            Some(cleared) => write!(f, " in steps {} to {cleared}", self.raised),
            None => write!(f, " from step {}", self.raised),
        }
    }
}

/// Follows the incidents of the detector.
#[derive(Debug, Default)]
pub struct Incidents {
    open: BTreeMap<IncidentId, Alert>,
    closed: Vec<Alert>,
}

impl Incidents {
    /// Records the output of the detector after `step` steps.
    pub fn observe(&mut self, output: &DetectorOutput, step: u32) {
        for incident in &output.incidents {
            let is_open = incident.state == IncidentState::Open;
            let alert = alert_of(incident, step);
            if let Some(known) = self.open.get_mut(&incident.id) {
                let raised = known.raised;
                *known = Alert { raised, ..alert };
                if !is_open {
                    let ended = self.open.remove(&incident.id);
                    self.closed.extend(ended.map(|ended| Alert {
                        cleared: Some(step),
                        ..ended
                    }));
                }
            } else if is_open {
                self.open.insert(incident.id, alert);
            } else {
                // Raised and cleared between two observations.
                self.closed.push(Alert {
                    cleared: Some(step),
                    ..alert
                });
            }
        }
    }

    /// Everything that was raised.
    pub fn into_alerts(mut self) -> Vec<Alert> {
        self.closed.extend(self.open.into_values());
        self.closed
    }
}

fn alert_of(incident: &Incident, step: u32) -> Alert {
    let (subject, class, weight) = match &incident.finding {
        Finding::Culprit(culprit) => {
            let subject = Subject::Rank(culprit.rank.value());
            (subject, Some(culprit.class), culprit.lag_ms)
        }
        Finding::Condition(condition) => (Subject::Condition(condition.kind), None, 0.0),
    };
    Alert {
        subject,
        raised: step,
        cleared: None,
        class,
        weight,
    }
}

/// Adds hysteresis to a rule.
#[derive(Debug)]
pub struct RuleTracker {
    rule: Rule,
    pointed: BTreeMap<u32, u32>,
    open: BTreeMap<u32, (Alert, u32)>,
    closed: Vec<Alert>,
}

impl RuleTracker {
    /// Creates the tracker of a rule.
    pub const fn new(rule: Rule) -> Self {
        Self {
            rule,
            pointed: BTreeMap::new(),
            open: BTreeMap::new(),
            closed: Vec::new(),
        }
    }

    /// The rule.
    pub const fn rule(&self) -> Rule {
        self.rule
    }

    /// Evaluates the rule on a window that ended after `step` steps.
    pub fn observe(&mut self, cohorts: &[Vec<RankWindow>], step: u32) {
        let mut now: BTreeMap<u32, f64> = BTreeMap::new();
        for cohort in cohorts {
            let pointed: BTreeSet<u32> = self.rule.flagged_ranks(cohort).into_iter().collect();
            let late = cohort.iter().filter(|seen| pointed.contains(&seen.rank));
            now.extend(late.map(|seen| (seen.rank, seen.late)));
        }
        self.pointed.retain(|rank, _| now.contains_key(rank));
        for (rank, weight) in &now {
            let streak = self.pointed.entry(*rank).or_default();
            *streak += 1;
            if let Some((_, calm)) = self.open.get_mut(rank) {
                *calm = 0;
            } else if *streak >= RAISE_AFTER {
                let subject = Subject::Rank(*rank);
                let (class, cleared) = (None, None);
                let alert = Alert {
                    subject,
                    raised: step,
                    cleared,
                    class,
                    weight: *weight,
                };
                self.open.insert(*rank, (alert, 0));
            }
        }
        let closed = &mut self.closed;
        self.open.retain(|rank, (alert, calm)| {
            *calm += u32::from(!now.contains_key(rank));
            let goes_on = *calm < CLEAR_AFTER;
            if !goes_on {
                closed.push(Alert {
                    cleared: Some(step),
                    ..alert.clone()
                });
            }
            goes_on
        });
    }

    /// Everything that was raised.
    pub fn into_alerts(mut self) -> Vec<Alert> {
        self.closed
            .extend(self.open.into_values().map(|(alert, _)| alert));
        self.closed
    }
}
