//! Tests of the queue.

use std::time::Duration;

use super::{GIVE_UP_AFTER, begin_due, complete, withdraw_overtaken};
use crate::consumer::DeliveryError;
use crate::notice::Phase;
use crate::policy::Mode;
use crate::record::Outcome;
use crate::sample::{START, at, notice, open_action, policy};
use crate::state::State;

const DELAY: Duration = Duration::from_secs(4);

/// A state with one action of each consumer and incident, and these phases queued for each.
fn queued(consumers: &[&str], incidents: &[u64], phases: &[Phase]) -> State {
    let mut state = State::default();
    for consumer in consumers {
        for incident in incidents {
            let mut action = open_action(consumer, &notice("node-1", *incident));
            for phase in phases {
                state.queue.push(action.next_delivery(*phase, START));
            }
            state.open.push(action);
        }
    }
    state
}

fn keys(state: &mut State, seconds: u64) -> Vec<String> {
    let begun = begin_due(state, at(seconds));
    begun.into_iter().map(|one| one.key).collect()
}

#[test]
fn each_consumer_has_one_delivery_in_flight() {
    let mut state = queued(&["pager", "slurm"], &[1, 2], &[Phase::Raised]);
    let begun = keys(&mut state, 0);
    assert_eq!(begun.len(), 2);
    assert!(begun[0].starts_with("pager-") && begun[1].starts_with("slurm-"));
    assert!(keys(&mut state, 100).is_empty());
    complete(&mut state, &begun[0], Ok(String::new()), DELAY, at(1)).unwrap();
    let next = keys(&mut state, 1);
    assert_eq!(next.len(), 1);
    assert!(next[0].starts_with("pager-") && next[0] != begun[0]);
}

#[test]
fn a_failing_target_delays_its_own_later_deliveries_and_no_others() {
    let phases = [Phase::Raised, Phase::Cleared];
    let mut state = queued(&["pager"], &[1, 2], &phases);
    let first = keys(&mut state, 0).remove(0);
    let error = DeliveryError::transient("refused");
    let record = complete(&mut state, &first, Err(error), DELAY, at(1)).unwrap();
    assert_eq!(record.outcome, Outcome::Retried);
    let second = keys(&mut state, 2).remove(0);
    assert!(second.contains("-0000000000000002-"), "{second}");
    complete(&mut state, &second, Ok(String::new()), DELAY, at(3)).unwrap();
    let third = keys(&mut state, 3).remove(0);
    assert!(third.contains("-0000000000000002-"), "{third}");
    complete(&mut state, &third, Ok(String::new()), DELAY, at(4)).unwrap();
    assert!(keys(&mut state, 4).is_empty());
    assert_eq!(keys(&mut state, 5), [first], "the same key again");
}

#[test]
fn a_consumer_can_ask_for_a_longer_wait() {
    let mut state = queued(&["pager"], &[1], &[Phase::Raised]);
    let key = keys(&mut state, 0).remove(0);
    let error = DeliveryError {
        retry_after: Some(Duration::from_mins(1)),
        ..DeliveryError::transient("busy")
    };
    complete(&mut state, &key, Err(error), DELAY, at(0)).unwrap();
    assert!(keys(&mut state, 59).is_empty());
    assert_eq!(keys(&mut state, 60).len(), 1);
}

#[test]
fn a_delivery_is_given_up_after_a_day() {
    let mut state = queued(&["pager"], &[1], &[Phase::Raised]);
    let mut seconds = 0;
    let mut outcomes = Vec::new();
    while let Some(key) = keys(&mut state, seconds).pop() {
        let error = DeliveryError::transient("refused");
        let wait = Duration::from_hours(5);
        let record = complete(&mut state, &key, Err(error), wait, at(seconds)).unwrap();
        outcomes.push(record.outcome);
        seconds += wait.as_secs();
    }
    assert_eq!(outcomes.len(), 6);
    assert_eq!(outcomes.last(), Some(&Outcome::Failed));
    assert!(at(seconds).millis_since(START) > GIVE_UP_AFTER.as_secs_f64() * 1e3);
    assert!(state.open[0].is_applied, "it may have arrived");
}

#[test]
fn a_rejected_beginning_leaves_nothing_to_end() {
    let mut state = queued(&["slurm"], &[1], &[Phase::Raised]);
    let key = keys(&mut state, 0).remove(0);
    let error = DeliveryError::permanent("no such node");
    let record = complete(&mut state, &key, Err(error), DELAY, at(0)).unwrap();
    assert_eq!(record.outcome, Outcome::Rejected);
    assert!(state.queue.is_empty() && !state.open[0].is_applied);
}

#[test]
fn the_end_of_a_node_replaces_what_was_not_sent_and_notifications_are_kept() {
    let phases = [Phase::Raised, Phase::Cleared];
    let mut state = queued(&["pager", "slurm"], &[1], &phases);
    let begun = keys(&mut state, 0);
    for key in &begun {
        let error = DeliveryError::transient("refused");
        complete(&mut state, key, Err(error), DELAY, at(0)).unwrap();
    }
    let records = withdraw_overtaken(&mut state, &policy(Mode::Act));
    assert_eq!(records.len(), 1);
    let left: Vec<_> = state
        .queue
        .iter()
        .map(|one| (one.consumer.as_str(), one.phase))
        .collect();
    let expected = [
        ("pager", Phase::Raised),
        ("pager", Phase::Cleared),
        ("slurm", Phase::Cleared),
    ];
    assert_eq!(left, expected);
}

#[test]
fn an_attempt_in_flight_is_never_withdrawn() {
    let mut state = queued(&["slurm"], &[1], &[Phase::Raised, Phase::Cleared]);
    assert_eq!(keys(&mut state, 0).len(), 1);
    assert!(withdraw_overtaken(&mut state, &policy(Mode::Act)).is_empty());
    assert_eq!(state.queue.len(), 2);
}
