//! Limits of sampling.

use std::time::Duration;

use fleet_agent_core::event::Unprobed;
use fleet_agent_stacks::arming::{Arming, Reason, Report, Target};

use crate::STACKS;
use crate::program::Program;

const SECOND: u64 = 1_000_000_000;

/// Waits on one line for ever.
const WAITS: &str = "\
import time

print('ready', flush=True)
time.sleep(600)
";

fn target(program: &Program) -> Target {
    let pid = program.pid();
    Target {
        pid,
        tids: vec![pid],
        makes_graphs: false,
    }
}

fn reasons(reports: &[Report]) -> Vec<Reason> {
    let reason = |report: &Report| match report {
        Report::Disarmed { reason, .. } => Some(reason.clone()),
        _ => None,
    };
    reports.iter().filter_map(reason).collect()
}

#[test]
#[needs(STACKS)]
fn an_armed_process_is_sampled_for_ten_seconds_per_minute() {
    let program = Program::python(WAITS);
    let mut arming = Arming::new(1.0);
    assert_eq!(arming.pause(SECOND), None);
    let begun = arming.arm(target(&program), SECOND);
    assert!(matches!(begun, Some(Report::Armed { .. })), "{begun:?}");
    let mut reports = Vec::new();
    for second in 2..=11 {
        assert!(arming.pause(second * SECOND).is_some(), "{second}");
        reports.extend(arming.sample(second * SECOND, &Unprobed));
    }
    assert_eq!(reasons(&reports), [Reason::Done]);
    assert_eq!(arming.pause(11 * SECOND), None);
    let samples = reports.iter().map(|report| match report {
        Report::Samples { samples, .. } => samples.iter().map(|it| it.samples).sum(),
        _ => 0,
    });
    // Fewer if a sample takes long.
    assert!((2..=10).contains(&samples.sum::<u64>()), "{reports:?}");
}

#[test]
#[needs(STACKS)]
fn a_process_that_is_requested_again_within_a_minute_is_sampled_when_the_minute_is_over() {
    let program = Program::python(WAITS);
    let mut arming = Arming::new(1.0);
    assert!(arming.arm(target(&program), SECOND).is_some());
    assert_eq!(
        reasons(&arming.sample(11 * SECOND, &Unprobed)),
        [Reason::Done]
    );
    assert_eq!(arming.arm(target(&program), 20 * SECOND), None);
    assert_eq!(arming.pause(20 * SECOND), Some(Duration::from_secs(41)));
    assert_eq!(arming.sample(60 * SECOND, &Unprobed), []);
    let begun = arming.sample(61 * SECOND, &Unprobed);
    assert!(
        matches!(begun.first(), Some(Report::Armed { .. })),
        "{begun:?}"
    );
}

#[test]
#[needs(STACKS)]
fn a_spent_budget_disarms_and_is_reported() {
    let program = Program::python(WAITS);
    // A microsecond per minute is spent when the process is opened.
    let mut arming = Arming::new(1e-6 / 60.0);
    arming.arm(target(&program), SECOND);
    assert_eq!(reasons(&arming.sample(SECOND, &Unprobed)), [Reason::Budget]);
    assert_eq!(arming.pause(SECOND), None);
    // A process that is requested afterwards is opened when the next minute has begun.
    let other = Program::python(WAITS);
    let refused = arming.arm(target(&other), 2 * SECOND);
    assert_eq!(
        reasons(&refused.into_iter().collect::<Vec<_>>()),
        [Reason::Budget]
    );
    assert_eq!(arming.arm(target(&other), 30 * SECOND), None);
    assert_eq!(arming.pause(30 * SECOND), Some(Duration::from_secs(30)));
    let begun = arming.sample(60 * SECOND, &Unprobed);
    assert!(
        matches!(begun.first(), Some(Report::Armed { .. })),
        "{begun:?}"
    );
}

#[test]
#[needs(STACKS)]
fn without_a_budget_nothing_is_sampled_and_no_request_is_kept() {
    let program = Program::python(WAITS);
    let mut arming = Arming::new(0.0);
    let refused = arming.arm(target(&program), SECOND);
    assert_eq!(
        reasons(&refused.into_iter().collect::<Vec<_>>()),
        [Reason::Budget]
    );
    assert_eq!(arming.pause(SECOND), None);
}

#[test]
#[needs(STACKS)]
fn a_process_that_exits_is_reported() {
    let program = Program::python(WAITS);
    let mut arming = Arming::new(1.0);
    let target = target(&program);
    arming.arm(target.clone(), SECOND);
    drop(program);
    let reason = reasons(&arming.sample(2 * SECOND, &Unprobed));
    let pid = target.pid;
    assert_eq!(
        reason,
        [Reason::Failed(format!("process {pid} has exited"))]
    );
    let again = arming.arm(target, 100 * SECOND);
    let expected = [Reason::Failed(format!("no such process: {pid}"))];
    assert_eq!(reasons(&again.into_iter().collect::<Vec<_>>()), expected);
}
