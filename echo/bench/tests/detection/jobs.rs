//! Scores on simulated jobs and production traces, independent of the detector's internals.

use echo_bench::alert::Alert;
use echo_bench::case::{Case, Sources};
use echo_bench::fault::{Expected, Fault};
use echo_bench::mesh::Mesh;
use echo_bench::noise::NoiseModel;
use echo_bench::real::{JOBS, NamedSubjects};
use echo_bench::rule::Rule;
use echo_bench::runner::{ECHO, Outcome};
use echo_bench::score::Score;
use echo_bench::suite::USUAL;
use echo_bench::{real, report, runner, suite};
use echo_core::model::detector_output::CauseClass;

use crate::repository;

const SEED: u64 = 1;

/// Runs the quick cases.
fn outcomes(is_wanted: impl Fn(&Case) -> bool, rules: &[Rule]) -> Vec<(Case, Outcome)> {
    let cases = suite::quick(SEED).into_iter().filter(is_wanted);
    let outcome = |case: Case| {
        let outcome = runner::run(&case, rules).unwrap();
        (case, outcome)
    };
    cases.map(outcome).collect()
}

/// Returns the total score of a method.
fn total(outcomes: &[(Case, Outcome)], method: &str) -> Score {
    let mut total = Score::default();
    for (case, outcome) in outcomes {
        total.add(&outcome.scores(case)[method]);
    }
    total
}

/// True for cases that run in seconds; the benchmark itself also runs the others.
fn is_small(case: &Case) -> bool {
    case.mesh.n_ranks() <= 16
}

/// True when every fault of the job is severe and of one rank (or node).
fn is_obvious(case: &Case) -> bool {
    let with_culprit = |fault: &Fault| matches!(fault.expected(case.mesh), Expected::Rank(..));
    let is_severe = |fault: &Fault| fault.severity >= 0.1 && with_culprit(fault);
    is_small(case) && !case.faults.is_empty() && case.faults.iter().all(is_severe)
}

#[test]
fn ranks_that_cost_a_tenth_of_the_step_are_found_and_no_host_fault_is_classed_as_device() {
    let outcomes = outcomes(is_obvious, &[]);
    let score = total(&outcomes, ECHO);
    assert!(score.events >= 20, "{}", score.events);
    assert_eq!(score.recall(), Some(1.0), "{:#?}", score.wrong);
    for (case, outcome) in &outcomes {
        let is_device = |alert: &Alert| alert.class == Some(CauseClass::Device);
        let claims_device = outcome.alerts[ECHO].iter().any(is_device);
        assert!(case.sources.has_device() || !claims_device, "{}", case.name);
    }
}

#[test]
fn the_precision_of_the_detector_is_at_least_80_percent() {
    let score = total(&outcomes(is_small, &[]), ECHO);
    assert!(score.precision().unwrap() >= 0.8, "{:#?}", score.wrong);
}

#[test]
fn healthy_jobs_with_many_noisy_ranks_raise_no_false_alert() {
    // By chance one rank is late in most windows, and sometimes all ranks wait for it: this is normal
    // for these jobs.
    let correlated = NoiseModel { rho: 0.9, ..USUAL };
    let strong = NoiseModel {
        cv: 0.03,
        rho: 0.0,
        bias: 0.01,
        pauses: 0.01,
    };
    for (noise, seed) in [(correlated, 1), (correlated, 2), (strong, 1), (strong, 2)] {
        let case = suite::healthy(Mesh::replicas(64), noise, Sources::Both, seed).reseeded();
        let outcome = runner::run(&case, &[]).unwrap();
        let score = &outcome.scores(&case)[ECHO];
        assert_eq!(score.false_alerts, 0, "{:#?}", score.wrong);
    }
}

#[test]
fn the_median_rule_flags_healthy_ranks_but_never_one_of_two() {
    let outcomes = outcomes(|case| case.faults.is_empty(), &[Rule::Mad2]);
    for (case, outcome) in &outcomes {
        let n_flagged = outcome.alerts[Rule::Mad2.name()].len();
        match case.mesh.n_ranks() {
            2 => assert_eq!(n_flagged, 0, "{}", case.name),
            32 => assert!(n_flagged > 0, "{}", case.name),
            _ => {}
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_job() {
    let is_wanted = |case: &Case| case.group.starts_with("telemetry: l");
    let (first, second) = (
        outcomes(is_wanted, &Rule::ALL),
        outcomes(is_wanted, &Rule::ALL),
    );
    assert!(first.len() >= 2);
    for ((_, one), (_, other)) in first.iter().zip(&second) {
        assert_eq!(one.alerts, other.alerts);
    }
}

fn named_in(folder: &str) -> Vec<(&'static str, bool, NamedSubjects)> {
    let jobs = JOBS.iter().filter(|job| job.name.starts_with(folder));
    let named = |job: &real::RealJob| {
        let named = real::run(job, &repository("testdata")).unwrap()[ECHO].clone();
        (job.name, named.is_exact(job), named)
    };
    jobs.map(named).collect()
}

#[test]
fn exactly_the_expected_subjects_of_each_recording_are_named() {
    for (name, is_exact, named) in named_in("recordings") {
        assert!(is_exact, "{name}: {named}");
    }
}

#[test]
fn exactly_the_expected_subjects_of_each_production_trace_are_named() {
    for (name, is_exact, named) in named_in("bytedance") {
        assert!(is_exact, "{name}: {named}");
    }
}

#[test]
fn a_report_has_a_row_for_each_method_and_each_real_job() {
    let is_wanted = |case: &Case| case.group == "two hosts";
    let cases: Vec<Case> = suite::quick(SEED).into_iter().filter(is_wanted).collect();
    let results = runner::run_all(&cases, &Rule::ALL, |_, _| {}).unwrap();
    let text = report::markdown(&results.tables, ECHO)
        + &report::details(&results.details, ECHO)
        + &report::wrong(&results.tables, ECHO);
    for method in Rule::ALL.map(Rule::name).into_iter().chain([ECHO]) {
        assert!(
            text.contains(&format!("| {method} | 4 |")),
            "no {method} in\n{text}"
        );
    }
    let text = real::markdown(&JOBS[..1], &repository("testdata")).unwrap();
    assert!(text.contains(JOBS[0].name), "{text}");
}
