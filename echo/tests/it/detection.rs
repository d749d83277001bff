//! The quick part of `EchoBench`: what must hold on simulated and on real jobs, whatever the detector's inside looks like.

use fleet_echo::model::conclusion::CauseClass;

use crate::testbed::repository;

// The benchmark's own modules, so that tests and published figures cannot drift apart.
#[path = "../../benches/detection/echobench.rs"]
mod echobench;

use echobench::case::Case;
use echobench::fault::{Expected, Fault};
use echobench::real::{JOBS, Named};
use echobench::rule::Rule;
use echobench::runner::{ECHO, Outcome};
use echobench::score::Score;
use echobench::{real, report, runner, suite};

const SEED: u64 = 1;

/// The quick cases with what the methods said of them.
fn outcomes(is_wanted: impl Fn(&Case) -> bool, rules: &[Rule]) -> Vec<(Case, Outcome)> {
    let cases = suite::quick(SEED).into_iter().filter(is_wanted);
    let outcome = |case: Case| {
        let outcome = runner::run(&case, rules).unwrap();
        (case, outcome)
    };
    cases.map(outcome).collect()
}

/// The score of a method over all of them.
fn total(outcomes: &[(Case, Outcome)], method: &str) -> Score {
    let mut total = Score::default();
    for (case, outcome) in outcomes {
        total.add(&outcome.scores(case)[method]);
    }
    total
}

#[test]
fn on_simulated_jobs_the_detector_finds_late_ranks_and_accuses_no_others() {
    let outcomes = outcomes(|_| true, &[]);
    let score = total(&outcomes, ECHO);
    for (case, outcome) in &outcomes {
        let classes = outcome.alerts[ECHO].iter().filter_map(|alert| alert.class);
        let claims_device = classes.into_iter().any(|class| class == CauseClass::Device);
        let sees_device = case.sources.has_device();
        assert!(
            sees_device || !claims_device,
            "{} cannot know of devices",
            case.name
        );
    }
    let is_obvious = |case: &Case| {
        let grave = |fault: &Fault| fault.severity >= 0.1;
        let of_rank = |fault: &Fault| matches!(fault.expected(case.mesh), Expected::Rank(..));
        case.faults
            .iter()
            .all(|fault| grave(fault) && of_rank(fault))
    };
    let (obvious, _): (Vec<_>, Vec<_>) =
        outcomes.into_iter().partition(|(case, _)| is_obvious(case));
    assert_eq!(
        total(&obvious, ECHO).recall(),
        Some(1.0),
        "{:#?}",
        score.wrong
    );
    assert!(score.precision().unwrap() >= 0.95, "{:#?}", score.wrong);
}

#[test]
fn the_median_rule_accuses_healthy_ranks_and_never_one_of_two() {
    let outcomes = outcomes(|case| case.faults.is_empty(), &[Rule::Mad2]);
    for (case, outcome) in &outcomes {
        let n_accused = outcome.alerts[Rule::Mad2.name()].len();
        match case.mesh.n_ranks() {
            2 => assert_eq!(n_accused, 0, "{}", case.name),
            32 => assert!(n_accused > 0, "{}", case.name),
            _ => {}
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_job() {
    let is_wanted = |case: &Case| case.group.starts_with("telemetry: l");
    let (once, again) = (
        outcomes(is_wanted, &Rule::ALL),
        outcomes(is_wanted, &Rule::ALL),
    );
    assert!(once.len() >= 4);
    for ((_, one), (_, other)) in once.iter().zip(&again) {
        assert_eq!(one.alerts, other.alerts);
    }
}

fn named_in(folder: &str) -> Vec<(&'static str, bool, Named)> {
    let jobs = JOBS.iter().filter(|job| job.name.starts_with(folder));
    let named = |job: &real::RealJob| {
        let named = real::run(job, &repository("testdata")).unwrap()[ECHO].clone();
        (job.name, named.is_exact(job), named)
    };
    jobs.map(named).collect()
}

#[test]
fn in_each_recording_exactly_the_truth_is_named() {
    for (name, is_exact, named) in named_in("recordings") {
        assert!(is_exact, "{name}: {named}");
    }
}

#[test]
#[ignore = "the detector does not read device timestamps yet"]
fn in_each_production_trace_exactly_the_truth_is_named() {
    for (name, is_exact, named) in named_in("bytedance") {
        assert!(is_exact, "{name}: {named}");
    }
}

#[test]
fn a_report_has_a_row_for_each_method_and_each_real_job() {
    let is_wanted = |case: &Case| case.group == "two hosts";
    let cases: Vec<Case> = suite::quick(SEED).into_iter().filter(is_wanted).collect();
    let results = runner::run_all(&cases, |_| {}).unwrap();
    let text = report::markdown(&results.tables, ECHO)
        + &report::details(&results.details, ECHO)
        + &report::wrong(&results.tables, ECHO);
    for method in Rule::ALL.map(Rule::name).into_iter().chain([ECHO]) {
        assert!(
            text.contains(&format!("| {method} | 4 |")),
            "no {method} in\n{text}"
        );
    }
    let text = real::markdown(&repository("testdata")).unwrap();
    assert!(JOBS.iter().all(|job| text.contains(job.name)), "{text}");
}
