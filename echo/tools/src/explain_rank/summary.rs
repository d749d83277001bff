//! Summary of an explanation in a few sentences.

use echo_analysis::evidence::HostFact;
use echo_core::model::detector_output::ConditionKind;
use echo_core::stats::median;
use echo_core::text::decimal;
use fleet_proto::attribute;

use super::Explanation;
use super::chains::HostReports;
use super::last_arrivals::LastArrivals;
use crate::host::stacks::PYTHON;
use crate::outlier::Condition;

/// Maximum number of kinds of evidence in the summary.
const MAX_FACTS: usize = 3;

/// Maximum number of frames in the summary.
const MAX_FRAMES: usize = 3;

/// Summarizes the explanation, most important first.
pub(super) fn summarize(explanation: &Explanation, facts: &[HostFact]) -> String {
    let mut sentences = vec![identity(explanation)];
    sentences.extend(incidents(explanation));
    sentences.push(host_facts(facts));
    let is_named = !explanation.incidents.is_empty() || explanation.conditions.iter().any(is_hang);
    sentences.extend(is_named.then(|| sampled(&explanation.host)).flatten());
    sentences.extend(lags(explanation));
    // Some rank is always a little later than the others: that alone is not worth reporting.
    if !explanation.incidents.is_empty() {
        let last = explanation.lag_series.last.as_ref();
        sentences.extend(last.and_then(LastArrivals::sentence));
    }
    sentences.extend(own_verdict(explanation));
    if let Some(note) = &explanation.data_quality.note {
        sentences.push(format!("Note: {note}."));
    }
    sentences.join(" ")
}

fn identity(explanation: &Explanation) -> String {
    let who = &explanation.who;
    let mut sentence = format!("Rank {}", who.rank);
    if let Some(size) = who.nranks {
        sentence = format!("{sentence} of {size}");
    }
    if let Some(job) = &who.job {
        sentence = format!("{sentence} of job {job}");
    }
    format!("{sentence} runs on {}.", who.node_id)
}

fn incidents(explanation: &Explanation) -> Vec<String> {
    let mut sentences: Vec<String> = Vec::new();
    if let Some(most_severe) = explanation.incidents.first() {
        let incident = &most_severe.outlier;
        let span = if incident.lifecycle.is_open() {
            format!(
                "has held back its peers since {}",
                incident.lifecycle.first_seen
            )
        } else {
            format!(
                "held back its peers from {} to {}",
                incident.lifecycle.first_seen, incident.lifecycle.last_seen
            )
        };
        sentences.push(format!("It {span}: {}.", incident.reason));
    }
    let others = explanation.incidents.len().saturating_sub(1);
    if others > 0 {
        sentences.push(format!("{others} more incidents name it in this window."));
    }
    let hang = explanation.conditions.iter().find(|one| is_hang(one));
    sentences.extend(hang.map(|hang| in_hang(hang, explanation.who.rank)));
    if sentences.is_empty() {
        sentences.push("No incident names it in this window.".to_owned());
    }
    sentences.extend(conditions(explanation));
    sentences
}

/// Conditions of its job and of its node, without hangs.
fn conditions(explanation: &Explanation) -> Vec<String> {
    let mut sentences = Vec::new();
    let is_of_node = |one: &&Condition| one.kind == ConditionKind::UnhealthyNode.name();
    let others = explanation.conditions.iter().filter(|one| !is_hang(one));
    let (of_node, of_job): (Vec<&Condition>, Vec<&Condition>) = others.partition(is_of_node);
    if let Some(condition) = of_job.first() {
        let verb = if condition.lifecycle.is_open() {
            "has"
        } else {
            "had"
        };
        sentences.push(format!(
            "Its whole job {verb} a condition, {}: {}.",
            condition.kind.replace('_', " "),
            condition.reason
        ));
    }
    if let Some(condition) = of_node.first() {
        let verb = if condition.lifecycle.is_open() {
            "is"
        } else {
            "was"
        };
        sentences.push(format!("Its node {verb} unhealthy: {}.", condition.reason));
    }
    sentences
}

fn is_hang(condition: &Condition) -> bool {
    let mut kinds = ConditionKind::ALL.into_iter();
    kinds.any(|kind| kind.is_hang() && kind.name() == condition.kind)
}

/// What the rank does in a hang: it is one of those that the others wait for, or waits.
fn in_hang(hang: &Condition, rank: u32) -> String {
    let is_open = hang.lifecycle.is_open();
    let is_named = hang.ranks.contains(&rank);
    let does = match (is_named && hang.explained, is_open) {
        (true, true) => "keeps its job waiting",
        (true, false) => "kept its job waiting",
        (false, true) => "is part of a job that does not progress",
        (false, false) => "was part of a job that did not progress",
    };
    let span = if is_open {
        format!("since {}", hang.lifecycle.first_seen)
    } else {
        format!(
            "from {} to {}",
            hang.lifecycle.first_seen, hang.lifecycle.last_seen
        )
    };
    format!("It {does} {span}: {}.", hang.reason)
}

fn host_facts(facts: &[HostFact]) -> String {
    let notable = facts.iter().filter(|fact| fact.stands_out());
    let sentences: Vec<String> = notable.take(MAX_FACTS).map(HostFact::sentence).collect();
    if !sentences.is_empty() {
        return format!(
            "Its host compared with its peers: {}.",
            sentences.join("; ")
        );
    }
    if facts.is_empty() {
        return "No host metrics were reported.".to_owned();
    }
    "No metric of its host stands out among its peers.".to_owned()
}

/// Where the rank spends its time: the call, and the lines of its program that lead to it.
fn sampled(host: &HostReports) -> Option<String> {
    let top = host.top_stack.as_ref()?;
    let (python, native): (Vec<&str>, Vec<&str>) = top
        .stack
        .iter()
        .map(String::as_str)
        .partition(|frame| frame.starts_with(PYTHON));
    // Native frames are `function+offset (library)`.
    let name = |frame: &&str| {
        frame
            .split(['+', ' '])
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let call = top.function.clone();
    let call = call.or_else(|| native.first().map(name));
    let lines = python.iter().filter_map(|frame| frame.strip_prefix(PYTHON));
    let callers = native.iter().skip(1).map(name);
    let chain: Vec<String> = if python.is_empty() {
        call.into_iter().chain(callers).take(MAX_FRAMES).collect()
    } else {
        let lines = lines.take(MAX_FRAMES).map(str::to_owned);
        call.into_iter().chain(lines).collect()
    };
    let percent = |share: f64| decimal(100.0 * share, 0);
    let peers = host.top_stack_peer_share;
    let peers = peers.map_or_else(String::new, |share| format!(", peers {} %", percent(share)));
    Some(format!(
        "{} % of its samples are in {}{peers}.",
        percent(top.share),
        chain.join(" <- ")
    ))
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
        format!(
            "; the standard deviation of its peers was {} ms",
            decimal(scatter, 2)
        )
    });
    let n = lags.len();
    Some(format!(
        "Over {n} blocks its median lag was {} ms per iteration, its maximum {} ms{peers}.",
        decimal(middle, 2),
        decimal(largest, 2),
    ))
}

fn own_verdict(explanation: &Explanation) -> Option<String> {
    let latest = explanation.self_verdicts.first()?;
    let verdict = if latest.state.as_deref() == Some(attribute::STATE_CLEARED) {
        "cleared its verdict"
    } else {
        "judged it late"
    };
    let lag = latest.lag_ms.map_or_else(String::new, |lag_ms| {
        format!(" with a lag of {} ms", decimal(lag_ms, 1))
    });
    Some(format!("Its own agent {verdict} at {}{lag}.", latest.time))
}
