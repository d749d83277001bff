//! How soon a fault of a recorded job is named after it begins, and cleared after it ends, in
//! iterations of the job. `echo/tests/it/recordings.rs` sends three of them through agents and a server.

use std::collections::BTreeMap;

use echo_bench::real::JOBS;
use echo_core::model::detector_output::{
    CauseClass, ConditionKind, Finding, Incident, IncidentState,
};

use crate::jobs::detected;
use crate::truth;

/// Iterations until a fault is raised after its start and cleared after its end: with twice the
/// tolerance 30 s.
const PROMPT: f64 = 30.0;

/// Largest difference of the begin, iterations: two evaluations of 2 s. Ends have twice as much.
const FINE: f64 = 5.5;

/// The same if a job synchronises every 20th iteration, or if its ranks have no communicator in
/// common.
const COARSE: f64 = 25.5;

/// The incident of a job that has one.
fn incident(name: &str) -> Incident {
    let mut jobs = JOBS.iter();
    let job = jobs
        .find(|job| job.name == format!("recordings/{name}.jsonl.gz"))
        .unwrap();
    let reports = detected(job).incidents.into_iter();
    let mut latest: BTreeMap<_, _> = reports.map(|one| (one.id, one)).collect();
    let (_, only) = latest.pop_first().unwrap();
    assert!(latest.is_empty(), "{name}: {latest:?}");
    only
}

fn assert_prompt(name: &str, incident: &Incident, tolerance: f64) {
    let faulty = truth::faulty_steps(&truth::ranks(name));
    let step = |step: Option<&i64>| f64::from(i32::try_from(*step.unwrap()).unwrap());
    let (first, last) = (step(faulty.first()), step(faulty.last()));
    let soon = |after: f64| tolerance.mul_add(2.0, after + PROMPT);
    let cleared = incident.cleared_iteration.unwrap();
    assert!(
        (first..=soon(first)).contains(&incident.raised_iteration),
        "{name}: raised before {first} or late: {incident:?}"
    );
    assert!(
        (incident.first_iteration - first).abs() <= tolerance,
        "{name}: not from {first} on: {incident:?}"
    );
    assert!(
        (last..=soon(last)).contains(&cleared),
        "{name}: cleared before {last} or late: {incident:?}"
    );
    assert_eq!(incident.state, IncidentState::Cleared, "{incident:?}");
    assert_eq!(incident.occurrences, 1, "{incident:?}");
}

#[test]
fn a_late_host_is_named_within_30_iterations_and_cleared_soon() {
    use CauseClass::{Host, Inconclusive};
    for (name, rank, classes, tolerance) in [
        ("host-sleep-rank2", 2, &[Host][..], FINE),
        ("cpu-contention-rank1", 1, &[Host], FINE),
        ("mesh-host-sleep-rank3", 3, &[Host, Inconclusive], COARSE),
        ("nosync-host-sleep-rank0", 0, &[Host, Inconclusive], COARSE),
    ] {
        let incident = incident(name);
        assert_prompt(name, &incident, tolerance);
        let Finding::Culprit(culprit) = incident.finding else {
            panic!("{name}: {incident:?}")
        };
        assert_eq!(culprit.rank.value(), rank, "{name}: {culprit:?}");
        assert!(classes.contains(&culprit.class), "{name}: {culprit:?}");
    }
}

#[test]
fn a_slow_gpu_without_gpu_timings_is_a_uniform_slowdown_and_cleared_soon() {
    let incident = incident("gpu-extra-rank1");
    assert_prompt("gpu-extra-rank1", &incident, FINE);
    let Finding::Condition(condition) = incident.finding else {
        panic!("{incident:?}")
    };
    assert_eq!(condition.kind, ConditionKind::UniformSlowdown);
}
