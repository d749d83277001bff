//! Jobs whose GPUs are not timed: judged by the waits of their hosts.

use echo_core::model::detector_output::{CauseClass, ConditionKind, IncidentState, Signal};
use echo_core::model::event::{Event, Source, StoredEvent};
use fleet_proto::metric;

use crate::detector::Detector;
use crate::settings::Settings;
use crate::simulated::durations::{Durations, events, host_events};
use crate::simulated::instant;
use crate::simulated::outcome::{culprit, detect, kinds, last_states, named};

/// Blocks of half a second before the fault.
const HEALTHY: u64 = 100;

fn is_slow(block: u64) -> bool {
    (HEALTHY..HEALTHY + 30).contains(&block)
}

fn block_ms(block: u64) -> f64 {
    if is_slow(block) { 1_000.0 } else { 500.0 }
}

/// The ranks wait for rank 2 for half of the time in 30 s.
fn waits(block: u64, rank: u32) -> Durations {
    let is_waiting = is_slow(block) && rank != 2;
    Durations {
        inside_ms: if is_waiting { 18.0 + 31.25 } else { 18.0 },
        lead_ms: 0.0,
    }
}

fn held_back() -> Vec<StoredEvent> {
    host_events(4, HEALTHY + 80, block_ms, waits)
}

/// Adds to each wait of a host the time that it was blocked, which is the wait.
fn with_blocked(events: Vec<StoredEvent>) -> Vec<StoredEvent> {
    let blocked = |stored: &StoredEvent| StoredEvent {
        event: Event {
            metric: metric::BLOCKED.parse().unwrap(),
            ..stored.event.clone()
        },
        ..stored.clone()
    };
    let both = |stored: StoredEvent| [blocked(&stored), stored];
    events.into_iter().flat_map(both).collect()
}

#[test]
fn the_rank_whose_host_waits_least_while_the_job_is_slow_is_named_with_its_cost() {
    let output = detect(&with_blocked(held_back()));
    let incidents = last_states(&output);
    assert_eq!(named(&incidents), [2], "{incidents:#?}");
    let found = culprit(&incidents[0]).unwrap();
    assert_eq!(
        (found.class, found.signal, found.source),
        (CauseClass::Host, Signal::Wait, Source::Host)
    );
    assert_eq!(incidents[0].state, IncidentState::Cleared);
    let mut lost = std::collections::BTreeMap::new();
    for row in &output.lost {
        lost.insert((row.node.clone(), row.interval.from()), row.lost_gpu_ms);
    }
    // 30 s in which four GPUs lose half of their time.
    let lost = lost.values().sum::<f64>() / 1e3;
    assert!((lost - 60.0).abs() < 6.0, "{lost}");
}

#[test]
fn without_the_time_that_hosts_are_blocked_the_class_is_unknown() {
    let incidents = last_states(&detect(&held_back()));
    assert_eq!(named(&incidents), [2]);
    let class = culprit(&incidents[0]).unwrap().class;
    assert_eq!(class, CauseClass::Inconclusive);
}

/// Hosts that never wait. From block `HEALTHY` on, the host of rank 2 enqueues 70 ms later than the
/// others; its clock is 20 s fast, but steady.
fn enqueued_late(late_ms: impl Fn(u64, u32) -> f64) -> Vec<StoredEvent> {
    let enqueued = |block: u64, rank: u32| Durations {
        inside_ms: 0.0,
        lead_ms: 250.0 - late_ms(block, rank),
    };
    let mut events = host_events(4, HEALTHY + 80, block_ms, enqueued);
    for StoredEvent { event, .. } in &mut events {
        if event.origin.rank.map(|rank| rank.rank().value()) == Some(2) {
            event.timestamp = event.timestamp.offset(20_000_000_000);
        }
    }
    events
}

#[test]
fn of_hosts_that_never_wait_the_one_that_enqueues_late_is_named_whatever_its_clock_says() {
    let late = |block, rank| {
        let noise = f64::from(u32::try_from(block * 7 % 5).unwrap()) * f64::from(rank);
        let own = if is_slow(block) && rank == 2 {
            70.0
        } else {
            0.0
        };
        own + noise
    };
    let incidents = last_states(&detect(&enqueued_late(late)));
    assert_eq!(named(&incidents), [2], "{incidents:#?}");
    let reason = &incidents[0].reason;
    assert!(
        reason.contains("its host enqueues operations 70.0 ms later"),
        "{reason}"
    );
    assert!(culprit(&incidents[0]).unwrap().lag_ms > 0.0);
}

#[test]
fn a_host_that_enqueues_late_now_and_then_in_its_past_as_well_is_not_named() {
    let late = |block: u64, rank: u32| {
        let turns = block / 4 % 4 == u64::from(rank);
        if turns { 70.0 } else { 0.0 }
    };
    let incidents = last_states(&detect(&enqueued_late(late)));
    assert_eq!(kinds(&incidents), [ConditionKind::UniformSlowdown]);
}

#[test]
fn a_loss_that_no_host_explains_may_be_a_gpu_and_only_the_plugin_would_show_it() {
    let alike = |_, _| Durations {
        inside_ms: 18.0,
        lead_ms: 0.0,
    };
    let incidents = last_states(&detect(&host_events(4, HEALTHY + 80, block_ms, alike)));
    assert_eq!(kinds(&incidents), [ConditionKind::UniformSlowdown]);
    assert!(incidents[0].reason.contains("profiler plugin"));
}

#[test]
fn a_job_with_times_of_its_gpus_is_judged_by_them_alone() {
    let of_gpus = events(4, HEALTHY + 80, |_| 500.0, |_, _| Durations::HEALTHY);
    let of_hosts = host_events(4, HEALTHY + 80, |_| 500.0, waits);
    let both = of_gpus.iter().zip(&of_hosts);
    let both: Vec<StoredEvent> = both
        .flat_map(|(gpu, host)| [host.clone(), gpu.clone()])
        .collect();
    assert_eq!(detect(&both), detect(&of_gpus));
}

#[test]
fn an_incident_found_by_the_waits_of_hosts_survives_a_restart() {
    let all = held_back();
    let until = all.len() * 7 / 10;
    let (before, after) = all.split_at(until);
    let mut detector = Detector::new(Settings::default());
    let open = last_states(&detector.observe(before));
    assert_eq!(named(&open), [2], "{open:#?}");

    let mut restarted = Detector::new(Settings::default());
    restarted.observe(before);
    let output = restarted.restore(open.clone(), instant(0.0), 30_000.0);
    assert_eq!(output.incidents, []);
    let last = last_states(&restarted.observe(after));
    assert_eq!(named(&last), [2]);
    assert_eq!(
        (last[0].id, last[0].state),
        (open[0].id, IncidentState::Cleared)
    );
}
