//! Ranks that two nodes report.

use std::sync::Arc;

use echo_core::model::detector_output::{ConditionKind, Incident, IncidentState};
use echo_core::model::event::{Reading, StoredEvent};
use fleet_proto::metric;

use crate::detector::Detector;
use crate::settings::Settings;
use crate::simulated::outcome::{condition, incidents, kinds, last_states, named};
use crate::simulated::{Job, Measured, instant};

/// Milliseconds of one block.
const BLOCK_MS: f64 = 200.0;

/// A healthy job of four ranks, each on a node of its own. Points arrive when their block ends.
fn healthy(n_blocks: u64) -> Vec<StoredEvent> {
    let mut events = Job::with_ranks(4).events(n_blocks, |_, _| Measured::HEALTHY);
    for stored in &mut events {
        stored.received = stored.event.timestamp;
    }
    events
}

/// Reports of a rank, changed as if it were late and on another node.
fn claimed(events: &[StoredEvent], rank: u32, node: &str) -> Vec<StoredEvent> {
    let of_rank = |stored: &&StoredEvent| stored.event.origin.rank.unwrap().rank().value() == rank;
    let mut claimed: Vec<StoredEvent> = events.iter().filter(of_rank).cloned().collect();
    for stored in &mut claimed {
        let mut origin = (*stored.event.origin).clone();
        origin.node = node.parse().unwrap();
        stored.event.origin = Arc::new(origin);
        if let (metric::HOST_GAP, Reading::Histogram(gaps)) =
            (stored.event.metric.as_str(), &mut stored.event.reading)
        {
            gaps.sum *= 10.0;
            (gaps.min, gaps.max) = (None, None);
        }
    }
    claimed
}

/// Both in the order in which they arrive.
fn together(one: Vec<StoredEvent>, other: Vec<StoredEvent>) -> Vec<StoredEvent> {
    let mut all = [one, other].concat();
    all.sort_by_key(|stored| stored.received);
    for (stored, id) in all.iter_mut().zip(1..) {
        stored.id = id;
    }
    all
}

fn conflict(found: &[Incident]) -> &Incident {
    let is_conflict = |incident: &&Incident| {
        condition(incident).is_some_and(|it| it.kind == ConditionKind::IdentityConflict)
    };
    found.iter().find(is_conflict).unwrap()
}

#[test]
fn a_node_that_reports_a_rank_of_another_causes_no_culprit_and_both_nodes_are_named() {
    let own = healthy(60);
    let claims = claimed(&own, 2, "node-3");
    let found = incidents(&together(own, claims));
    assert_eq!(named(&found), [0_u32; 0], "{found:#?}");
    let conflict = conflict(&found);
    assert_eq!(condition(conflict).unwrap().ranks.len(), 1);
    assert_eq!(
        conflict.reason,
        "rank 2 is reported by node-2, which was first, and by node-3, whose 224 points are ignored"
    );
    assert_eq!(conflict.state, IncidentState::Open);
}

#[test]
fn a_conflict_ends_when_the_second_node_has_been_silent_for_the_silence_timeout() {
    let own = healthy(260);
    let claims = claimed(&own, 2, "node-3");
    let claims = claims[..claims.len() / 4].to_vec();
    let found = incidents(&together(own, claims));
    assert_eq!(conflict(&found).state, IncidentState::Cleared);
}

#[test]
fn a_rank_that_moved_to_another_node_is_analysed_there() {
    let own = healthy(60);
    let gone_ms = 60.0 * BLOCK_MS;
    let mut moved = healthy(300);
    // The old node stops after a fifth of the events, and the new one begins after a long silence.
    moved.retain(|stored| stored.received.millis_since(instant(gone_ms)) > 31_000.0);
    for stored in &mut moved {
        let mut origin = (*stored.event.origin).clone();
        origin.node = format!("new-{}", origin.node).parse().unwrap();
        stored.event.origin = Arc::new(origin);
    }
    let mut detector = Detector::new(Settings::default());
    let found = last_states(&detector.observe(&together(own, moved)));
    assert!(!kinds(&found).contains(&ConditionKind::IdentityConflict));
    assert_eq!(detector.policy_inputs().len(), 1);
}

#[test]
fn points_buffered_before_a_node_lost_the_rank_are_no_conflict() {
    let own = healthy(60);
    let late = 60.0f64.mul_add(BLOCK_MS, 40_000.0);
    let kept = claimed(&own, 2, "node-2");
    let mut moved = healthy(400);
    moved.retain(|stored| stored.received.millis_since(instant(late)) > 0.0);
    for stored in &mut moved {
        let mut origin = (*stored.event.origin).clone();
        origin.node = format!("new-{}", origin.node).parse().unwrap();
        stored.event.origin = Arc::new(origin);
    }
    // The points arrive shortly before the rank is on its new node, or long after.
    for delay_s in [45, 60] {
        let mut kept = kept.clone();
        for stored in &mut kept {
            stored.received = stored.received.offset(delay_s * 1_000_000_000);
        }
        let found = incidents(&together(together(own.clone(), moved.clone()), kept));
        let kinds = kinds(&found);
        assert!(
            !kinds.contains(&ConditionKind::IdentityConflict),
            "{found:#?}"
        );
    }
}
