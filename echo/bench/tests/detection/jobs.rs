//! What is named in recorded jobs, independent of the detector's internals.

use echo_bench::alert::ECHO;
use echo_bench::real::{self, JOBS};
use echo_bench::rule::Rule;

use crate::repository;

#[test]
fn exactly_the_expected_subjects_of_each_recorded_job_are_named() {
    let wrong = JOBS.iter().filter_map(|job| {
        let named = real::run(job, &repository("testdata")).unwrap()[ECHO].clone();
        (!named.is_exact(job)).then(|| format!("{}: {named}", job.name))
    });
    assert_eq!(wrong.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_report_has_a_column_for_each_method_and_a_row_for_each_job() {
    let text = real::markdown(&JOBS[..1], &repository("testdata")).unwrap();
    for name in Rule::ALL
        .map(Rule::name)
        .into_iter()
        .chain([ECHO, JOBS[0].name])
    {
        assert!(text.contains(name), "no {name} in\n{text}");
    }
}
