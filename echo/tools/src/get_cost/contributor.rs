//! Costs by incident.

use std::collections::BTreeMap;

use echo_core::ids::IncidentId;
use echo_core::model::detector_output::{Finding, Incident, IncidentState};

use super::answer::{Amount, Contributor};
use super::bill::{Bill, LineItem, Sum, amount, largest_first, money};
use super::run_rate::RunRate;
use crate::lifecycle::{is_lower_bound, state_name};
use crate::outlier::{culprit, hang};
use crate::quality::Presence;

/// Bills that are split by incident.
pub(super) struct IncidentBills<'a> {
    /// Losses in the window.
    pub(super) lost: &'a Bill<'a>,
    /// Savings had one culprit alone been healthy.
    pub(super) saved: &'a Bill<'a>,
    /// Current loss per hour; `None` when unknown.
    pub(super) per_hour: Option<&'a RunRate<'a>>,
    /// Incidents in their state at the end of the window.
    pub(super) incidents: &'a BTreeMap<IncidentId, Incident>,
    /// Ranks that reported in the window.
    pub(super) presence: &'a Presence,
}

/// Returns the cost of each incident, largest first.
pub(super) fn contributors(bills: &IncidentBills<'_>) -> Vec<Contributor> {
    let key = |item: &LineItem<'_>| (item.loss.incident, item.loss.cluster.clone());
    let saved = bills.saved.sum_by(key);
    let per_hour = bills.per_hour.map(|run_rate| run_rate.sum_by(key));
    let rows = largest_first(bills.lost.sum_by(key)).map(|(group, sum)| {
        let cost =
            |sums: &BTreeMap<_, Sum>| money(sums.get(&group).copied().unwrap_or_default().cost);
        let ((id, cluster), currency) = &group;
        let incident = bills.incidents.get(id);
        let is_lost_now = incident.is_some_and(|one| {
            let reports = bills.per_hour.is_some_and(|rate| rate.has_job_of(one));
            one.state == IncidentState::Open && reports
        });
        let price_per_hour = per_hour.as_ref().map(cost);
        Contributor {
            cluster: cluster.to_string(),
            run_rate_per_hour: price_per_hour.filter(|_| is_lost_now && currency.is_some()),
            if_fixed: incident
                .and_then(culprit)
                .and(*currency)
                .map(|_| cost(&saved)),
            ..contributor((*id, incident), amount(*currency, sum), bills.presence)
        }
    });
    rows.collect()
}

fn contributor(
    (id, incident): (IncidentId, Option<&Incident>),
    amount: Amount,
    presence: &Presence,
) -> Contributor {
    let cause = incident.and_then(|incident| cause(incident, presence));
    let (node, rank) = cause.unzip();
    Contributor {
        incident_id: id.to_string(),
        cluster: String::new(),
        kind: incident.map(kind),
        state: incident.map(|incident| state_name(incident.state)),
        node_id: node.flatten(),
        rank,
        cohort: incident.map(|incident| incident.cohort.as_ref().to_owned()),
        baseline: incident.map(|incident| incident.baseline.name()),
        lower_bound: incident.is_some_and(is_lower_bound),
        reason: incident.map(|incident| incident.reason.clone()),
        confidence: incident.map(|incident| incident.confidence),
        run_rate_per_hour: None,
        if_fixed: None,
        amount,
    }
}

/// Node and number of the one rank that caused an incident: the culprit, or the only rank that a hang
/// waits for.
fn cause(incident: &Incident, presence: &Presence) -> Option<(Option<String>, u32)> {
    if let Some(culprit) = culprit(incident) {
        return Some((Some(culprit.node.to_string()), culprit.rank.value()));
    }
    let hang = hang(incident).filter(|hang| hang.is_explained)?;
    let [rank] = hang.ranks.as_slice() else {
        return None;
    };
    let origin = presence.origin_of(&incident.cluster, incident.job.as_ref(), *rank);
    let node = origin.map(|origin| origin.node.to_string());
    Some((node, rank.value()))
}

/// Kind of an incident.
pub(super) const fn kind(incident: &Incident) -> &'static str {
    match &incident.finding {
        Finding::Culprit(_) => "culprit",
        Finding::Condition(condition) => condition.kind.name(),
    }
}
