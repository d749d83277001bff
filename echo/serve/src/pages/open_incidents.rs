//! Open incidents of a cluster, most severe first, each with a headline.

use std::sync::Arc;

use echo_core::ids::JobId;
use echo_core::model::detector_output::ConditionKind;
use echo_core::model::event::Origin;
use echo_core::units::Nanos;
use echo_tools::find_outlier_nodes::Outliers;
use echo_tools::outlier::{Condition, Lifecycle, Outlier};

use super::format;

/// Maximum number of ranks that a headline names.
const MAX_NAMED: usize = 3;

/// Kinds of conditions in which operations do not end.
const HANGS: [&str; 3] = ["hang", "stall", CRASH];

/// Kind in which a process has ended.
const CRASH: &str = "crash";

/// An open incident.
#[derive(Debug)]
pub(super) enum OpenIncident<'a> {
    /// A job whose operations do not end.
    Hang(Hang<'a>),
    /// A rank that holds back its job, or a node that reports bad health.
    Outlier(&'a Outlier),
    /// Another problem of a whole cohort or job.
    Condition(&'a Condition),
}

/// A job whose operations do not end.
#[derive(Debug)]
pub(super) struct Hang<'a> {
    pub(super) condition: &'a Condition,
    /// Number of other ranks of the job, which wait; `None` when unknown.
    pub(super) n_waiting: Option<usize>,
    /// The missing rank, if it is only one.
    pub(super) origin: Option<&'a Origin>,
    missing: String,
}

/// Returns true if the answer has an open hang.
pub(super) fn hangs(answer: &Outliers) -> bool {
    open_conditions(answer).any(is_hang)
}

/// Returns the open incidents of an answer: hangs, then outliers and conditions, each by severity.
/// `origins` are the ranks of the cluster, which are needed for hangs only.
pub(super) fn open_incidents<'a>(
    answer: &'a Outliers,
    origins: &'a [Arc<Origin>],
) -> Vec<OpenIncident<'a>> {
    let hangs = open_conditions(answer).filter(|one| is_hang(one));
    let hangs = hangs.map(|one| {
        let job = one.lifecycle.job.as_deref();
        let of_job = origins
            .iter()
            .map(AsRef::as_ref)
            .filter(|origin| origin.job.as_ref().map(JobId::as_str) == job);
        OpenIncident::Hang(Hang::new(one, &of_job.collect::<Vec<_>>()))
    });
    let outliers = answer.outliers.iter();
    let outliers = outliers.filter(|one| one.lifecycle.is_open());
    let conditions = open_conditions(answer).filter(|one| !is_hang(one));
    hangs
        .chain(outliers.map(OpenIncident::Outlier))
        .chain(conditions.map(OpenIncident::Condition))
        .collect()
}

fn open_conditions(answer: &Outliers) -> impl Iterator<Item = &Condition> {
    let conditions = answer.conditions.iter();
    conditions.filter(|one| one.lifecycle.is_open())
}

/// Returns true if operations do not end.
pub(super) fn is_hang(condition: &Condition) -> bool {
    HANGS.contains(&condition.kind)
}

impl OpenIncident<'_> {
    /// Returns the incident in a few words.
    pub(super) fn headline(&self) -> String {
        match self {
            Self::Hang(hang) => hang.headline(),
            Self::Outlier(one) => outlier(one),
            Self::Condition(one) => condition(one),
        }
    }

    /// Returns its state, severity and times.
    pub(super) const fn lifecycle(&self) -> &Lifecycle {
        match self {
            Self::Hang(hang) => &hang.condition.lifecycle,
            Self::Outlier(one) => &one.lifecycle,
            Self::Condition(one) => &one.lifecycle,
        }
    }

    /// Returns the rank that it is about, if it is only one.
    pub(super) fn rank(&self) -> Option<u32> {
        match self {
            Self::Hang(hang) => Some(hang.origin?.rank?.rank().value()),
            Self::Outlier(one) => one.rank,
            Self::Condition(_) => None,
        }
    }

    /// Returns its heading in the runbook: the class of a late rank, or the kind of a condition.
    pub(super) fn runbook_heading(&self) -> &str {
        match self {
            Self::Hang(hang) => hang.condition.kind,
            Self::Outlier(one) => one.class.unwrap_or(ConditionKind::UnhealthyNode.name()),
            Self::Condition(one) => one.kind,
        }
    }

    /// Returns what to do about it.
    pub(super) fn advice(&self) -> &[String] {
        match self {
            Self::Hang(hang) => &hang.condition.advice,
            Self::Outlier(one) => &one.advice,
            Self::Condition(one) => &one.advice,
        }
    }

    /// Returns the id of its incident.
    pub(super) fn id(&self) -> &str {
        match self {
            Self::Hang(hang) => &hang.condition.incident_id,
            Self::Outlier(one) => &one.incident_id,
            Self::Condition(one) => &one.incident_id,
        }
    }
}

/// Returns the time for which an incident has been open, in seconds: until now, or until it was last
/// seen if that is not recent.
pub(super) fn open_for_s(course: &Lifecycle, now: Nanos) -> Option<f64> {
    let since = format::parse_instant(&course.first_seen)?;
    let until = format::parse_instant(&course.last_seen).filter(|_| !is_recent(course, now));
    Some((until.unwrap_or(now).millis_since(since) / 1e3).max(0.0))
}

/// Returns true if an incident was seen lately.
pub(super) fn is_recent(course: &Lifecycle, now: Nanos) -> bool {
    let last = format::parse_instant(&course.last_seen);
    last.is_none_or(|last| now.millis_since(last) <= format::STALE_AFTER_S * 1e3)
}

impl<'a> Hang<'a> {
    fn new(condition: &'a Condition, origins: &[&'a Origin]) -> Self {
        let is_missing = |origin: &&&Origin| {
            let rank = origin.rank.map(|rank| rank.rank().value());
            rank.is_some_and(|rank| condition.ranks.contains(&rank))
        };
        let missing: Vec<&Origin> = origins.iter().filter(is_missing).copied().collect();
        let n_missing = condition.rank_count;
        Self {
            n_waiting: (!origins.is_empty()).then(|| origins.len().saturating_sub(n_missing)),
            origin: missing.first().copied().filter(|_| n_missing == 1),
            missing: named(&condition.ranks, n_missing, &missing),
            condition,
        }
    }

    fn headline(&self) -> String {
        if self.condition.kind == CRASH {
            let who = match self.missing.as_str() {
                "" => "Processes",
                missing => missing,
            };
            return format!("{who} ended by a signal or an error");
        }
        // At a standstill, the missing ranks may have entered the operation.
        match (self.missing.is_empty(), self.condition.standstill) {
            (true, _) => {
                let job = self.condition.lifecycle.job.as_deref();
                format!("No rank progresses{}", in_job(job))
            }
            (false, true) => format!("{} blocks the job", self.missing),
            (false, false) => format!("{} did not enter a collective", self.missing),
        }
    }
}

fn named(ranks: &[u32], count: usize, origins: &[&Origin]) -> String {
    let numbers: Vec<String> = ranks.iter().take(MAX_NAMED).map(u32::to_string).collect();
    let mut text = match (count, count.saturating_sub(MAX_NAMED)) {
        (0, _) => return String::new(),
        (1, _) => format!("Rank {}", numbers.join(", ")),
        (_, 0) => format!("Ranks {}", numbers.join(", ")),
        (_, more) => format!("Ranks {} and {more} more", numbers.join(", ")),
    };
    let mut nodes: Vec<&str> = origins.iter().map(|origin| origin.node.as_str()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    match nodes.as_slice() {
        [] => {}
        [node] => text = format!("{text} on {node}"),
        several => text = format!("{text} on {} nodes", several.len()),
    }
    text
}

fn outlier(one: &Outlier) -> String {
    let subject = subject(one);
    if !one.is_culprit() {
        return format!("{subject} reports bad health");
    }
    format!("{subject} holds back its job")
}

/// Returns the rank of a culprit with its node, or an unhealthy node.
pub(super) fn subject(one: &Outlier) -> String {
    let node = &one.node_id;
    match one.rank.filter(|_| one.is_culprit()) {
        Some(rank) => format!("Rank {rank} on {node}"),
        None => format!("Node {node}"),
    }
}

fn condition(one: &Condition) -> String {
    let job = one.lifecycle.job.as_deref();
    format!(
        "{}{}",
        format::capitalized(&format::plain(one.kind)),
        in_job(job)
    )
}

fn in_job(job: Option<&str>) -> String {
    job.map_or_else(String::new, |job| format!(" in job {job}"))
}

#[cfg(test)]
mod tests;
