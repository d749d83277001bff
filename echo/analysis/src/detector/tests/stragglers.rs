//! Jobs whose ranks report the durations of their operations.

use echo_core::ids::Rank;
use echo_core::model::detector_output::{
    CauseClass, ConditionKind, DetectorOutput, Incident, IncidentState, Signal,
};
use echo_core::model::event::StoredEvent;
use echo_core::units::Nanos;

use super::stalls::paced;
use crate::detector::Detector;
use crate::settings::Settings;
use crate::simulated::durations::{Durations, events};
use crate::simulated::outcome::{culprit, detect, kinds, last_states, named};
use crate::simulated::{Job, Measured, instant};

/// Four ranks, 20 s healthy; then `slow` ranks hold back the others for 30 s, in which an operation
/// takes twice as long as usual, and 20 s are healthy again.
fn held_back_by(slow: &'static [u32]) -> Vec<StoredEvent> {
    let is_slow = |block: u64| (40..70).contains(&block);
    events(
        4,
        110,
        move |block| if is_slow(block) { 1_000.0 } else { 500.0 },
        move |block, rank| {
            let waits = is_slow(block) && !slow.contains(&rank);
            Durations {
                inside_ms: if waits { 3.0 + 31.25 } else { 3.0 },
                lead_ms: match (is_slow(block), waits) {
                    (true, true) => 300.0,
                    (true, false) => 1.0,
                    (false, _) => 100.0,
                },
            }
        },
    )
}

/// Lost time of an incident in the end, GPU-seconds.
fn lost_gpu_s(output: &DetectorOutput, incident: &Incident) -> f64 {
    let mut rows = std::collections::BTreeMap::new();
    for row in output.lost.iter().filter(|row| row.incident == incident.id) {
        rows.insert((row.node.clone(), row.interval.from()), row.lost_gpu_ms);
    }
    rows.values().sum::<f64>() / 1e3
}

#[test]
fn the_rank_that_the_others_wait_for_is_named_with_its_cost() {
    let output = detect(&held_back_by(&[2]));
    let incidents = last_states(&output);
    assert_eq!(named(&incidents), [2], "{incidents:#?}");
    let [incident] = incidents.as_slice() else {
        panic!("{incidents:#?}");
    };
    let found = culprit(incident).unwrap();
    assert_eq!(
        (found.class, found.signal),
        (CauseClass::Host, Signal::DeviceWait)
    );
    assert!((incident.effect_ratio - 1.0).abs() < 0.05, "{incident:#?}");
    // 30 s in which four GPUs lose half of their time.
    let lost = lost_gpu_s(&output, incident);
    assert!((lost - 60.0).abs() < 6.0, "{lost}");
    assert!(incident.first_seen.millis_since(instant(20_000.0)).abs() <= 2_000.0);
    assert_eq!(incident.state, IncidentState::Cleared);
}

#[test]
fn agents_are_told_the_named_rank_of_a_job_whose_calls_are_not_compared() {
    let all = held_back_by(&[2]);
    let (until_named, rest) = all.split_at(all.len() * 6 / 10);
    let mut detector = Detector::new(Settings::default());
    detector.observe(until_named);
    let inputs = detector.policy_inputs();
    let [(key, input)] = Vec::from_iter(&inputs)[..] else {
        panic!("{inputs:#?}");
    };
    assert!(key.to_string().ends_with("/0000000000000000"), "{key}");
    assert_eq!(input.outliers, [Rank::new(2)]);
    assert!(
        !input.quorum_met,
        "agents have no signal to classify themselves by"
    );
    detector.observe(rest);
    assert_eq!(detector.policy_inputs().len(), 0);
}

#[test]
fn an_incident_whose_loss_belongs_to_another_one_says_that_it_was_withdrawn() {
    // The ranks are late by turns, for 4 s each: all of them are slow.
    let is_slow = |block: u64| (40..100).contains(&block);
    let all = events(
        4,
        120,
        move |block| if is_slow(block) { 1_000.0 } else { 500.0 },
        move |block, rank| {
            let late = u64::from(rank) == block / 12 % 4;
            let waits = is_slow(block) && !late;
            Durations {
                inside_ms: if waits { 3.0 + 31.25 } else { 3.0 },
                lead_ms: 1.0,
            }
        },
    );
    let output = detect(&all);
    let incidents = last_states(&output);
    let withdrawn = |one: &&Incident| lost_gpu_s(&output, one) < 1e-6;
    let withdrawn: Vec<&Incident> = incidents.iter().filter(withdrawn).collect();
    assert!(!withdrawn.is_empty(), "{incidents:#?}");
    for incident in withdrawn {
        assert!(incident.reason.starts_with("withdrawn: "), "{incident:#?}");
        assert_eq!(incident.state, IncidentState::Cleared);
    }
}

#[test]
fn an_incident_is_open_within_ten_seconds_and_keeps_its_identity() {
    let output = detect(&held_back_by(&[2]));
    let first = output.incidents.first().unwrap();
    assert_eq!(first.state, IncidentState::Open);
    assert!(first.raised_at.millis_since(instant(20_000.0)) <= 10_000.0);
    assert!(
        output
            .incidents
            .iter()
            .all(|incident| incident.id == first.id)
    );
}

#[test]
fn a_loss_that_no_rank_explains_is_a_condition() {
    let slow = |block: u64| if block >= 40 { 1_000.0 } else { 500.0 };
    let output = detect(&events(4, 80, slow, |_, _| Durations::HEALTHY));
    let incidents = last_states(&output);
    assert_eq!(kinds(&incidents), [ConditionKind::UniformSlowdown]);
}

#[test]
fn iterations_are_told_where_agents_report_them() {
    let mut all = held_back_by(&[2]);
    let blocks = Job::with_ranks(4).events(100, |_, _| Measured::HEALTHY);
    all.extend(blocks.into_iter().map(|stored| StoredEvent {
        received: stored.event.timestamp,
        ..stored
    }));
    all.sort_by_key(|stored| stored.received);
    let incidents = last_states(&detect(&all));
    assert_eq!(named(&incidents), [2], "{incidents:#?}");
    assert!((incidents[0].baseline.period_ms() - 50.0).abs() < 1.0);
    assert!((incidents[0].period_ms - 100.0).abs() < 5.0);
    assert!(incidents[0].reason.contains("an iteration takes"));
}

#[test]
fn the_output_does_not_depend_on_how_many_events_come_at_a_time() {
    let all = held_back_by(&[2]);
    let whole = detect(&all);
    let mut detector = Detector::new(Settings::default());
    let mut parts = DetectorOutput::default();
    for part in all.chunks(7) {
        parts.append(detector.observe(part));
    }
    assert_eq!(last_states(&whole), last_states(&parts));
}

#[test]
fn an_incident_survives_a_restart_of_echo() {
    let all = held_back_by(&[2]);
    let until = instant(40_000.0);
    let (before, after): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| one.received < until);
    let known = last_states(&detect(&before));
    assert_eq!(named(&known), [2]);
    let mut detector = Detector::new(Settings::default());
    detector.observe(&before);
    let restored = detector.restore(known.clone(), until, 0.0);
    assert_eq!(restored.incidents, []);
    let later = last_states(&detector.observe(&after));
    assert_eq!(later.len(), 1, "{later:#?}");
    assert_eq!(
        (later[0].id, later[0].state),
        (known[0].id, IncidentState::Cleared)
    );
}

/// The same job, with its iterations, which take twice as long while it is held back.
fn with_iterations() -> Vec<StoredEvent> {
    let lengths = [vec![200.0; 100], vec![400.0; 75], vec![200.0; 100]].concat();
    let mut all = held_back_by(&[2]);
    all.extend(paced(0, 0.0, &lengths).0);
    all.sort_by_key(|stored| stored.received);
    all
}

#[test]
fn an_incident_whose_past_is_not_replayed_stays_open_until_the_iterations_are_as_fast_as_before() {
    let between = |from_ms: f64, to_ms: f64| {
        let span = instant(from_ms)..instant(to_ms);
        let all = with_iterations().into_iter();
        all.filter(|one| span.contains(&one.received))
            .collect::<Vec<_>>()
    };
    let known = last_states(&detect(&between(0.0, 40_000.0)));
    assert_eq!(named(&known), [2]);
    let mut detector = Detector::new(Settings::default());
    detector.observe(&between(30_000.0, 40_000.0));
    let restored = detector.restore(known.clone(), instant(40_000.0), 0.0);
    assert_eq!(restored.incidents, []);
    assert_eq!(detector.observe(&between(40_000.0, 49_000.0)).incidents, []);
    let later = last_states(&detector.observe(&between(49_000.0, 70_000.0)));
    let [ended] = later.as_slice() else {
        panic!("{later:#?}");
    };
    assert_eq!(
        (ended.id, ended.state),
        (known[0].id, IncidentState::Cleared)
    );
}

#[test]
fn a_rank_that_another_process_has_replaced_is_not_paid_for_twice() {
    let mut all = held_back_by(&[2]);
    for stored in all.iter_mut().filter(|one| one.received < instant(5_000.0)) {
        let event = &mut stored.event;
        let mut origin = (*event.origin).clone();
        origin.pod = Some("before-a-restart".into());
        event.origin = origin.into();
    }
    let output = detect(&all);
    let incidents = last_states(&output);
    assert_eq!(named(&incidents), [2], "{incidents:#?}");
    let lost = lost_gpu_s(&output, &incidents[0]);
    assert!((lost - 60.0).abs() < 6.0, "{lost}");
    assert!(output.lost.iter().all(|row| row.n_ranks == 1));
}

#[test]
fn a_job_that_falls_silent_ends_its_incident() {
    let until = instant(45_000.0);
    let mut events = held_back_by(&[2]);
    events.retain(|one| one.received < until);
    let mut detector = Detector::new(Settings::default());
    detector.observe(&events);
    assert_eq!(detector.end_silent_jobs(until).incidents, []);
    let day = Nanos::new(until.value() + 86_400_000_000_000);
    let ended = last_states(&detector.end_silent_jobs(day));
    assert_eq!(named(&ended), [2]);
    assert_eq!(ended[0].state, IncidentState::Cleared);
    assert_eq!(detector.end_silent_jobs(day).incidents, []);
}

#[test]
fn points_that_contradict_themselves_do_no_harm() {
    let mut all = held_back_by(&[2]);
    for (at, stored) in all.iter_mut().enumerate() {
        match at % 5 {
            0 => stored.event.attrs = "{}".into(),
            1 => stored.event.block = None,
            2 => stored.event.attrs = stored.event.attrs.replace(":4,", ":0,").into(),
            _ => {}
        }
    }
    assert_eq!(named(&last_states(&detect(&all))), [0_u32; 0]);
}
