use std::collections::BTreeSet;
use std::sync::Arc;

use echo_core::ids::RankInJob;
use echo_core::model::detector_output::{
    ConditionKind, Finding, Incident, IncidentState, Severity,
};
use echo_core::model::event::{Event, Origin, Reading, StoredEvent};
use echo_core::policy_table::HealthThreshold;
use echo_core::units::Nanos;
use statrs::distribution::{ContinuousCDF, Normal};

use super::{Health, HealthConfig};

const SECOND: i64 = 1_000_000_000;

fn at(seconds: i64) -> Nanos {
    Nanos::EARLIEST.offset(seconds * SECOND)
}

/// Returns a score that `node` measured one second before it arrived at `seconds`.
fn event(node: usize, seconds: i64, reading: Reading) -> StoredEvent {
    let origin = Origin {
        cluster: "prod".parse().unwrap(),
        node: format!("node-{node}").parse().unwrap(),
        rank: (node == 0).then(|| RankInJob::new(0, None).unwrap()),
        job: None,
        gpu_model: None,
        gpu_uuid: None,
        namespace: None,
        pod: None,
    };
    StoredEvent {
        id: 1,
        received: at(seconds),
        event: Event {
            timestamp: at(seconds - 1),
            start: None,
            origin: Arc::new(origin),
            metric: "ingero.node.health_score".parse().unwrap(),
            unit: Arc::from(""),
            reading,
            block: None,
            attrs: Arc::from("{}"),
            samples: Vec::new(),
        },
    }
}

/// Returns scores of nodes 0, 1, ... that arrive at the same time.
fn round(seconds: i64, scores: &[f64]) -> Vec<StoredEvent> {
    let scores = scores.iter().enumerate();
    scores
        .map(|(node, score)| event(node, seconds, Reading::Double(*score)))
        .collect()
}

fn health() -> Health {
    Health::new(HealthConfig::default())
}

fn threshold(health: &Health, seconds: i64) -> HealthThreshold {
    health.thresholds(at(seconds)).next().unwrap().1
}

const GOOD: [f64; 6] = [0.95, 0.94, 0.96, 0.95, 0.93, 0.95];
const BAD_0: [f64; 6] = [0.41, 0.94, 0.96, 0.95, 0.93, 0.95];

/// Returns the incidents of rounds five seconds apart.
fn incidents(rounds: &[[f64; 6]]) -> Vec<Incident> {
    let mut health = health();
    let rounds = rounds.iter().zip(0..);
    rounds
        .flat_map(|(scores, n)| health.observe(&round(5 * n, scores)).incidents)
        .collect()
}

#[test]
fn two_low_scores_raise_an_incident_and_three_good_ones_clear_it() {
    assert!(incidents(&[GOOD, BAD_0]).is_empty());
    let raised = incidents(&[GOOD, GOOD, BAD_0, BAD_0]);
    let [incident] = &raised[..] else {
        panic!("{raised:?}");
    };
    assert_eq!(&*incident.cohort, "health/prod");
    assert_eq!(incident.first_seen, at(9));
    assert_eq!(incident.raised_at, at(14));
    let Finding::Condition(condition) = &incident.finding else {
        panic!("{incident:?}");
    };
    assert_eq!(condition.kind, ConditionKind::UnhealthyNode);
    assert_eq!(condition.node.as_ref().unwrap().as_str(), "node-0");
    assert_eq!(condition.ranks.len(), 1);
    assert!(
        condition
            .detail
            .starts_with("node node-0 (rank 0) reports health score 0.41, below the threshold 0.9"),
        "{}",
        condition.detail
    );
    let states = |rounds: &[[f64; 6]]| -> Vec<IncidentState> {
        incidents(rounds)
            .iter()
            .map(|incident| incident.state)
            .collect()
    };
    assert_eq!(
        states(&[GOOD, BAD_0, BAD_0, GOOD, GOOD]),
        [IncidentState::Open]
    );
    assert_eq!(
        states(&[GOOD, BAD_0, BAD_0, GOOD, GOOD, GOOD]),
        [IncidentState::Open, IncidentState::Cleared]
    );
}

#[test]
fn an_incident_that_recurs_soon_is_reopened() {
    let all = incidents(&[GOOD, BAD_0, BAD_0, GOOD, GOOD, GOOD, BAD_0, BAD_0]);
    let last = all.last().unwrap();
    assert_eq!((last.id, last.occurrences), (all[0].id, 2));
}

#[test]
fn a_single_low_score_raises_no_incident() {
    assert!(incidents(&[GOOD, BAD_0, GOOD, BAD_0, GOOD]).is_empty());
}

#[test]
fn no_node_is_reported_when_all_get_worse_together() {
    let worse = [0.70, 0.69, 0.71, 0.70, 0.68, 0.70];
    assert!(incidents(&[GOOD, GOOD, worse, worse, worse, worse]).is_empty());
}

#[test]
fn without_quorum_there_is_neither_threshold_nor_incident() {
    let mut health = health();
    for n in 0..5 {
        let few = round(5 * n, &BAD_0[..4]);
        assert!(health.observe(&few).incidents.is_empty());
    }
    let known = threshold(&health, 20);
    assert_eq!((known.threshold, known.quorum_met), (None, false));
    assert_eq!((known.nodes_reporting, known.nodes_needed), (4, 5));
    health.observe(&[event(4, 21, Reading::Double(0.9))]);
    assert!(threshold(&health, 21).quorum_met);
}

#[test]
fn quorum_k_and_weight_are_configurable() {
    let mut health = Health::new(HealthConfig {
        k: 2.0,
        ema_alpha: 0.5,
        quorum: 2,
    });
    health.observe(&round(0, &[0.9, 0.9]));
    let first = threshold(&health, 0).threshold.unwrap();
    assert!((first - (2.0 * 1.4826_f64).mul_add(-0.01, 0.9)).abs() < 1e-9);
    health.observe(&round(1, &[1.0, 1.0]));
    health.observe(&round(6, &[1.0, 1.0]));
    let second = threshold(&health, 6).threshold.unwrap();
    assert!((second - first - 0.05).abs() < 1e-9, "{first} {second}");
}

#[test]
fn old_scores_expire() {
    let mut health = health();
    health.observe(&round(0, &GOOD));
    assert_eq!(threshold(&health, 60).nodes_reporting, 6);
    let old = threshold(&health, 61);
    assert_eq!((old.nodes_reporting, old.quorum_met), (0, false));
}

#[test]
fn invalid_scores_are_counted_and_ignored() {
    let mut health = health();
    let odd = [
        Reading::Double(1.01),
        Reading::Double(-0.1),
        Reading::Double(f64::NAN),
        Reading::Int(2),
    ];
    for reading in odd {
        health.observe(&[event(0, 0, reading)]);
    }
    assert_eq!((health.ignored(), health.thresholds(at(0)).count()), (4, 0));
    health.observe(&[event(0, 0, Reading::Int(1))]);
    assert_eq!(threshold(&health, 0).nodes_reporting, 1);
}

#[test]
fn scores_that_arrive_together_can_be_processed_in_any_order_and_batches() {
    let rounds = [GOOD, BAD_0, BAD_0, GOOD, BAD_0];
    let (mut whole, mut pieces) = (health(), health());
    for (scores, n) in rounds.iter().zip(0..) {
        let mut events = round(5 * n, scores);
        let mut one = whole.observe(&events).incidents;
        events.rotate_left(2);
        let (left, right) = events.split_at(3);
        let mut other = pieces.observe(left).incidents;
        other.extend(pieces.observe(right).incidents);
        one.sort_by_key(|incident| incident.id);
        other.sort_by_key(|incident| incident.id);
        assert_eq!(one, other);
        // Queries change nothing.
        assert_eq!(threshold(&whole, 5 * n), threshold(&pieces, 5 * n));
    }
}

#[test]
fn the_incident_of_a_silent_node_is_cleared() {
    let mut health = health();
    for (scores, n) in [GOOD, BAD_0, BAD_0].iter().zip(0..) {
        health.observe(&round(5 * n, scores));
    }
    assert!(health.end_silent_nodes(at(310)).is_empty());
    let ended = health.end_silent_nodes(at(311)).incidents;
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].state, IncidentState::Cleared);
    assert_eq!(ended[0].cleared_at, Some(at(9)));
    let why = "; cleared because the node has not reported since";
    assert!(ended[0].reason.ends_with(why), "{}", ended[0].reason);
    assert_eq!(health.thresholds(at(610)).count(), 1);
    assert!(health.end_silent_nodes(at(611)).is_empty());
    assert_eq!(health.thresholds(at(611)).count(), 0);
}

/// Raises an incident of node 0 in a cluster that then has no quorum from 10 s to `until`.
fn lose_quorum_until(health: &mut Health, until: i64) -> Vec<Incident> {
    let with_quorum = [GOOD, BAD_0, BAD_0].iter().zip(0..);
    let raised =
        with_quorum.flat_map(|(scores, n)| health.observe(&round(5 * n, scores)).incidents);
    assert_eq!(raised.count(), 1);
    let few = (15..until).step_by(5);
    few.flat_map(|second| health.observe(&round(second, &BAD_0[..2])).incidents)
        .collect()
}

#[test]
fn an_incident_is_cleared_when_the_quorum_has_been_lost_for_five_minutes() {
    // The last scores of the peers are valid until 70 s, so node 0 is compared until then.
    let mut health = health();
    let goes_on = lose_quorum_until(&mut health, 371);
    assert!(goes_on.iter().all(|it| it.state == IncidentState::Open));
    let cleared = health.observe(&round(375, &BAD_0[..2])).incidents;
    let [incident] = &cleared[..] else {
        panic!("{cleared:?}");
    };
    assert_eq!(incident.state, IncidentState::Cleared);
    assert_eq!(incident.cleared_at, Some(at(69)));
    let why = "; cleared because fewer than 5 nodes have reported since, so there is no threshold";
    assert!(incident.reason.ends_with(why), "{}", incident.reason);
    assert!(health.end_silent_nodes(at(380)).is_empty());
}

#[test]
fn an_incident_stays_open_if_the_quorum_returns_in_time() {
    let mut health = health();
    lose_quorum_until(&mut health, 300);
    for n in 60..62 {
        let states: Vec<_> = health.observe(&round(5 * n, &BAD_0)).incidents;
        assert!(states.iter().all(|it| it.state == IncidentState::Open));
    }
}

#[test]
fn low_scores_from_before_a_long_loss_of_quorum_do_not_count() {
    let mut health = health();
    lose_quorum_until(&mut health, 400);
    let back = [GOOD, BAD_0].iter().zip(80..);
    let incidents = back.flat_map(|(scores, n)| health.observe(&round(5 * n, scores)).incidents);
    assert_eq!(incidents.count(), 0);
    let again = health.observe(&round(410, &BAD_0)).incidents;
    assert_eq!((again.len(), again[0].first_seen), (1, at(404)));
}

/// Counts incidents of a healthy cluster of 64 nodes in 1,000 rounds with normally distributed
/// scores.
fn false_incidents(k: f64) -> usize {
    let mut health = Health::new(HealthConfig {
        k,
        ..HealthConfig::default()
    });
    let normal = Normal::new(0.0, 0.02).unwrap();
    let mut state = 7_u64;
    let mut raised = BTreeSet::new();
    for n in 0..1_000 {
        let scores: Vec<f64> = (0..64)
            .map(|_| {
                // Knuth's linear congruential generator; its upper bits are good enough to draw
                // from.
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let uniform = (f64::from((state >> 33) as u32) + 0.5) / f64::from(1_u32 << 31);
                (0.9 + normal.inverse_cdf(uniform)).clamp(0.0, 1.0)
            })
            .collect();
        let changed = health.observe(&round(5 * n, &scores)).incidents;
        let opened = changed
            .iter()
            .filter(|incident| incident.state == IncidentState::Open);
        raised.extend(opened.map(|incident| (incident.id, incident.occurrences)));
    }
    raised.len()
}

#[test]
fn a_healthy_cluster_has_no_incidents_at_the_default_k_and_many_at_two() {
    assert_eq!(false_incidents(HealthConfig::default().k), 0);
    let raised = false_incidents(2.0);
    assert!(raised > 20, "{raised}");
}

#[test]
fn an_incident_continues_unchanged_over_a_restart() {
    let rounds = [GOOD, GOOD, BAD_0, BAD_0, BAD_0, GOOD, GOOD, GOOD];
    let unbroken = incidents(&rounds);
    let feed = |health: &mut Health, rounds: &[([f64; 6], i64)]| -> Vec<Incident> {
        let rounds = rounds.iter();
        rounds
            .flat_map(|(scores, n)| health.observe(&round(5 * n, scores)).incidents)
            .collect()
    };
    let numbered: Vec<_> = rounds.into_iter().zip(0..).collect();
    for restart in 4..rounds.len() {
        let (before, after) = numbered.split_at(restart);
        let known = feed(&mut health(), before);
        let mut again = health();
        // The replay begins in the middle of the incident.
        feed(&mut again, &before[2..]);
        let ended = again.restore(known.last().cloned().into_iter().collect(), at(0));
        assert!(ended.is_empty(), "{restart}: {ended:?}");
        let rest = feed(&mut again, after);
        // The reason differs, because the average restarts.
        let outcome = |incidents: &[Incident]| -> Vec<_> {
            let incidents = incidents.iter();
            incidents
                .map(|incident| {
                    (
                        incident.id,
                        incident.state,
                        incident.last_seen,
                        incident.occurrences,
                    )
                })
                .collect()
        };
        assert_eq!(
            outcome(&rest),
            outcome(&unbroken[known.len()..]),
            "{restart}"
        );
    }
}

#[test]
fn the_incident_of_a_missing_node_ends_after_a_restart() {
    let open = incidents(&[GOOD, GOOD, BAD_0, BAD_0]);
    let ended = health().restore(open.clone(), at(0)).incidents;
    assert_eq!(ended.len(), 1);
    assert_eq!(
        (ended[0].id, ended[0].state),
        (open[0].id, IncidentState::Cleared)
    );
}

#[test]
fn the_severity_follows_from_the_largest_distance_of_a_score_from_the_threshold() {
    let severity = |scores: &[f64]| {
        let rounds = scores.iter().map(|score| {
            let mut round = GOOD;
            round[0] = *score;
            round
        });
        let rounds: Vec<_> = [GOOD, GOOD].into_iter().chain(rounds).collect();
        incidents(&rounds).last().unwrap().severity
    };
    assert_eq!(severity(&[0.85, 0.85]), Severity::Info);
    assert_eq!(severity(&[0.7, 0.7]), Severity::Warn);
    assert_eq!(severity(&[0.41, 0.41]), Severity::Critical);
    assert_eq!(severity(&[0.85, 0.41, 0.7]), Severity::Critical);
}
