//! Limits of sampling.

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
    assert!(!arming.is_active());
    let begun = arming.arm(&target(&program), SECOND);
    assert!(matches!(begun, Some(Report::Armed { .. })), "{begun:?}");
    let mut reports = Vec::new();
    for second in 2..=11 {
        assert!(arming.is_active(), "{second}");
        reports.extend(arming.sample(second * SECOND, &Unprobed));
    }
    assert_eq!(reasons(&reports), [Reason::Done]);
    assert!(!arming.is_active());
    let samples = reports.iter().map(|report| match report {
        Report::Samples { samples, .. } => samples.iter().map(|it| it.samples).sum(),
        _ => 0,
    });
    // Fewer if a sample takes long.
    assert!((2..=10).contains(&samples.sum::<u64>()), "{reports:?}");
    // The minute is not over.
    assert_eq!(arming.arm(&target(&program), 60 * SECOND), None);
    assert!(arming.arm(&target(&program), 61 * SECOND).is_some());
}

#[test]
#[needs(STACKS)]
fn a_spent_budget_disarms_and_is_reported() {
    let program = Program::python(WAITS);
    // A microsecond per minute is spent when the process is opened.
    let mut arming = Arming::new(1e-6 / 60.0);
    arming.arm(&target(&program), SECOND);
    assert!(arming.is_active());
    assert_eq!(reasons(&arming.sample(SECOND, &Unprobed)), [Reason::Budget]);
    assert!(!arming.is_active());
    // A process that is armed afterwards is not even opened.
    let other = Program::python(WAITS);
    let refused = arming.arm(&target(&other), 2 * SECOND);
    assert_eq!(
        reasons(&refused.into_iter().collect::<Vec<_>>()),
        [Reason::Budget]
    );
}

#[test]
#[needs(STACKS)]
fn a_process_that_exits_is_reported() {
    let program = Program::python(WAITS);
    let mut arming = Arming::new(1.0);
    let target = target(&program);
    arming.arm(&target, SECOND);
    drop(program);
    let reason = reasons(&arming.sample(2 * SECOND, &Unprobed));
    let pid = target.pid;
    assert_eq!(
        reason,
        [Reason::Failed(format!("process {pid} has exited"))]
    );
    let again = arming.arm(&target, 100 * SECOND);
    let expected = [Reason::Failed(format!("no such process: {pid}"))];
    assert_eq!(reasons(&again.into_iter().collect::<Vec<_>>()), expected);
}
