//! Selection: which open incidents the rules select for which consumer.

use std::collections::BTreeMap;

use crate::breaker::ClusterHealth;
use crate::notice::{Candidate, Notice};
use crate::policy::{Policy, Rule};
use crate::state::{OpenAction, target};

/// What Echo knows at one time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Snapshot {
    /// Open incidents with a culprit.
    pub candidates: Vec<Candidate>,
    /// Clusters that report.
    pub clusters: BTreeMap<String, ClusterHealth>,
    /// True if the detector is behind the events.
    pub is_behind: bool,
    /// True if the kill switch is on.
    pub is_killed: bool,
}

/// An incident that a rule selects for a consumer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Match<'a> {
    /// The incident.
    pub(crate) candidate: &'a Candidate,
    /// The rule.
    pub(crate) rule: &'a Rule,
}

/// Matches by consumer and target.
pub(crate) type Matches<'a> = BTreeMap<(&'a str, String), Vec<Match<'a>>>;

/// Identity of one occurrence of an incident.
pub(crate) fn occurrence(notice: &Notice) -> String {
    format!("{}/{}", notice.incident_id, notice.occurrence)
}

/// Groups the candidates by the consumers and targets that rules select them for.
pub(crate) fn matches<'a>(policy: &'a Policy, candidates: &'a [Candidate]) -> Matches<'a> {
    let mut matches = Matches::new();
    for rule in &policy.rules {
        for candidate in candidates.iter().filter(|one| rule.matches(one)) {
            for name in &rule.consumers {
                let Some(consumer) = policy.consumers.get(name) else {
                    continue;
                };
                let target = target(&consumer.destination, &candidate.notice);
                let group = matches.entry((name.as_str(), target)).or_default();
                group.push(Match { candidate, rule });
            }
        }
    }
    matches
}

/// Latest facts of an action: those of its incident, or of another one of its node.
pub(crate) fn latest(
    group: Option<&Vec<Match<'_>>>,
    action: &OpenAction,
    candidates: &[Candidate],
) -> Option<Notice> {
    let own = candidates.iter().find(|one| {
        one.notice.incident_id == action.notice.incident_id && one.notice.node == action.notice.node
    });
    let other = || group?.first().map(|one| one.candidate);
    own.or_else(other).map(|one| one.notice.clone())
}
