//! An explanation in a few sentences.

use echo_analysis::evidence::HostFact;
use echo_core::stats::median;
use fleet_proto::attribute;

use super::Explanation;
use super::last_arrivals::LastPlaces;

/// Most kinds of evidence that are told.
const MAX_TOLD: usize = 3;

/// What there is to know, most important first.
pub(super) fn of(explanation: &Explanation, facts: &[HostFact]) -> String {
    let mut sentences = vec![who(explanation)];
    sentences.extend(incidents(explanation));
    sentences.push(host(facts));
    sentences.extend(lags(explanation));
    // Somebody is always a little later than the others: that alone is no news.
    if !explanation.incidents.is_empty() {
        let last = explanation.lag_series.last.as_ref();
        sentences.extend(last.and_then(LastPlaces::sentence));
    }
    sentences.extend(own_verdict(explanation));
    if let Some(note) = &explanation.data_quality.note {
        sentences.push(format!("Note: {note}."));
    }
    sentences.join(" ")
}

fn who(explanation: &Explanation) -> String {
    let who = &explanation.who;
    let mut said = format!("Rank {}", who.rank);
    if let Some(size) = who.nranks {
        said = format!("{said} of {size}");
    }
    if let Some(job) = &who.job {
        said = format!("{said} of job {job}");
    }
    format!("{said} runs on {}.", who.node_id)
}

fn incidents(explanation: &Explanation) -> Vec<String> {
    let mut said: Vec<String> = Vec::new();
    if let Some(gravest) = explanation.incidents.first() {
        let incident = &gravest.outlier;
        let span = if incident.course.is_open() {
            format!(
                "has held back its peers since {}",
                incident.course.first_seen
            )
        } else {
            format!(
                "held back its peers from {} to {}",
                incident.course.first_seen, incident.course.last_seen
            )
        };
        said.push(format!("It {span}: {}.", incident.reason));
    }
    let others = explanation.incidents.len().saturating_sub(1);
    if others > 0 {
        said.push(format!("{others} more incidents name it in this window."));
    }
    if let Some(waiting) = explanation.victim_of.first() {
        let verb = if waiting.course.is_open() {
            "waits"
        } else {
            "waited"
        };
        let culprits: Vec<String> = waiting.victim_of.iter().map(ToString::to_string).collect();
        said.push(format!(
            "It looks late only because it {verb} for rank {} (since {}).",
            culprits.join(", "),
            waiting.course.first_seen
        ));
    }
    if said.is_empty() {
        said.push("No incident names it in this window.".to_owned());
    }
    if let Some(condition) = explanation.conditions.first() {
        let verb = if condition.course.is_open() {
            "has"
        } else {
            "had"
        };
        said.push(format!(
            "Its job as a whole {verb} {}: {}.",
            condition.kind.replace('_', " "),
            condition.reason
        ));
    }
    said
}

fn host(facts: &[HostFact]) -> String {
    let telling = facts.iter().filter(|fact| fact.stands_out());
    let told: Vec<String> = telling.take(MAX_TOLD).map(HostFact::sentence).collect();
    if !told.is_empty() {
        return format!("Its host, compared with its peers': {}.", told.join("; "));
    }
    if facts.is_empty() {
        return "Nothing was reported of what its host went through.".to_owned();
    }
    "Nothing that its host reported stands out among its peers.".to_owned()
}

fn lags(explanation: &Explanation) -> Option<String> {
    let points = &explanation.lag_series.points;
    let lags: Vec<f64> = points.iter().filter_map(|point| point.lag_ms).collect();
    let scatter: Vec<f64> = points
        .iter()
        .filter_map(|point| point.peers_sigma_ms)
        .collect();
    let middle = median(&lags)?;
    let largest = lags.iter().copied().fold(f64::MIN, f64::max);
    let peers = median(&scatter).map_or_else(String::new, |scatter| {
        format!(", while its peers scattered by {scatter:.2} ms")
    });
    let n = lags.len();
    Some(format!(
        "Over {n} blocks it lagged {middle:.2} ms per iteration in the middle one and {largest:.2} ms at most{peers}."
    ))
}

fn own_verdict(explanation: &Explanation) -> Option<String> {
    let latest = explanation.self_verdicts.first()?;
    let held = if latest.state.as_deref() == Some(attribute::STATE_CLEARED) {
        "no longer held it to be late"
    } else {
        "held it to be late"
    };
    let lag = latest.lag_ms.map_or_else(String::new, |lag_ms| {
        format!(" with a lag of {lag_ms:.1} ms")
    });
    Some(format!("Its own agent {held} at {}{lag}.", latest.time))
}
