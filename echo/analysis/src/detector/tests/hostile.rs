//! Hostile senders: output stays finite, and memory stays bounded.

use echo_core::ids::{CommId, RankInJob, RoleId};
use echo_core::model::detector_output::{DetectorOutput, Finding, Incident};
use echo_core::model::event::{OpSample, Reading, SeqRange, Source, StoredEvent, Summary};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_assert, prop_oneof, proptest};
use proptest::sample::{Index, select};
use proptest::test_runner::Config;

use crate::detector::Detector;
use crate::settings::Settings;
use crate::simulated::durations::{Durations, events, host_events};
use crate::simulated::{Job, Measured, instant};

/// All numbers of the output.
fn numbers(output: &DetectorOutput) -> Vec<f64> {
    let lost = output
        .lost
        .iter()
        .flat_map(|lost| [lost.lost_gpu_ms, lost.iterations]);
    let incidents = output.incidents.iter().flat_map(of_incident);
    lost.chain(incidents).collect()
}

fn of_incident(incident: &Incident) -> Vec<f64> {
    let mut all = vec![
        incident.first_iteration,
        incident.raised_iteration,
        incident.stability,
        incident.effect_ratio,
        incident.period_ms,
        incident.baseline.period_ms(),
        incident.confidence,
    ];
    all.extend(incident.cleared_iteration);
    if let Finding::Culprit(culprit) = &incident.finding {
        all.extend([culprit.lag_ms, culprit.z]);
    }
    all
}

/// Falsification of one point by its sender. Numbers are finite and durations not negative: other
/// points are rejected on ingest.
#[derive(Debug, Clone)]
enum Falsification {
    Histogram(u64, f64),
    Double(f64),
    Int(i64),
    Seqs(u64, u64),
    Unnumbered,
    Role(Option<u64>),
    Comm(u64),
    Iterations(Option<f64>),
    Rank(u32),
    Device,
    Anchor(u64, f64),
    Sample(u64, f64),
    Time(f64),
    Twice,
}

fn duration() -> impl Strategy<Value = f64> {
    prop_oneof![
        select(vec![0.0, 1e-300, 1e-9, 50.0, 1e9, 1e150, 1.7e308]),
        0.0..1e4_f64,
    ]
}

fn falsification() -> impl Strategy<Value = Falsification> {
    let count = select(vec![0, 1, 2, 40, 1_u64 << 53]);
    let seq = || prop_oneof![0..2_000_u64, select(vec![0, 1 << 40, (1 << 63) - 1])];
    prop_oneof![
        (count, duration()).prop_map(|(count, value)| Falsification::Histogram(count, value)),
        duration().prop_map(Falsification::Double),
        any::<i64>().prop_map(Falsification::Int),
        (seq(), seq()).prop_map(|(one, other)| Falsification::Seqs(one.min(other), one.max(other))),
        select(vec![
            Falsification::Unnumbered,
            Falsification::Device,
            Falsification::Twice
        ]),
        select(vec![None, Some(0), Some(7), Some(8), Some(u64::MAX)]).prop_map(Falsification::Role),
        any::<u64>().prop_map(Falsification::Comm),
        select(vec![None, Some(1e-300), Some(0.5), Some(4.0), Some(1e300)])
            .prop_map(Falsification::Iterations),
        (0..10_u32).prop_map(Falsification::Rank),
        (seq(), -1e12..1e12_f64).prop_map(|(seq, ms)| Falsification::Anchor(seq, ms)),
        (seq(), duration()).prop_map(|(seq, ms)| Falsification::Sample(seq, ms)),
        (-1e9..1e9_f64).prop_map(Falsification::Time),
    ]
}

/// Falsified points: the index of the first one, their number, and the falsification.
fn falsifications() -> impl Strategy<Value = Vec<(Index, usize, Falsification)>> {
    vec((any::<Index>(), 1..60_usize, falsification()), 0..30)
}

fn falsify(
    mut events: Vec<StoredEvent>,
    falsifications: &[(Index, usize, Falsification)],
) -> Vec<StoredEvent> {
    for (at, count, falsification) in falsifications {
        let at = at.index(events.len());
        if matches!(falsification, Falsification::Twice) {
            let again = events[at].clone();
            events.insert(at, again);
        }
        for stored in events.iter_mut().skip(at).step_by(3).take(*count) {
            apply(stored, falsification);
        }
    }
    events
}

fn apply(stored: &mut StoredEvent, falsification: &Falsification) {
    let event = &mut stored.event;
    let block = event.block.as_mut().unwrap();
    match *falsification {
        Falsification::Histogram(count, value) => {
            event.reading = Reading::Histogram(Summary {
                count,
                sum: if count == 0 { 0.0 } else { value },
                min: None,
                max: None,
            });
        }
        Falsification::Double(value) => event.reading = Reading::Double(value),
        Falsification::Int(value) => event.reading = Reading::Int(value),
        Falsification::Seqs(first, last) => block.seqs = SeqRange::new(first, last),
        Falsification::Unnumbered => block.seqs = None,
        Falsification::Role(role) => block.role = role.map(RoleId::new),
        Falsification::Comm(comm) => block.comm = CommId::new(comm),
        Falsification::Iterations(iterations) => block.iterations = iterations,
        Falsification::Rank(rank) => {
            let mut origin = (*event.origin).clone();
            origin.rank = RankInJob::new(i64::from(rank), Some(16)).ok();
            event.origin = origin.into();
        }
        Falsification::Device => block.source = Source::Device,
        Falsification::Anchor(seq, offset_ms) => {
            block.anchor = Some(echo_core::model::event::Anchor { seq, offset_ms });
        }
        Falsification::Sample(seq, value) => event.samples.push(OpSample {
            seq,
            value,
            timestamp: instant(0.0),
        }),
        Falsification::Time(ms) => stored.received = instant(ms),
        Falsification::Twice => {}
    }
}

/// Six ranks that wait for rank 2 from block 60 on, seen by their GPUs or by their hosts, and the
/// blocks of their agents.
fn story(source: Source) -> Vec<StoredEvent> {
    let block_ms = |block| if block >= 60 { 1_000.0 } else { 500.0 };
    let waits = |block, rank| Durations {
        inside_ms: if block >= 60 && rank != 2 { 34.25 } else { 3.0 },
        ..Durations::HEALTHY
    };
    let mut events = match source {
        Source::Device => events(6, 100, block_ms, waits),
        Source::Host => host_events(6, 100, block_ms, waits),
    };
    let of_agents = Job::with_ranks(6).events(350, |_, _| Measured::HEALTHY);
    events.extend(of_agents.into_iter().map(|stored| StoredEvent {
        received: stored.event.timestamp,
        ..stored
    }));
    events.sort_by_key(|stored| stored.received);
    events
}

proptest! {
    #![proptest_config(Config::with_cases(96))]

    #[test]
    fn no_sender_causes_output_that_is_not_a_number(falsifications in falsifications()) {
        for story in [story(Source::Host), story(Source::Device)] {
            let mut detector = Detector::new(Settings::default());
            let mut output = detector.observe(&falsify(story, &falsifications));
            output.append(detector.end_silent_jobs(instant(1e10)));
            let wrong: Vec<f64> = numbers(&output).into_iter().filter(|n| !n.is_finite()).collect();
            prop_assert!(wrong.is_empty(), "{wrong:?}: {:#?}", output.incidents.last());
        }
    }
}

#[test]
fn ranks_that_change_their_role_in_every_block_name_no_other_rank() {
    let mut events = story(Source::Device);
    for stored in &mut events {
        let rank = stored.event.origin.rank.unwrap().rank().value();
        let block = stored.event.block.as_mut().unwrap();
        if rank == 5 && block.role.is_some() {
            block.role = Some(RoleId::new(block.seqs.unwrap().first()));
        }
    }
    let found = crate::simulated::outcome::incidents(&events);
    assert_eq!(crate::simulated::outcome::named(&found), [2], "{found:#?}");
}
