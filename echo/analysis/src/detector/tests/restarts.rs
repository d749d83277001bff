//! Hangs that are open when Echo restarts.

use echo_core::model::detector_output::IncidentState;

use super::hangs::{detector, last, reports, two_ranks_missing};
use crate::simulated::instant;

#[test]
fn a_hang_continues_after_a_restart_and_one_that_ended_meanwhile_is_cleared() {
    let raised = last(&mut detector(), &two_ranks_missing(0, 40)).unwrap();
    let known = || vec![raised.clone()];

    let mut again = detector();
    again.observe(&two_ranks_missing(5, 40));
    assert!(
        again
            .restore(known(), instant(40_000.0), 1_000.0)
            .is_empty()
    );
    let later = last(&mut again, &two_ranks_missing(40, 90)).unwrap();
    assert_eq!((later.id, later.raised_at), (raised.id, raised.raised_at));

    let mut moved = detector();
    moved.observe(&two_ranks_missing(5, 40));
    moved.restore(known(), instant(40_000.0), 1_000.0);
    let cleared = last(&mut moved, &reports(40, 42, |_| 110)).unwrap();
    assert_eq!(
        (cleared.id, cleared.state),
        (raised.id, IncidentState::Cleared)
    );
}

#[test]
fn a_hang_is_not_ended_by_the_first_report_after_a_long_absence_of_echo() {
    let raised = last(&mut detector(), &two_ranks_missing(0, 40)).unwrap();
    let mut again = detector();
    again.observe(&two_ranks_missing(5, 40));
    again.restore(vec![raised.clone()], instant(600_000.0), 120_000.0);
    let first = again.observe(&two_ranks_missing(600, 601));
    assert!(first.is_empty(), "{first:?}");
    let later = last(&mut again, &two_ranks_missing(601, 760)).unwrap();
    assert_eq!((later.id, later.state), (raised.id, IncidentState::Open));
    assert_eq!(later.raised_at, raised.raised_at);
}

#[test]
fn a_hang_of_a_job_that_has_ended_is_cleared() {
    let raised = last(&mut detector(), &two_ranks_missing(0, 40)).unwrap();
    let mut empty = detector();
    assert!(
        empty
            .restore(vec![raised.clone()], instant(0.0), 0.0)
            .is_empty()
    );
    let gone = empty.end_silent_jobs(instant(120_000.0)).incidents;
    assert_eq!(
        (gone[0].id, gone[0].state),
        (raised.id, IncidentState::Cleared)
    );
}
