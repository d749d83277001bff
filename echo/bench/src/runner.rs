//! Runs a case through the detector and the published rules, all on the same events.

use std::collections::BTreeMap;

use echo_analysis::detector::Detector;
use echo_analysis::settings::Settings;
use echo_core::ids::IdError;

use super::alert::{Alert, Incidents, RuleTracker};
use super::case::Case;
use super::cpu;
use super::rule::Rule;
use super::score::Score;
use super::simulation::Simulation;
use super::window::RecentBlocks;

/// Name of the detector in tables.
pub const ECHO: &str = "Echo";

/// Maximum number of ranks for the published rules; larger jobs run the detector only, because the
/// results of the rules are known from 64 ranks.
const MAX_RULE_RANKS: u32 = 64;

/// Alerts of the methods in a case.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Alerts by method.
    pub alerts: BTreeMap<&'static str, Vec<Alert>>,
    /// CPU that the detector took, seconds.
    pub cpu_s: f64,
}

impl Outcome {
    /// The scores of the methods.
    pub fn scores(&self, case: &Case) -> BTreeMap<&'static str, Score> {
        let score = |(method, alerts): (&&'static str, &Vec<Alert>)| {
            let mut score = Score::from_alerts(case, alerts);
            if *method == ECHO {
                score.cpu_s = self.cpu_s;
            } else {
                score.rank_blocks = 0.0;
            }
            (*method, score)
        };
        self.alerts.iter().map(score).collect()
    }
}

/// Runs a case; large jobs skip the published rules.
pub fn run(case: &Case, rules: &[Rule]) -> Result<Outcome, IdError> {
    let mut detector = Detector::new(Settings::default());
    let mut incidents = Incidents::default();
    let mut recent = RecentBlocks::default();
    let mut patient: Vec<RuleTracker> = rules.iter().map(|rule| RuleTracker::new(*rule)).collect();
    let mut cpu_s = 0.0;
    for delivery in Simulation::new(case)? {
        let before = cpu::seconds();
        let output = detector.observe(&delivery.events);
        cpu_s += cpu::seconds() - before;
        incidents.observe(&output, delivery.step);
        if !patient.is_empty() {
            recent.add(&delivery.events);
            let cohorts = recent.cohorts();
            for rule in &mut patient {
                rule.observe(&cohorts, delivery.step);
            }
        }
    }
    let mut alerts = BTreeMap::from([(ECHO, incidents.into_alerts())]);
    for rule in patient {
        alerts.insert(rule.rule().name(), rule.into_alerts());
    }
    Ok(Outcome { alerts, cpu_s })
}

/// Scores by table (or row) and method.
pub type Tables = BTreeMap<String, BTreeMap<&'static str, Score>>;

/// Scores of many cases.
#[derive(Debug, Default)]
pub struct Results {
    /// All methods, by group.
    pub tables: Tables,
    /// The detector, by detail.
    pub details: BTreeMap<String, Score>,
}

/// Runs cases through the detector and the rules, and sums their scores; `done` is called with each
/// case and the score of the detector.
pub fn run_all(
    cases: &[Case],
    rules: &[Rule],
    mut done: impl FnMut(&Case, &Score),
) -> Result<Results, IdError> {
    let mut results = Results::default();
    for case in cases {
        let few = case.mesh.n_ranks() <= MAX_RULE_RANKS;
        let rules = if few { rules } else { &[] };
        for (method, score) in run(case, rules)?.scores(case) {
            if method == ECHO {
                let row = results.details.entry(case.detail.clone());
                row.or_default().add(&score);
                done(case, &score);
            }
            let table = results.tables.entry(case.group.clone()).or_default();
            table.entry(method).or_default().add(&score);
        }
    }
    Ok(results)
}
