//! What is named in recorded jobs, independent of the detector's internals.

use std::collections::BTreeMap;

use echo_analysis::detector::Detector;
use echo_analysis::settings::Settings;
use echo_bench::alert::ECHO;
use echo_bench::real::{self, JOBS, RealJob, deliveries};
use echo_bench::rule::Rule;
use echo_core::model::detector_output::{DetectorOutput, Finding};
use echo_core::model::event::{Event, StoredEvent};
use echo_core::units::Nanos;

use crate::repository;

/// Returns what the detector reports about a recorded job.
pub(crate) fn detected(job: &RealJob) -> DetectorOutput {
    let mut detector = Detector::new(Settings::default());
    let mut output = DetectorOutput::default();
    for delivery in deliveries(job, &repository("testdata")).unwrap() {
        output.append(detector.observe(&delivery.events));
    }
    output
}

/// Number of points that are read at a time.
const PIECE: usize = 500;

#[test]
fn exactly_the_expected_subjects_of_each_recorded_job_are_named() {
    let wrong = JOBS.iter().filter_map(|job| {
        let named = real::run(job, &repository("testdata")).unwrap()[ECHO].clone();
        (!named.is_exact(job)).then(|| format!("{}: {named}", job.name))
    });
    assert_eq!(wrong.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_report_has_a_column_for_each_method_and_a_row_for_each_job() {
    let text = real::markdown(&JOBS[..1], &repository("testdata")).unwrap();
    for name in Rule::ALL
        .map(Rule::name)
        .into_iter()
        .chain([ECHO, JOBS[0].name])
    {
        assert!(text.contains(name), "no {name} in\n{text}");
    }
}

/// Differences of the clocks of the ranks, milliseconds.
const SKEWS: [i64; 4] = [-90, 80, 30, -60];

fn events(job: &RealJob) -> Vec<StoredEvent> {
    let all = deliveries(job, &repository("testdata")).unwrap();
    let skewed = |stored: StoredEvent| {
        let rank = stored.event.origin.rank.unwrap().rank().value();
        let skew = 1_000_000 * SKEWS[rank as usize];
        let event = Event {
            timestamp: stored.event.timestamp.offset(skew),
            start: stored.event.start.map(|start| start.offset(skew)),
            ..stored.event
        };
        StoredEvent { event, ..stored }
    };
    let all = all.into_iter().flat_map(|one| one.events);
    all.map(skewed).collect()
}

/// Subjects of all incidents of a job with their begin and end. What is received of each rank is
/// `behind` tenths further behind than that of the one before it. It comes in messages about `seconds`
/// of the job, ordered by metric as on the wire, and is read in pieces.
fn incidents(events: &[StoredEvent], behind: i64, seconds: i64) -> Vec<(String, Nanos, Nanos)> {
    let first = events[0].received;
    let last = events.iter().map(|stored| stored.received).max().unwrap();
    let mut messages: BTreeMap<(i64, u32), Vec<StoredEvent>> = BTreeMap::new();
    for stored in events.iter().cloned() {
        let rank = stored.event.origin.rank.unwrap().rank().value();
        let elapsed_s = (stored.received.value() - first.value()) / 1_000_000_000;
        let at = elapsed_s / seconds * (10 + behind * i64::from(rank));
        let events = messages.entry((at, rank)).or_default();
        events.push(StoredEvent {
            received: last,
            ..stored
        });
    }
    let mut detector = Detector::new(Settings::default());
    let mut output = DetectorOutput::default();
    for mut message in messages.into_values() {
        message.sort_by(|a, b| a.event.metric.cmp(&b.event.metric));
        for piece in message.chunks(PIECE) {
            output.append(detector.observe(piece));
        }
    }
    let mut latest = BTreeMap::new();
    for incident in output.incidents {
        let subject = match &incident.finding {
            Finding::Culprit(culprit) => format!("rank {}", culprit.rank.value()),
            Finding::Condition(condition) => condition.kind.name().to_owned(),
        };
        latest.insert(
            incident.id,
            (subject, incident.first_seen, incident.last_seen),
        );
    }
    let mut latest: Vec<_> = latest.into_values().collect();
    latest.sort_by_key(|(_, first_seen, _)| *first_seen);
    latest
}

#[test]
fn the_speed_at_which_each_rank_is_received_changes_no_verdict() {
    // Two evaluations, which begin at other instants.
    let is_near = |a: Nanos, b: Nanos| a.millis_since(b).abs() < 4_000.0;
    let kinds = ["cpu-contention", "graphs"];
    let is_one = |job: &&RealJob| kinds.iter().any(|kind| job.name.contains(kind));
    for job in JOBS.iter().filter(is_one) {
        let events = events(job);
        let expected = incidents(&events, 0, 1);
        assert_eq!(expected.len(), 1, "{}: {expected:?}", job.name);
        for (behind, seconds) in [(10_000_000, 1), (1, 20), (100, 20)] {
            let found = incidents(&events, behind, seconds);
            let mut pairs = expected.iter().zip(&found);
            let is_same = found.len() == expected.len()
                && pairs.all(|(a, b)| a.0 == b.0 && is_near(a.1, b.1) && is_near(a.2, b.2));
            assert!(is_same, "{}: {found:?} instead of {expected:?}", job.name);
        }
    }
}
