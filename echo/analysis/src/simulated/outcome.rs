//! Final output of the detector.

use echo_core::model::detector_output::{
    Condition, ConditionKind, Culprit, DetectorOutput, Finding, Incident,
};
use echo_core::model::event::StoredEvent;

use crate::detector::Detector;
use crate::settings::Settings;

/// Detector output for the events with the settings of the specification.
pub fn detect(events: &[StoredEvent]) -> DetectorOutput {
    Detector::new(Settings::default()).observe(events)
}

/// The last state of each incident.
pub fn last_states(output: &DetectorOutput) -> Vec<Incident> {
    let mut last: Vec<Incident> = Vec::new();
    for incident in &output.incidents {
        last.retain(|known| known.id != incident.id);
        last.push(incident.clone());
    }
    last
}

/// The last state of each incident that follows from the events.
pub fn incidents(events: &[StoredEvent]) -> Vec<Incident> {
    last_states(&detect(events))
}

/// The culprit of the only incident that follows from the events.
pub fn only_culprit(events: &[StoredEvent]) -> Culprit {
    let incidents = incidents(events);
    assert_eq!(incidents.len(), 1, "{incidents:#?}");
    culprit(&incidents[0]).unwrap().clone()
}

/// The ranks that are named, incident by incident.
pub fn named(incidents: &[Incident]) -> Vec<u32> {
    let culprits = incidents.iter().filter_map(culprit);
    culprits.map(|culprit| culprit.rank.value()).collect()
}

/// The kinds of the conditions.
pub fn kinds(incidents: &[Incident]) -> Vec<ConditionKind> {
    let conditions = incidents.iter().filter_map(condition);
    conditions.map(|condition| condition.kind).collect()
}

/// The culprit of an incident that names one.
pub fn culprit(incident: &Incident) -> Option<&Culprit> {
    match &incident.finding {
        Finding::Culprit(culprit) => Some(culprit),
        Finding::Condition(_) => None,
    }
}

/// The condition of an incident without a culprit.
pub fn condition(incident: &Incident) -> Option<&Condition> {
    match &incident.finding {
        Finding::Culprit(_) => None,
        Finding::Condition(condition) => Some(condition),
    }
}

/// Returns the events in another order that keeps the order of each rank: `pick` chooses the next
/// rank among those with events left.
pub fn shuffled(events: &[StoredEvent], mut pick: impl FnMut(usize) -> usize) -> Vec<StoredEvent> {
    let mut stories: Vec<(_, std::collections::VecDeque<StoredEvent>)> = Vec::new();
    for stored in events {
        let rank = stored.event.origin.rank;
        match stories.iter_mut().find(|(of, _)| *of == rank) {
            Some((_, story)) => story.push_back(stored.clone()),
            None => stories.push((rank, [stored.clone()].into())),
        }
    }
    let mut shuffled = Vec::new();
    while !stories.is_empty() {
        let next = pick(stories.len()) % stories.len();
        shuffled.extend(stories[next].1.pop_front());
        if stories[next].1.is_empty() {
            stories.remove(next);
        }
    }
    shuffled
}
