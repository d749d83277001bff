//! Verdict on a method for a loop.

use std::ops::Range;

use crate::alert::{Alert, Subject};

/// Grace period after a fault in which an alert may still be about it, nanoseconds.
const GRACE_NS: u64 = 10_000_000_000;

/// Largest error of the cost that counts as right, as a share of the truth.
const COST_ERROR: f64 = 0.15;

/// Expected report about a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// No report.
    Nothing,
    /// The rank.
    Rank(u32),
    /// The rank, or any condition.
    RankOrCondition(u32),
    /// Any condition, and no rank.
    Condition,
    /// The rank, a condition or nothing: the fault cost hardly anything.
    Harmless(u32),
}

/// Ground truth of a loop.
#[derive(Debug, Clone, PartialEq)]
pub struct Truth {
    /// Expected report.
    pub expected: Expected,
    /// Span of the fault, nanoseconds since the start of the recording.
    pub when_ns: Range<u64>,
    /// Cost by the clock of the job, GPU-seconds; `None` when unknown.
    pub lost_gpu_s: Option<f64>,
}

impl Truth {
    /// Truth of a healthy loop.
    pub const fn healthy() -> Self {
        Self {
            expected: Expected::Nothing,
            when_ns: u64::MAX..u64::MAX,
            lost_gpu_s: Some(0.0),
        }
    }
}

/// Verdict on a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The expected subject and no other rank.
    Right,
    /// A healthy rank at any time, the culprit before its fault, or any report in a healthy loop.
    Wrong,
    /// A condition but not the rank.
    Unnamed,
    /// No alert during the fault.
    Silent,
}

/// A method's verdict on one loop.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// Verdict.
    pub verdict: Verdict,
    /// True when no report was expected.
    pub is_healthy: bool,
    /// Seconds from the start of the fault to the first right alert.
    pub delay_s: Option<f64>,
    /// Cost reported by the method, GPU-seconds, if it reports one.
    pub lost_gpu_s: Option<f64>,
    /// True when the cost is right; `None` when there is no cost to compare with.
    pub is_cost_right: Option<bool>,
    /// Error of the cost as a share of the true cost; `None` when that is 0.
    pub cost_error: Option<f64>,
    /// Alerts in order, with seconds since the start of the recording.
    pub summary: String,
}

impl Judgement {
    /// Judges alerts whose times are milliseconds since the start of the recording.
    pub fn new(truth: &Truth, alerts: &[Alert], lost_gpu_s: Option<f64>) -> Self {
        let mut alerts: Vec<&Alert> = alerts.iter().collect();
        alerts.sort_by_key(|alert| (alert.raised, alert.subject));
        let right = alerts.iter().find(|alert| truth.is_true(alert));
        let is_healthy = matches!(truth.expected, Expected::Nothing | Expected::Harmless(_));
        let verdict = if alerts.iter().any(|alert| truth.is_wrong(alert)) {
            Verdict::Wrong
        } else if right.is_some() || is_healthy {
            Verdict::Right
        } else if alerts.iter().any(|alert| truth.is_during(alert)) {
            Verdict::Unnamed
        } else {
            Verdict::Silent
        };
        let errors = truth
            .lost_gpu_s
            .filter(|_| !matches!(truth.expected, Expected::Harmless(_)));
        let pair = lost_gpu_s.zip(errors);
        let start_s = seconds(truth.when_ns.start);
        Self {
            verdict,
            is_healthy,
            delay_s: right.map(|alert| f64::from(alert.raised) / 1e3 - start_s),
            lost_gpu_s,
            is_cost_right: pair.map(|(found, lost)| (found - lost).abs() <= COST_ERROR * lost),
            cost_error: pair
                .filter(|(_, lost)| *lost > 0.0)
                .map(|(found, lost)| (found - lost).abs() / lost),
            summary: describe_alerts(&alerts),
        }
    }
}

impl Truth {
    /// True when an alert is open during the fault.
    fn is_during(&self, alert: &Alert) -> bool {
        let end = self.when_ns.end.saturating_add(GRACE_NS);
        let is_over = |cleared: u32| nanos(cleared) <= self.when_ns.start;
        nanos(alert.raised) < end && !alert.cleared.is_some_and(is_over)
    }

    /// True when the alert is correct and raised during the fault.
    fn is_true(&self, alert: &Alert) -> bool {
        let is_early = nanos(alert.raised) < self.when_ns.start;
        !is_early && self.is_during(alert) && self.is_right(alert.subject)
    }

    fn is_wrong(&self, alert: &Alert) -> bool {
        let is_early = nanos(alert.raised) < self.when_ns.start;
        match (alert.subject, self.expected) {
            (
                Subject::Rank(rank),
                Expected::Rank(culprit)
                | Expected::RankOrCondition(culprit)
                | Expected::Harmless(culprit),
            ) => is_early || rank != culprit,
            (Subject::Rank(_), Expected::Nothing | Expected::Condition)
            | (Subject::Condition(_), Expected::Nothing) => true,
            (Subject::Condition(_), _) => false,
        }
    }

    fn is_right(&self, subject: Subject) -> bool {
        match (self.expected, subject) {
            (
                Expected::Rank(culprit)
                | Expected::RankOrCondition(culprit)
                | Expected::Harmless(culprit),
                Subject::Rank(rank),
            ) => rank == culprit,
            (Expected::RankOrCondition(_) | Expected::Condition, Subject::Condition(_)) => true,
            _ => false,
        }
    }
}

fn describe_alerts(alerts: &[&Alert]) -> String {
    let one = |alert: &&Alert| {
        let subject = match alert.subject {
            Subject::Rank(rank) => format!("rank {rank}"),
            Subject::Condition(kind) => kind.name().to_owned(),
        };
        format!("{subject} at {:.0} s", f64::from(alert.raised) / 1e3)
    };
    let words: Vec<String> = alerts.iter().map(one).collect();
    if words.is_empty() {
        "nothing".to_owned()
    } else {
        words.join(", ")
    }
}

/// Milliseconds as nanoseconds.
fn nanos(ms: u32) -> u64 {
    u64::from(ms) * 1_000_000
}

/// Nanoseconds as seconds.
pub fn seconds(ns: u64) -> f64 {
    std::time::Duration::from_nanos(ns).as_secs_f64()
}

/// Verdicts added up.
#[derive(Debug, Clone, Default)]
pub struct Count {
    /// Loops with a fault.
    pub n: u32,
    /// Healthy loops, and those without an alert and without a cost.
    pub healthy: (u32, u32),
    /// Loops with a fault by verdict, and healthy loops with an alert.
    pub verdicts: std::collections::BTreeMap<Verdict, u32>,
    /// Comparable costs, and the right ones.
    pub costs: (u32, u32),
    /// Errors of costs.
    pub cost_errors: Vec<f64>,
    /// Seconds to the first right alert.
    pub delays_s: Vec<f64>,
}

impl Count {
    /// Adds a verdict.
    pub fn add(&mut self, judgement: &Judgement) {
        let is_right = judgement.verdict == Verdict::Right;
        if judgement.is_healthy {
            let is_free = judgement.is_cost_right.unwrap_or(true);
            self.healthy.0 += 1;
            self.healthy.1 += u32::from(is_right && is_free);
        } else {
            self.n += 1;
        }
        if !(judgement.is_healthy && is_right) {
            *self.verdicts.entry(judgement.verdict).or_default() += 1;
        }
        if let Some(is_right) = judgement.is_cost_right.filter(|_| !judgement.is_healthy) {
            self.costs.0 += 1;
            self.costs.1 += u32::from(is_right);
        }
        self.cost_errors.extend(judgement.cost_error);
        self.delays_s.extend(judgement.delay_s);
    }

    /// Loops with a verdict.
    pub fn with_verdict(&self, verdict: Verdict) -> u32 {
        self.verdicts.get(&verdict).copied().unwrap_or(0)
    }
}
